"""Arrays over a mesh: what the table splits, and that every layout computes what one device computes."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hand_made import grown, mesh_of, minute_policy
from jax import Array
from jax.sharding import AxisType, PartitionSpec

from agentrl_jax import learner
from agentrl_jax.algorithms.supervised import SupervisedBatch
from agentrl_jax.batch import pack
from agentrl_jax.collectives import collectives
from agentrl_jax.learner import Learner, fetch_metrics
from agentrl_jax.models import kernels
from agentrl_jax.rows import rows_of
from agentrl_jax.sharding import MeshConfig, constrain, is_names, make_mesh, partition, per_shard, platform, shards
from agentrl_jax.topology import gathered_stacks

POLICY = minute_policy(layers=3, heads=4, kv_heads=2)
ROWS, LENGTH = 8, 12
EIGHT = MeshConfig(data=2, fsdp=2, tensor=2)
EXPERTS = MeshConfig(data=1, fsdp=2, expert=2, tensor=2)
LAYOUTS = {
    "data 8": MeshConfig(data=8),
    "fsdp 8": MeshConfig(fsdp=8, data=1),
    "fsdp 4, tensor 2": MeshConfig(data=1, fsdp=4, tensor=2),
    "data 2, tensor 4": MeshConfig(data=2, tensor=4),
    "data 2, fsdp 2, tensor 2": EIGHT,
    "fsdp 2, expert 2, tensor 2": EXPERTS,
}


@pytest.mark.parametrize(
    ("names", "shape", "spec"),
    [
        (("vocab", "embed"), (24, 16), ("tensor", "fsdp")),
        (("vocab", "embed"), (25, 16), (None, "fsdp")),  # 25 does not divide
        (("embed", "embed"), (16, 16), ("fsdp", None)),  # a mesh axis is used once
        (("rows", None, "embed"), (8, 5, 16), (("data", "fsdp"), None, None)),
        (("rows", None, "hidden"), (8, 5, 16), (("data", "fsdp"), None, "tensor")),
        (("rows", None), (6, 5), (None, None)),
        (("layers", "experts", "embed", "hidden"), (3, 4, 16, 32), (None, "expert", "fsdp", "tensor")),
        ((), (), ()),
    ],
)
def test_the_table_splits_what_divides(names: tuple, shape: tuple, spec: tuple):
    mesh = make_mesh(EXPERTS) if "experts" in names else make_mesh(EIGHT)
    assert partition(mesh, names, shape) == PartitionSpec(*spec)


def test_an_axis_that_a_mesh_lacks_splits_nothing():
    mesh = jax.make_mesh((2, 4), ("data", "fsdp"), axis_types=(AxisType.Auto,) * 2)
    assert partition(mesh, ("experts", "embed"), (4, 16)) == PartitionSpec(None, "fsdp") and shards(mesh, ("expert", "data")) == 2


def test_what_a_program_will_run_on_is_known_while_it_is_traced():
    assert platform() == "cpu"
    with jax.set_mesh(make_mesh(EIGHT)):
        assert platform() == "cpu"


def test_a_constraint_splits_under_a_mesh_and_is_nothing_without_one():
    x = jnp.arange(64.0).reshape(8, 8)
    assert constrain(x, "rows", None) is x
    with jax.set_mesh(make_mesh(EIGHT)):
        y = jax.jit(lambda x: constrain(x, "rows", "hidden"))(x)
    assert {shard.data.shape for shard in y.addressable_shards} == {(2, 4)}
    np.testing.assert_array_equal(x, y)


def test_each_device_runs_a_function_on_its_own_part():
    seen = []

    def products(weights: dict[str, Array], x: Array) -> tuple[Array, Array]:
        seen.append(x.shape)
        return constrain(x, "rows", None, "hidden") * weights["scale"], x.sum(-1)

    x, weights = jnp.arange(8.0 * 3 * 4).reshape(8, 3, 4), {"scale": jnp.float32(2)}
    split = per_shard(products, ((), ("rows", None, "hidden")), (("rows", None, "hidden"), ("rows", None)), over=("data", "fsdp"))
    alone = split(weights, x)
    with jax.set_mesh(make_mesh(EIGHT)):
        together = jax.jit(split)(weights, x)
        some = jax.jit(split)(weights, x[:6])  # 6 rows are not 4 equal parts
    jax.tree.map(np.testing.assert_array_equal, alone, together)
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(lambda x: x[:6], alone), some)
    assert seen == [(8, 3, 4), (2, 3, 4), (6, 3, 4)]


def batch() -> SupervisedBatch:
    rng = np.random.default_rng(0)
    rows = [rows_of(grown([(2, 2, False, 0.0), (1, int(rng.integers(1, 4)), False, 0.0)], rng))[0] for _ in range(ROWS)]
    layout = pack(rows, LENGTH, ROWS)
    mask = layout.batch(np.zeros((layout.bins, LENGTH), np.float32)).action_mask
    weight = np.where(mask, rng.random(mask.shape), 0)
    return SupervisedBatch(batch=layout.batch((weight / weight.sum()).astype(np.float32)))


def likelihood(logp: Array, entropy: Array, batch: Any) -> tuple[Array, dict[str, Array]]:
    return -logp - 0.1 * entropy, {"logp": logp}


def stepped(layout: MeshConfig | None) -> tuple[Any, dict[str, float], Any]:
    """Metrics, and weights before and after a step of plain gradient descent, so that they differ by the gradient."""
    mesh = mesh_of() if layout is None else make_mesh(layout)
    it = Learner(POLICY, optax.sgd(1.0), likelihood, mesh)
    before = POLICY.init(jax.random.key(0))
    state, metrics = it.update(it.init(jax.random.key(0), before), [batch()])
    return state.params, fetch_metrics(metrics), before


@functools.cache
def on_one_device() -> tuple[Any, dict[str, float], Any]:
    return stepped(None)


SLOW = [pytest.param(layout, id=name, marks=pytest.mark.slow) for name, layout in LAYOUTS.items() if layout is not EIGHT]


@pytest.mark.parametrize("layout", [pytest.param(EIGHT, id="data 2, fsdp 2, tensor 2"), *SLOW])
def test_every_layout_gives_the_loss_and_gradient_of_one_device(monkeypatch: pytest.MonkeyPatch, layout: MeshConfig):
    want, metrics, before = on_one_device()
    monkeypatch.setattr(learner, "LOGITS_AT_ONCE", 5 * POLICY.vocab_size)  # several chunks on each device
    monkeypatch.setattr(kernels, "SCORES_AT_ONCE", 5 * LENGTH)  # several blocks of queries
    got, found, _ = stepped(layout)
    assert found == pytest.approx(metrics, abs=1e-5)
    assert max(float(np.abs(x - y).max()) for x, y in zip(jax.tree.leaves(want), jax.tree.leaves(before))) > 1e-3
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5, rtol=0), jax.device_get(want), jax.device_get(got))
    mesh, names = make_mesh(layout), jax.tree.leaves(POLICY.axes(), is_leaf=is_names)
    for x, axes in zip(jax.tree.leaves(got), names, strict=True):
        spec = jax.tree.leaves(tuple(partition(mesh, axes, x.shape)))
        assert {shard.data.size for shard in x.addressable_shards} == {x.size // shards(mesh, tuple(spec))}


@pytest.mark.parametrize(
    "layout", [EIGHT, *(pytest.param(LAYOUTS[name], marks=pytest.mark.slow) for name in ("fsdp 8", "fsdp 4, tensor 2"))]
)
def test_no_device_ever_holds_the_weights_of_all_layers(layout: MeshConfig):
    mesh = make_mesh(layout)
    for lowered in Learner(POLICY, optax.adamw(0.1), likelihood, mesh).lowered(batch()):
        hlo = lowered.compile().as_text() or ""
        assert gathered_stacks(hlo, POLICY, mesh) == []
        looped = {x.kind for x in collectives(hlo) if x.loop}
    assert looped == set()  # the optimizer's


def test_the_head_is_gathered_once_and_not_for_each_chunk(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(learner, "LOGITS_AT_ONCE", 5 * POLICY.vocab_size)
    lowered, _ = Learner(POLICY, optax.sgd(1.0), likelihood, make_mesh(MeshConfig(data=1, fsdp=8))).lowered(batch())
    head = (POLICY.vocab_size, POLICY.config.width)
    moved = [x for x in collectives(lowered.compile().as_text() or "") if head in x.shapes]
    assert moved and not any(x.loop for x in moved)
