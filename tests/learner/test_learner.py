"""The sharded, accumulated update gives the same numbers on every mesh and microbatch size."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import Array
from support.fixtures import (
    MeanEmbeddingPolicy,
    device_mesh,
    record_compilations,
    tiny_policy,
    unpacked_logp,
)
from support.learner_updates import assert_close, batch_of, split_batch

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningBatch
from agentrl_jax.distributed.sharding import MeshConfig, make_mesh
from agentrl_jax.errors import UserError
from agentrl_jax.learner.checkpoint import PhaseCheckpointer
from agentrl_jax.learner.chunked_logp import token_logp
from agentrl_jax.learner.learner import Learner, fetch_metrics
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.learner.packing import Batch
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.policy import KVCache, Policy, PolicyInputs, PolicyOutput

POLICY = MeanEmbeddingPolicy()
DECODER = tiny_policy(layers=1)
ADAM = AdamWConfig(learning_rate=0.03, eps=1e-3, weight_decay=0.1, clip_norm=0.5)
MESHES = {
    "data 8": {"data": 8},
    "fsdp 8": {"fsdp": 8},
    "tensor 2, data 4": {"data": 4, "tensor": 2},
    "fsdp 2, tensor 2, data 2": {"data": 2, "fsdp": 2, "tensor": 2},
}


def likelihood(logp: Array, entropy: Array, batch: Any) -> tuple[Array, dict[str, Array]]:
    return -logp - 0.1 * entropy, {"logp": logp, "entropy": entropy}


@functools.cache
def learner_on(data: int = 1, fsdp: int = 1, tensor: int = 1, policy: Policy = POLICY) -> Learner:
    return Learner(policy, ADAM.build(100), likelihood, device_mesh(data, fsdp, tensor=tensor))


def train(
    learner: Learner, params: Any, size: int = 8
) -> tuple[TrainState, list[dict[str, float]]]:
    """The state after three updates on two microbatches each (unless their size is another)."""
    state, metrics = learner.init(jax.random.key(0), params), []
    for seed in range(3):
        state, m = learner.update(state, split_batch(batch_of(seed)[1], size))
        metrics.append(fetch_metrics(m))
    return state, metrics


@pytest.fixture(scope="module")
def params() -> Any:
    return POLICY.init(jax.random.key(0))


@pytest.fixture(scope="module")
def one_device_result(params: Any) -> tuple[Any, list[dict[str, float]]]:
    state, metrics = train(learner_on(), params)
    return jax.device_get(state.params), metrics


@pytest.mark.slow
@pytest.mark.parametrize("sizes", MESHES.values(), ids=MESHES)
def test_every_mesh_gives_the_result_of_one_device(
    params: Any, one_device_result: tuple, sizes: dict[str, int]
):
    state, metrics = train(learner_on(**sizes), params)
    assert_close(state.params, one_device_result[0])
    assert_close(metrics, one_device_result[1])


@pytest.mark.slow
def test_a_mesh_with_explicit_axes_is_accepted(params: Any, one_device_result: tuple):
    state, metrics = train(
        Learner(POLICY, ADAM.build(100), likelihood, jax.make_mesh((8,), ("fsdp",))), params
    )
    assert_close(state.params, one_device_result[0])
    assert_close(metrics, one_device_result[1])
    assert state.params["kernel"].addressable_shards[0].data.size * 8 == params["kernel"].size
    with pytest.raises(
        UserError,
        match="a mesh has the axes data, fsdp, expert, tensor or some of them, not 'model'",
    ):
        Learner(POLICY, ADAM.build(100), likelihood, jax.make_mesh((8,), ("model",)))


@pytest.mark.slow
def test_a_mesh_gives_the_result_of_one_device_with_a_transformer():
    params = DECODER.init(jax.random.key(0))
    (expected, expected_metrics), (state, metrics) = (
        train(learner_on(**mesh, policy=DECODER), params)
        for mesh in ({}, MESHES["fsdp 2, tensor 2, data 2"])
    )
    assert_close(state.params, expected.params)
    assert_close(metrics, expected_metrics)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "embedding", "kernel"),
    [
        ({"data": 8}, (24, 8), (8, 8)),
        ({"fsdp": 8}, (24, 1), (1, 8)),
        ({"data": 4, "tensor": 2}, (12, 8), (8, 4)),
        ({"data": 2, "fsdp": 2, "tensor": 2}, (12, 4), (4, 4)),
    ],
)
def test_each_device_holds_its_part_of_weights_and_moments(
    params: Any, sizes: dict[str, int], embedding: tuple[int, int], kernel: tuple[int, int]
):
    learner = learner_on(**sizes)
    state = learner.init(jax.random.key(0), params)
    for _ in range(2):  # before and after an update
        moments = [
            tree
            for tree in jax.tree.leaves(state.opt_state, is_leaf=lambda x: isinstance(x, dict))
            if isinstance(tree, dict)
        ]
        assert len(moments) == 2
        for tree in (state.params, *moments):
            for name, shape in (("embedding", embedding), ("kernel", kernel)):
                shards = tree[name].addressable_shards
                assert len(shards) == 8 and {shard.data.shape for shard in shards} == {shape}
        state, _ = learner.update(state, split_batch(batch_of(0)[1], 8))


@pytest.mark.slow
def test_a_transformers_weights_are_split_as_the_table_says():
    mesh = device_mesh(data=2, fsdp=2, tensor=2)
    state = Learner(DECODER, optax.sgd(1.0), likelihood, mesh).init(
        jax.random.key(0), DECODER.init(jax.random.key(0))
    )
    split = {
        jax.tree_util.keystr(path, simple=True, separator="/"): tuple(
            np.divide(x.shape, x.addressable_shards[0].data.shape)
        )
        for path, x in jax.tree_util.tree_leaves_with_path(state.params)
    }
    assert split["embedding"] == (2, 2)  # vocab over tensor, embed over fsdp
    assert split["layers/attention/query"] == (1, 2, 2, 1)  # layers, embed, heads, head size
    assert split["layers/attention/key"] == (1, 2, 1, 1)  # a single key head cannot be split
    assert split["layers/attention/out"] == (1, 2, 1, 2)
    assert all(np.prod(parts) >= 2 for name, parts in split.items() if "norm" not in name)


@pytest.mark.parametrize("size", [1, 16])
def test_the_number_of_microbatches_changes_nothing(
    params: Any, one_device_result: tuple, size: int
):
    state, metrics = train(learner_on(), params, size)
    assert_close(state.params, one_device_result[0])
    assert_close(metrics, one_device_result[1])


def test_an_update_is_that_of_optax_on_the_whole_objective(params: Any, one_device_result: tuple):
    tx = ADAM.build(100)

    def whole_objective(params: Any, batch: Batch) -> Array:
        logp, entropy = token_logp(POLICY, params, batch)
        return jnp.sum(batch.weight * (-logp - 0.1 * entropy))

    opt_state, expected, losses = tx.init(params), params, []
    objective = jax.jit(jax.value_and_grad(whole_objective))
    for seed in range(3):
        loss, gradient = objective(expected, batch_of(seed)[1])
        with jax.numpy_dtype_promotion("standard"):
            updates, opt_state = tx.update(gradient, opt_state, expected)
            expected = optax.apply_updates(expected, updates)
        losses.append((float(loss), float(optax.tree.norm(gradient))))
    assert_close(one_device_result[0], expected, 1e-6)
    assert [(m["loss"], m["gradient_norm"]) for m in one_device_result[1]] == [
        pytest.approx(x, abs=1e-5) for x in losses
    ]


@pytest.mark.slow
def test_a_data_mesh_is_pmap(params: Any):
    """Data parallelism by pmap: one replica per device, gradients summed by psum."""
    tx = ADAM.build(100)

    def shard_objective(params: Any, batch: Batch) -> Array:
        logp, entropy = token_logp(POLICY, params, batch)
        return jnp.sum(batch.weight * (-logp - 0.1 * entropy))

    def replica(params: Any, opt_state: Any, batch: Batch) -> tuple[Any, Any, Array]:
        loss, gradient = jax.value_and_grad(shard_objective)(params, batch)
        loss, gradient = jax.lax.psum((loss, gradient), "devices")
        with jax.numpy_dtype_promotion("standard"):
            updates, opt_state = tx.update(gradient, opt_state, params)
            return optax.apply_updates(params, updates), opt_state, loss

    step = jax.pmap(replica, axis_name="devices")
    replicas = jax.tree.map(lambda x: jnp.stack([x] * 8), (params, tx.init(params)))
    learner = learner_on(data=8)
    state = learner.init(jax.random.key(0), params)
    for seed in range(3):
        batch = batch_of(seed)[1]
        *replicas, loss = step(
            *replicas, jax.tree.map(lambda x: jnp.asarray(x).reshape(8, -1, *x.shape[1:]), batch)
        )
        state, metrics = learner.update(state, [BehaviorCloningBatch(batch=batch)])
        np.testing.assert_allclose(np.asarray(loss), float(metrics["loss"]), atol=1e-6)
    for i in range(8):
        assert_close(state.params, jax.tree.map(lambda x, i=i: x[i], replicas[0]), 1e-6)


@pytest.mark.parametrize("sizes", [{}, {"data": 8}, {"data": 2, "fsdp": 2, "tensor": 2}])
def test_nothing_recompiles_after_the_first_update(params: Any, sizes: dict[str, int]):
    learner = learner_on(**sizes)
    state = learner.init(jax.random.key(0), params)
    state, metrics = learner.update(state, split_batch(batch_of(0)[1], 8))
    learner.score(state.params, batch_of(0)[1])
    with record_compilations() as compiled:
        for rows in (8, 16, 24, 56, 8):
            state, metrics = learner.update(state, split_batch(batch_of(1, rows)[1], 8))
            fetch_metrics(metrics)
        learner.score(state.params, batch_of(2)[1])
        assert compiled == []
        jax.jit(lambda x: x + len(sizes))(jnp.zeros(3))
    assert compiled and int(state.step) == 6


class FrozenEmbeddingPolicy(MeanEmbeddingPolicy):
    """A policy whose embedding is frozen."""

    def trainable(self) -> Any:
        return {"embedding": False, "kernel": True}


@pytest.mark.slow
def test_a_frozen_weight_stays_and_has_no_gradient_and_no_moments(params: Any, tmp_path: Path):
    tx, batch = optax.adam(0.1), batch_of(0)[1]
    learner = Learner(
        FrozenEmbeddingPolicy(), tx, likelihood, device_mesh(data=2, fsdp=2, tensor=2)
    )
    state, metrics = learner.update(learner.init(jax.random.key(0), params), split_batch(batch, 8))
    assert {x.shape for x in jax.tree.leaves(state.opt_state)} == {(), params["kernel"].shape}
    np.testing.assert_array_equal(state.params["embedding"], params["embedding"])

    def objective(kernel: Array) -> Array:
        logp, entropy = token_logp(POLICY, {**params, "kernel": kernel}, batch)
        return jnp.sum(batch.weight * (-logp - 0.1 * entropy))

    gradient = jax.grad(objective)(params["kernel"])
    with jax.numpy_dtype_promotion("standard"):
        updates, _ = tx.update(gradient, tx.init(params["kernel"]))
    assert_close(state.params["kernel"], params["kernel"] + updates)
    assert float(metrics["gradient_norm"]) == pytest.approx(
        float(jnp.linalg.norm(gradient)), abs=1e-5
    )
    (buffer,) = jax.tree.leaves(learner.lower(split_batch(batch, 8)[0])[0].out_info[0])
    assert buffer.shape == params["kernel"].shape
    checkpointer = PhaseCheckpointer(tmp_path)
    checkpointer.save(1, state, {})
    restored, _ = checkpointer.restore(learner.init(jax.random.key(1), params))
    checkpointer.close()
    assert jax.tree.structure(restored) == jax.tree.structure(state)
    assert_close((restored.params, restored.opt_state), (state.params, state.opt_state), 0)


class AuxiliaryLossPolicy(MeanEmbeddingPolicy):
    """A policy with an auxiliary loss: the mean of its squared hidden states."""

    def apply(
        self,
        params: Any,
        inputs: PolicyInputs,
        cache: KVCache | None = None,
        key: Array | None = None,
    ) -> PolicyOutput:
        hidden = super().apply(params, inputs).hidden
        return PolicyOutput(hidden=hidden, aux=0.1 * jnp.mean(hidden**2))


@pytest.mark.slow
@pytest.mark.parametrize("size", [4, 16])
def test_auxiliary_losses_are_added_as_their_mean(params: Any, size: int):
    learner = Learner(AuxiliaryLossPolicy(), optax.sgd(1.0), likelihood, device_mesh(data=4))
    parts = split_batch(batch_of(0)[1], size)
    state, metrics = learner.update(learner.init(jax.random.key(0), params), parts)

    def objective(params: Any) -> tuple[Array, Array]:
        aux = jnp.mean(
            jnp.stack(
                [
                    0.1 * jnp.mean(POLICY.apply(params, part.batch.inputs).hidden ** 2)
                    for part in parts
                ]
            )
        )
        scores = [(part.batch.weight, *token_logp(POLICY, params, part.batch)) for part in parts]
        return jnp.sum(
            jnp.stack(
                [jnp.sum(weight * (-logp - 0.1 * entropy)) for weight, logp, entropy in scores]
            )
        ) + aux, aux

    gradient, aux = jax.grad(objective, has_aux=True)(params)
    assert_close(state.params, jax.tree.map(jnp.subtract, params, gradient))
    assert fetch_metrics(metrics)["aux"] == pytest.approx(float(aux), abs=1e-6)


def test_the_callers_parameters_survive_donation(params: Any):
    before = jax.device_get(params)
    learner = learner_on()
    state = learner.init(jax.random.key(0), params)
    after, _ = learner.update(state, split_batch(batch_of(0)[1], 8))
    assert_close(params, before, 0)
    assert all(x.is_deleted() for x in jax.tree.leaves(state.params)) and not any(
        x.is_deleted() for x in jax.tree.leaves(after.params)
    )


def test_scores_are_the_log_probs_of_sequences_alone(params: Any):
    layout, batch = batch_of(0)
    logp, entropy = jax.device_get(learner_on(data=4, tensor=2).score(params, batch))
    for row, b, start in zip(layout.sequences, layout.bin_index, layout.bin_offset):
        np.testing.assert_allclose(
            logp[b, start + 1 : start + len(row)], unpacked_logp(POLICY, params, row)[1:], atol=1e-5
        )
    assert entropy.min() >= -1e-6 and entropy.max() <= np.log(POLICY.vocab_size) + 1e-5


def test_metrics_are_means_over_action_tokens(params: Any):
    layout, batch = batch_of(0)
    learner = learner_on()
    _, metrics = learner.update(learner.init(jax.random.key(0), params), split_batch(batch, 8))
    logp = [unpacked_logp(POLICY, params, row)[row.action_mask] for row in layout.sequences]
    host = fetch_metrics(metrics)
    assert host["tokens"] == sum(map(len, logp)) and host["logp"] == pytest.approx(
        float(np.concatenate(logp).mean()), abs=1e-5
    )
    means = {"loss", "logp", "entropy", "gradient_norm", "nonfinite"}
    assert set(host) == {*means, "tokens", "learning_rate"}
    assert host["learning_rate"] == pytest.approx(ADAM.learning_rate)  # and no mean over tokens


def test_fetched_metrics_divide_sums_by_tokens():
    device = {
        name: jnp.float32(x)
        for name, x in {"loss": 3.0, "gradient_norm": 2.0, "tokens": 4.0, "entropy": 6.0}.items()
    }
    assert fetch_metrics(device) == {
        "loss": 3.0,
        "gradient_norm": 2.0,
        "tokens": 4.0,
        "entropy": 1.5,
    }
    assert fetch_metrics({**device, "tokens": jnp.float32(0)})["entropy"] == 6.0


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        (MeshConfig(), (8, 1, 1, 1)),
        (MeshConfig(fsdp=8), (1, 8, 1, 1)),
        (MeshConfig(data=2, fsdp=-1, tensor=2), (2, 2, 1, 2)),
        (MeshConfig(data=4, tensor=2), (4, 1, 1, 2)),
        (MeshConfig(data=-1, expert=4), (2, 1, 4, 1)),
        (MeshConfig(data=1, fsdp=1, tensor=-1), (1, 1, 1, 8)),
    ],
)
def test_a_mesh_uses_all_devices(config: MeshConfig, sizes: tuple[int, ...]):
    mesh = make_mesh(config)
    assert (
        mesh.axis_names == ("data", "fsdp", "expert", "tensor")
        and mesh.devices.shape == sizes
        and mesh.devices.size == 8
    )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (MeshConfig(data=3), "does not fit 8 devices"),
        (MeshConfig(fsdp=16), "does not fit 8 devices"),
        (MeshConfig(data=-1, fsdp=-1), "does not fit 8 devices"),
        (MeshConfig(tensor=0), "does not fit 8 devices"),
        (MeshConfig(data=-2), "does not fit 8 devices"),
        (MeshConfig(data=2, fsdp=2), "uses 4 of 8 devices: set one axis to -1"),
    ],
)
def test_a_mesh_that_does_not_fit_is_refused(config: MeshConfig, message: str):
    with pytest.raises(UserError, match=message):
        make_mesh(config)


def rate(config: AdamWConfig, step: int, steps: int) -> float:
    """The learning rate of a step: Adam's update on a constant gradient of 1 is minus the rate."""
    tx = config.build(steps)
    param = jnp.zeros(())
    state, update = tx.init(param), param
    with jax.numpy_dtype_promotion("standard"):
        for _ in range(step + 1):
            update, state = tx.update(jnp.ones(()), state, param)
    return -float(jax.tree.leaves(update)[0])


