"""The state of any optimizer is split as the parameters are, and gives the numbers of one
device.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec
from support.fixtures import device_mesh, record_compilations, tiny_policy
from support.learner_updates import assert_close, batch_of, split_batch

from agentrl_jax.distributed.sharding import replicated_sharding
from agentrl_jax.errors import UserError
from agentrl_jax.learner.checkpoint import PhaseCheckpointer
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.learning_rate import LearningRate
from agentrl_jax.learner.optimizer import AdamWConfig, OptaxConfig, OptimizerConfig
from agentrl_jax.learner.optimizer_shardings import optimizer_shardings
from agentrl_jax.learner.parameter_groups import ParameterGroup, ParameterGroups
from agentrl_jax.learner.train_state import TrainState

POLICY = tiny_policy(layers=2)


def schedule_free_sgd(learning_rate: optax.Schedule) -> optax.GradientTransformation:
    """Its state holds a copy of the weights."""
    return optax.contrib.schedule_free(optax.sgd(learning_rate), learning_rate)


RATE = LearningRate(0.01, warmup_steps=1)
LION = OptaxConfig(optax.lion, RATE)
OPTIMIZERS: dict[str, OptimizerConfig] = {
    "adamw": AdamWConfig(0.01, eps=1e-3),
    "momentum": OptaxConfig(optax.sgd, LearningRate(1.0), {"momentum": 0.9}, clip_norm=0.5),
    "adafactor": OptaxConfig(optax.adafactor, RATE, {"min_dim_size_to_factor": 4}),
    "muon": OptaxConfig(optax.contrib.muon, RATE),
    "schedule free": OptaxConfig(schedule_free_sgd, LearningRate(1.0)),
    "groups": ParameterGroups(
        {
            "norms": ParameterGroup("norm", None),
            "attention": ParameterGroup("attention", OptaxConfig(optax.sgd, LearningRate(1.0))),
            "others": ParameterGroup("", AdamWConfig(0.01, eps=1e-3)),
        }
    ),
}


def test_a_moment_of_a_single_array_is_split_as_the_array_is():
    mesh = device_mesh(data=2)
    split, replicated = NamedSharding(mesh, PartitionSpec("data")), replicated_sharding(mesh)
    params = jnp.ones((4, 2))
    state = {"count": jnp.zeros(()), "mu": jnp.ones((4, 2)), "row": jnp.ones(4)}
    assert optimizer_shardings(state, params, split, replicated) == {
        "count": replicated,
        "mu": split,
        "row": replicated,
    }
    with pytest.raises(ValueError, match="zip"):
        optimizer_shardings(state, {"a": params, "b": params}, [split], replicated)


def likelihood(logp: Array, entropy: Array, batch: Any) -> tuple[Array, dict[str, Array]]:
    return -logp - 0.1 * entropy, {}


def trained(config: OptimizerConfig, **mesh: int) -> TrainState:
    """The state after three updates, of which the last two compile nothing."""
    learner = Learner(POLICY, config.build(10), likelihood, device_mesh(**mesh))
    state = learner.init(jax.random.key(0), POLICY.init(jax.random.key(0)))
    state, _ = learner.update(state, split_batch(batch_of(0)[1], 8))
    with record_compilations() as compiled:
        for seed in (1, 2):
            state, _ = learner.update(state, split_batch(batch_of(seed)[1], 8))
    assert compiled == []
    return state


def test_a_moment_of_parameters_that_are_a_single_array_is_split_as_they_are():
    mesh = device_mesh(data=2)
    split = NamedSharding(mesh, PartitionSpec("data"))
    params = jnp.zeros((4, 3))
    state = {"mu": params, "row": jnp.zeros(4), "count": jnp.zeros(())}
    shardings = optimizer_shardings(state, params, split, replicated_sharding(mesh))
    assert shardings == {
        "mu": split,
        "row": replicated_sharding(mesh),
        "count": replicated_sharding(mesh),
    }


def test_of_parameters_with_equal_names_the_longest_path_decides():
    mesh = device_mesh(data=2)
    split, replicated = NamedSharding(mesh, PartitionSpec("data")), replicated_sharding(mesh)
    params = {"kernel": jnp.zeros((4, 3)), "head": {"kernel": jnp.zeros((4, 3))}}
    shardings = optimizer_shardings(
        {"mu": params}, params, {"kernel": replicated, "head": {"kernel": split}}, replicated
    )
    assert shardings == {"mu": {"kernel": replicated, "head": {"kernel": split}}}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_mesh_gives_the_result_of_one_device_with_any_optimizer(name: str):
    config = OPTIMIZERS[name]
    before = POLICY.init(jax.random.key(0))
    expected, state = trained(config), trained(config, data=2, fsdp=2, tensor=2)
    assert_close(state.params, expected.params, 2e-5)
    moved = [not np.allclose(x, y) for x, y in zip(*map(jax.tree.leaves, (before, state.params)))]
    assert any(moved) and (name == "groups" or all(moved))
    weights = {
        x.shape: x.sharding for x in jax.tree.leaves(state.params) if not x.is_fully_replicated
    }
    copies = [x for x in jax.tree.leaves(state.opt_state) if x.shape in weights]
    assert copies or name == "adafactor"
    for x in copies:
        assert x.sharding.is_equivalent_to(weights[x.shape], x.ndim)


@pytest.mark.slow
def test_a_state_of_any_optimizer_is_saved_and_restored_exactly(tmp_path: Path):
    learner = Learner(
        POLICY, OPTIMIZERS["groups"].build(10), likelihood, device_mesh(data=2, fsdp=2, tensor=2)
    )
    params = POLICY.init(jax.random.key(0))
    state, _ = learner.update(
        learner.init(jax.random.key(0), params), split_batch(batch_of(0)[1], 8)
    )
    checkpointer = PhaseCheckpointer(tmp_path)
    checkpointer.save(1, state, {})
    restored, _ = checkpointer.restore(learner.init(jax.random.key(1), params))
    checkpointer.close()
    assert jax.tree.structure(restored) == jax.tree.structure(state)
    assert_close((restored.params, restored.opt_state), (state.params, state.opt_state), 0)


def test_arrays_of_a_state_are_matched_by_path_and_shape():
    """Two parameters of one shape are split differently; factored moments are replicated."""
    mesh = device_mesh(fsdp=4, tensor=2)
    params = {"a": {"w": jnp.zeros((8, 8))}, "w": jnp.zeros((8, 8)), "b": jnp.zeros((8,))}
    split = {
        "a": {"w": NamedSharding(mesh, PartitionSpec("fsdp"))},
        "w": NamedSharding(mesh, PartitionSpec(None, "tensor")),
        "b": NamedSharding(mesh, PartitionSpec("tensor")),
    }
    replicated = replicated_sharding(mesh)

    def shardings(tx: optax.GradientTransformation) -> Any:
        return optimizer_shardings(jax.eval_shape(tx.init, params), params, split, replicated)

    adam = shardings(optax.adam(0.1))[0]
    assert adam.mu == adam.nu == split and adam.count == replicated
    factored = shardings(optax.adafactor(0.1, min_dim_size_to_factor=4))[0]
    assert factored.v_row["w"] == factored.v_col["a"]["w"] == factored.v["w"] == replicated
    assert factored.v["b"] == split["b"]
    masked = shardings(
        optax.multi_transform(
            {"x": optax.trace(0.9), "y": optax.set_to_zero()},
            {"a": {"w": "x"}, "w": "y", "b": "x"},
        )
    )
    assert jax.tree.leaves(masked) == [split["a"]["w"], split["b"]]


@pytest.mark.slow
def test_an_optimizer_that_needs_more_than_a_gradient_is_refused():
    tx = optax.polyak_sgd(1.0)
    learner = Learner(POLICY, tx, likelihood, device_mesh())
    state = learner.init(jax.random.key(0), POLICY.init(jax.random.key(0)))
    with pytest.raises(UserError, match=r"the optimizer cannot be updated .*'value'"):
        learner.update(state, split_batch(batch_of(0)[1], 8))
