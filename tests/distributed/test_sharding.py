"""Arrays over a mesh: what the table splits, and that every layout agrees with one device."""

import functools
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import Array
from jax.sharding import AxisType, PartitionSpec
from support.fixtures import device_mesh, random_trajectory, tiny_policy
from support.hlo_checks import stacked_all_gathers

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningBatch
from agentrl_jax.compiler.hlo_collectives import parse_collectives
from agentrl_jax.distributed.sharding import (
    BATCH_AXES,
    MeshConfig,
    batch_sharding,
    constrain,
    is_logical_axes,
    make_mesh,
    num_shards,
    partition_spec,
    per_shard,
    platform,
    replicated_sharding,
    weight_shardings,
    with_auto_axes,
)
from agentrl_jax.errors import UserError
from agentrl_jax.learner import chunked_logp
from agentrl_jax.learner.learner import Learner, fetch_metrics
from agentrl_jax.learner.packing import pack
from agentrl_jax.learner.sequences import sequences_of
from agentrl_jax.models import plain_attention
from agentrl_jax.models.decoder import Decoder
from agentrl_jax.models.moe import ExpertsConfig

POLICY = tiny_policy(layers=3, heads=4, kv_heads=2)
ROWS, LENGTH = 8, 12
EIGHT = MeshConfig(data=2, fsdp=2, tensor=2)
EXPERTS = MeshConfig(data=1, fsdp=2, expert=2, tensor=2)
LAYOUTS = {
    "fsdp 8": MeshConfig(fsdp=8, data=1),
    "data 2, tensor 4": MeshConfig(data=2, tensor=4),
    "data 2, fsdp 2, tensor 2": EIGHT,
    "fsdp 2, expert 2, tensor 2": EXPERTS,
}
# The axes of the plans in docs/scaling.md and of `choose_mesh`, and of experts, on eight devices.
PLANNED = {
    "fsdp": MeshConfig(data=1, fsdp=8),  # one slice
    "data": MeshConfig(data=8),  # weights that fit one device
    "data, fsdp": MeshConfig(data=2, fsdp=4),  # several slices
    "fsdp, tensor": MeshConfig(data=1, fsdp=4, tensor=2),
    "fsdp, expert": MeshConfig(data=1, fsdp=2, expert=4),
}
MIXTURE = tiny_policy(heads=4, kv_heads=2, experts=ExpertsConfig(4, 2, 12))


@pytest.mark.parametrize(
    ("names", "shape", "spec"),
    [
        (("vocab", "embed"), (24, 16), ("tensor", "fsdp")),
        (("vocab", "embed"), (25, 16), (None, "fsdp")),  # 25 does not divide
        (("embed", "embed"), (16, 16), ("fsdp", None)),  # a mesh axis is used once
        (("rows", None, "embed"), (8, 5, 16), (("data", "fsdp"), None, None)),
        (("rows", None, "hidden"), (8, 5, 16), (("data", "fsdp"), None, "tensor")),
        (("rows", None), (6, 5), (None, None)),
        (
            ("layers", "experts", "embed", "hidden"),
            (3, 4, 16, 32),
            (None, "expert", "fsdp", "tensor"),
        ),
        ((), (), ()),
    ],
)
def test_the_table_splits_what_divides(names: tuple, shape: tuple, spec: tuple):
    mesh = make_mesh(EXPERTS) if "experts" in names else make_mesh(EIGHT)
    assert partition_spec(mesh, names, shape) == PartitionSpec(*spec)


def test_an_axis_that_a_mesh_lacks_splits_nothing():
    mesh = jax.make_mesh((2, 4), ("data", "fsdp"), axis_types=(AxisType.Auto,) * 2)
    assert (
        partition_spec(mesh, ("experts", "embed"), (4, 16)) == PartitionSpec(None, "fsdp")
        and num_shards(mesh, ("expert", "data")) == 2
    )