@pytest.mark.parametrize(
    ("config", "rates"),
    [
        (AdamWConfig(0.1), {0: 0.1, 9: 0.1}),
        (AdamWConfig(0.1, warmup_steps=4), {0: 0.0, 1: 0.025, 3: 0.075, 4: 0.1, 9: 0.1}),
        # Half-way between the end of the warmup and step 10 the cosine is at (1 + 0.2) / 2.
        (
            AdamWConfig(0.1, warmup_steps=4, final_fraction=0.2),
            {4: 0.1, 7: 0.06, 10: 0.02, 12: 0.02},
        ),
        (AdamWConfig(0.1, final_fraction=0.0), {0: 0.1, 5: 0.05, 10: 0.0}),
    ],
)
def test_the_learning_rate_warms_up_and_decays(config: AdamWConfig, rates: dict[int, float]):
    assert {step: rate(config, step, 10) for step in rates} == pytest.approx(rates, abs=1e-6)


@pytest.mark.parametrize(
    "fields",
    [
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"learning_rate": float("inf")},
        {"clip_norm": 0.0},
        {"clip_norm": float("nan")},
        {"weight_decay": float("nan")},
        {"eps": float("inf")},
        {"final_fraction": 1.5},
        {"warmup_steps": -1},
    ],
)
def test_invalid_optimizer_settings_are_refused(fields: dict[str, Any]):
    with pytest.raises(UserError, match=r"(AdamW|a learning rate) needs"):
        AdamWConfig(**fields).build(10)


@pytest.mark.slow
def test_bfloat16_parameters_are_updated_on_a_mesh():
    policy = dataclasses.replace(
        DECODER.config, param_dtype="bfloat16", compute_dtype="bfloat16"
    ).build(DECODER.vocab_size)
    params, results = policy.init(jax.random.key(0)), []
    for sizes in ({}, {"data": 2, "fsdp": 2, "tensor": 2}):
        learner = Learner(policy, optax.sgd(0.1), likelihood, device_mesh(**sizes))
        state, metrics = learner.update(
            learner.init(jax.random.key(0), params), split_batch(batch_of(0)[1], 8)
        )
        assert {x.dtype for x in jax.tree.leaves(state.params)} == {jnp.dtype("bfloat16")}
        results.append((float(metrics["loss"]), float(metrics["gradient_norm"])))
    assert results[0] == pytest.approx(results[1], rel=0.02)