def test_the_platform_of_a_program_is_known_while_it_is_traced():
    assert platform() == "cpu"
    with jax.set_mesh(make_mesh(EIGHT)):
        assert platform() == "cpu"


def test_a_constraint_splits_under_a_mesh_and_does_nothing_without_one():
    x = jnp.arange(64.0).reshape(8, 8)
    assert constrain(x, "rows", None) is x
    with jax.set_mesh(make_mesh(EIGHT)):
        y = jax.jit(lambda x: constrain(x, "rows", "hidden"))(x)
    assert {shard.data.shape for shard in y.addressable_shards} == {(2, 4)}
    np.testing.assert_array_equal(x, y)
    with jax.set_mesh(device_mesh(data=2)):
        halves = jax.jit(lambda x: constrain(x, "rows", None))(x)
    assert {shard.data.shape for shard in halves.addressable_shards} == {(4, 8)}
    with jax.set_mesh(device_mesh()):
        assert constrain(x, "rows", None) is x


def test_a_mesh_with_explicit_axes_is_left_to_its_user():
    x, shapes = jnp.arange(8.0), []
    with jax.set_mesh(jax.make_mesh((2,), ("data",), axis_types=(AxisType.Explicit,))):
        assert constrain(x, "rows") is x
        per_shard(lambda x: shapes.append(x.shape), (("rows",),), ("rows",))(x)
    assert shapes == [(8,)]


def test_each_device_runs_a_function_on_its_own_part():
    shapes = []

    def products(weights: dict[str, Array], x: Array) -> tuple[Array, Array]:
        shapes.append(x.shape)
        return constrain(x, "rows", None, "hidden") * weights["scale"], x.sum(-1)

    x, weights = jnp.arange(8.0 * 3 * 4).reshape(8, 3, 4), {"scale": jnp.float32(2)}
    split = per_shard(
        products,
        ((), ("rows", None, "hidden")),
        (("rows", None, "hidden"), ("rows", None)),
        mesh_axes=("data", "fsdp"),
    )
    alone = split(weights, x)
    with jax.set_mesh(make_mesh(EIGHT)):
        together = jax.jit(split)(weights, x)
        some = jax.jit(split)(weights, x[:6])  # 6 rows are not 4 equal parts
    jax.tree.map(np.testing.assert_array_equal, alone, together)
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(lambda x: x[:6], alone), some)
    assert shapes == [(8, 3, 4), (2, 3, 4), (6, 3, 4)]


@pytest.mark.parametrize(
    ("kv_heads", "heads", "query", "key"),
    [
        (4, 2, (4, 5, 2, 2, 3), (4, 5, 2, 3)),  # over the key heads where they are enough
        (1, 2, (4, 5, 1, 1, 3), (4, 5, 1, 3)),  # and otherwise over the queries of each
        (1, 1, (4, 5, 1, 1, 3), (4, 5, 1, 3)),
    ],
)
def test_heads_are_split_over_the_first_axis_that_can_be(
    kv_heads: int, heads: int, query: tuple, key: tuple
):
    shapes = []

    def attend(q: Array, k: Array) -> Array:
        shapes.append((q.shape, k.shape))
        return q * k[:, :, :, None]

    names = ("rows", None, "kv_heads", "heads", None)
    keys = ("rows", None, "kv_heads", None)
    q, k = jnp.ones((8, 5, kv_heads, heads, 3)), jnp.ones((8, 5, kv_heads, 3))
    with jax.set_mesh(device_mesh(data=2, tensor=2)):
        jax.eval_shape(per_shard(attend, (names, keys), names), q, k)
    assert shapes == [(query, key)]


def test_only_the_mesh_axes_that_are_named_split():
    shapes = []

    def recorded(x: Array, w: Array) -> Array:
        shapes.append((x.shape, w.shape))
        return x

    with jax.set_mesh(make_mesh(EIGHT)):
        x, w = jnp.ones((8, 4)), jnp.ones((4, 6))
        for axes in (("data", "fsdp"), ("tensor",), ("data",), ("expert",)):
            args = (("rows", None), ("embed", "hidden")), ("rows", None)
            jax.eval_shape(per_shard(recorded, *args, mesh_axes=axes), x, w)
    # Rows are split over data and fsdp together, or not at all.
    assert shapes == [((2, 4), (2, 6)), ((8, 4), (4, 3)), ((8, 4), (4, 6)), ((8, 4), (4, 6))]


def test_names_and_axes_must_be_as_many():
    mesh = make_mesh(EIGHT)
    with pytest.raises(ValueError, match="zip"):
        partition_spec(mesh, ("rows",), (8, 4))
    with pytest.raises(ValueError, match="zip"):
        partition_spec(mesh, ("rows", None, None), (8, 4))
    x = jnp.ones((8, 4))
    with jax.set_mesh(mesh):
        with pytest.raises(ValueError, match="zip"):
            per_shard(lambda x: x, (("rows",),), ("rows",))(x)
        with pytest.raises(ValueError, match="zip"):
            per_shard(lambda x, y: x, (("rows", None),), ("rows", None))(x, x)


def test_only_the_named_mesh_axes_are_manual_within():
    kinds: list[dict[str, Any]] = []

    def recorded(x: Array) -> Array:
        inside = jax.sharding.get_abstract_mesh()
        kinds.append(dict(zip(inside.axis_names, inside.axis_types)))
        return x

    with jax.set_mesh(make_mesh(EIGHT)):
        for axes in (("data", "fsdp"), ("tensor",)):
            split = per_shard(recorded, (("rows", "hidden"),), ("rows", "hidden"), mesh_axes=axes)
            jax.eval_shape(split, jnp.ones((8, 4)))
            manual = {axis for axis, kind in kinds[-1].items() if kind == AxisType.Manual}
            assert manual == set(axes)


def test_the_platform_is_that_of_the_meshs_devices(monkeypatch: pytest.MonkeyPatch):
    def ambient(kind: str, is_empty: bool = False) -> None:
        device = SimpleNamespace(platform=kind, device_kind="TPU v5e") if kind else None
        mesh = SimpleNamespace(empty=is_empty, abstract_device=device)
        monkeypatch.setattr(jax.sharding, "get_abstract_mesh", lambda: mesh)

    ambient("tpu")
    assert platform() == "tpu"  # a topology's, while the default device is another one
    ambient("")
    assert platform() == "cpu"
    ambient("tpu", is_empty=True)
    assert platform() == "cpu"


def test_where_nothing_is_split_a_function_runs_as_it_is():
    def program(axes: tuple[str, ...], **sizes: int) -> str:
        split = per_shard(lambda x: x + 1, (("rows", None),), ("rows", None), mesh_axes=axes)
        with jax.set_mesh(device_mesh(**sizes)):
            return str(jax.make_jaxpr(split)(jnp.ones((8, 4))))

    assert "shard_map" not in program(("data", "fsdp")) + program(("data", "fsdp"), tensor=2)
    assert "shard_map" in program(("data", "fsdp"), data=2)
    assert "shard_map" in program(("data", "fsdp"), fsdp=2)


def test_a_constraint_of_one_device_is_none():
    with jax.set_mesh(device_mesh()):
        alone = str(jax.make_jaxpr(lambda x: constrain(x, "rows"))(jnp.ones(8)))
    with jax.set_mesh(device_mesh(data=2)):
        split = str(jax.make_jaxpr(lambda x: constrain(x, "rows"))(jnp.ones(8)))
    assert "sharding_constraint" in split and "sharding_constraint" not in alone


def test_a_function_may_gather_what_its_device_lacks():
    def gathered(x: Array) -> Array:
        return jax.lax.all_gather(x, ("data", "fsdp"), tiled=True)

    with jax.set_mesh(device_mesh(data=2, fsdp=2)):
        result = per_shard(gathered, (("rows",),), (None,))(jnp.arange(8.0))
    assert result.tolist() == list(range(8)) and result.sharding.is_fully_replicated


def test_logical_axes_are_tuples_of_names():
    assert is_logical_axes(()) and is_logical_axes(("rows", None)) and is_logical_axes((None,))
    assert not any(map(is_logical_axes, (["rows"], ("rows", 1), (("rows",), None), "rows", None)))


def test_the_axes_of_a_mesh_are_made_auto_and_unknown_ones_are_refused():
    explicit = jax.make_mesh((2, 4), ("data", "tensor"), axis_types=(AxisType.Explicit,) * 2)
    mesh = with_auto_axes(explicit)
    assert mesh.axis_types == (AxisType.Auto,) * 2 and mesh.shape == {"data": 2, "tensor": 4}
    wrong = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    with pytest.raises(UserError, match="data, fsdp, expert, tensor or some of them, not 'model'"):
        with_auto_axes(wrong)
    both = jax.make_mesh((2, 4), ("model", "stage"), axis_types=(AxisType.Auto,) * 2)
    with pytest.raises(UserError, match=r"not 'model'$"):  # the first one is named
        with_auto_axes(both)
    shardings = weight_shardings(
        explicit, {"w": ("embed", "hidden"), "b": ()}, {"w": jnp.ones((4, 8)), "b": jnp.ones(())}
    )
    assert {name: sharding.spec for name, sharding in shardings.items()} == {
        "w": PartitionSpec(None, "tensor"),
        "b": PartitionSpec(),
    }
    assert batch_sharding(mesh).spec == PartitionSpec(("data",))
    assert batch_sharding(make_mesh(EIGHT)).spec == PartitionSpec(("data", "fsdp"))
    assert replicated_sharding(mesh).spec == PartitionSpec()


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [("tpu", "TPU v5e", "tpu"), ("gpu", "NVIDIA H100", "cuda"), ("gpu", "MI300X", "rocm")],
)
def test_the_platform_of_a_device_is_its_vendors(
    kind: str, name: str, expected: str, monkeypatch: pytest.MonkeyPatch
):
    device = SimpleNamespace(platform=kind, device_kind=name)
    other = SimpleNamespace(platform="other", device_kind="other")
    monkeypatch.setattr(jax, "devices", lambda: [device, other])
    assert platform() == expected


def batch(rows: int = ROWS) -> BehaviorCloningBatch:
    rng = np.random.default_rng(0)
    shapes = ([(2, 2, False, 0.0), (1, int(rng.integers(1, 4)), False, 0.0)] for _ in range(rows))
    layout = pack([sequences_of(random_trajectory(x, rng))[0] for x in shapes], LENGTH, rows)
    mask = layout.to_batch(np.zeros((layout.num_bins, LENGTH), np.float32)).action_mask
    weight = np.where(mask, rng.random(mask.shape), 0)
    return BehaviorCloningBatch(batch=layout.to_batch((weight / weight.sum()).astype(np.float32)))


def likelihood(logp: Array, entropy: Array, batch: Any) -> tuple[Array, dict[str, Array]]:
    return -logp - 0.1 * entropy, {"logp": logp}


def gradient_step(
    layout: MeshConfig | None, policy: Decoder = POLICY, rows: int = ROWS
) -> tuple[Any, dict[str, float], Any]:
    """(weights after a step, metrics, weights before); with SGD they differ by the gradient."""
    mesh = device_mesh() if layout is None else make_mesh(layout)
    sgd_learner = Learner(policy, optax.sgd(1.0), likelihood, mesh)
    before = policy.init(jax.random.key(0))
    state = sgd_learner.init(jax.random.key(0), before)
    state, metrics = sgd_learner.update(state, [batch(rows)])
    return state.params, fetch_metrics(metrics), before


@functools.cache
def step_on_one_device() -> tuple[Any, dict[str, float], Any]:
    return gradient_step(None)


SLOW = [
    pytest.param(layout, id=name, marks=pytest.mark.slow)
    for name, layout in LAYOUTS.items()
    if layout is not EIGHT
]


@pytest.mark.slow
@pytest.mark.parametrize("layout", [pytest.param(EIGHT, id="data 2, fsdp 2, tensor 2"), *SLOW])
def test_every_layout_gives_the_loss_and_gradient_of_one_device(
    monkeypatch: pytest.MonkeyPatch, layout: MeshConfig
):
    expected, expected_metrics, before = step_on_one_device()
    # Several chunks on each device, and several blocks of queries.
    monkeypatch.setattr(chunked_logp, "MAX_CHUNK_LOGITS", 5 * POLICY.vocab_size)
    monkeypatch.setattr(plain_attention, "MAX_SCORES", 5 * LENGTH)
    params, metrics, _ = gradient_step(layout)
    assert metrics == pytest.approx(expected_metrics, abs=1e-5)
    changes = [
        float(np.abs(x - y).max())
        for x, y in zip(jax.tree.leaves(expected), jax.tree.leaves(before))
    ]
    assert max(changes) > 1e-3
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5, rtol=0),
        jax.device_get(expected),
        jax.device_get(params),
    )
    mesh, names = make_mesh(layout), jax.tree.leaves(POLICY.axes(), is_leaf=is_logical_axes)
    for x, axes in zip(jax.tree.leaves(params), names, strict=True):
        spec = jax.tree.leaves(tuple(partition_spec(mesh, axes, x.shape)))
        assert {shard.data.size for shard in x.addressable_shards} == {
            x.size // num_shards(mesh, tuple(spec))
        }


@functools.cache
def rows_on_one_device(policy: Decoder, rows: int) -> tuple[Any, dict[str, float]]:
    params, metrics, before = gradient_step(None, policy, rows)
    largest = [
        float(np.abs(x - y).max()) for x, y in zip(jax.tree.leaves(params), jax.tree.leaves(before))
    ]
    assert max(largest) > 1e-3
    return jax.device_get(params), metrics


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANNED)
def test_with_one_row_a_device_every_planned_mesh_gives_the_gradient_of_one_device(name: str):
    """The smallest batch of a mesh: rows split no further, and no device has two to sum over."""
    mesh, policy = make_mesh(PLANNED[name]), MIXTURE if "expert" in name else POLICY
    rows = num_shards(mesh, BATCH_AXES)
    expected, expected_metrics = rows_on_one_device(policy, rows)
    params, metrics, _ = gradient_step(PLANNED[name], policy, rows)
    assert metrics == pytest.approx(expected_metrics, abs=1e-5)
    for x, y in zip(jax.tree.leaves(expected), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("layout", [EIGHT, LAYOUTS["fsdp 8"]])
def test_no_device_ever_holds_the_weights_of_all_layers(layout: MeshConfig):
    mesh = make_mesh(layout)
    for lowered in Learner(POLICY, optax.adamw(0.1), likelihood, mesh).lower(batch()):
        hlo = lowered.compile().as_text() or ""
        assert stacked_all_gathers(hlo, POLICY, mesh) == []
        kinds_in_loops = {x.kind for x in parse_collectives(hlo) if x.in_loop}
    assert kinds_in_loops == set()  # the optimizer's


@pytest.mark.slow
def test_the_head_is_gathered_once_and_not_for_each_chunk(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chunked_logp, "MAX_CHUNK_LOGITS", 5 * POLICY.vocab_size)
    lowered, _ = Learner(
        POLICY, optax.sgd(1.0), likelihood, make_mesh(MeshConfig(data=1, fsdp=8))
    ).lower(batch())
    head = (POLICY.vocab_size, POLICY.config.width)
    moved = [x for x in parse_collectives(lowered.compile().as_text() or "") if head in x.shapes]
    assert moved and not any(x.in_loop for x in moved)
