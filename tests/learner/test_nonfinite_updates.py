"""An update with a gradient or loss that is not finite changes nothing but the step."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from support.fixtures import MeanEmbeddingPolicy, device_mesh
from support.learner_updates import batch_of, split_batch

from agentrl_jax.learner import optimizer_step
from agentrl_jax.learner.checkpoint import is_finite
from agentrl_jax.learner.learner import Learner, fetch_metrics
from agentrl_jax.learner.optimizer import AdamWConfig

POLICY = MeanEmbeddingPolicy()


def nan_where_weight_is_nan(logp: Array, entropy: Array, batch: Any) -> tuple[Array, dict]:
    return -logp, {}


def infinite_loss_with_a_finite_gradient(logp: Array, entropy: Array, batch: Any):
    return jnp.where(batch.batch.weight > 1e6, jnp.inf, -logp), {}


def finite_loss_with_a_nan_gradient(logp: Array, entropy: Array, batch: Any):
    """The square root of 0 has the slope inf, times 0."""
    return -logp + jnp.sqrt(jnp.where(batch.batch.weight > 1e6, 0.0, 1.0) * logp**2), {}


@pytest.mark.parametrize(
    ("loss", "poison"),
    [
        (nan_where_weight_is_nan, np.nan),
        (infinite_loss_with_a_finite_gradient, 1e7),
        (finite_loss_with_a_nan_gradient, 1e7),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_the_next_update_is_as_if_the_skipped_one_had_not_been(
    loss: Callable, poison: float, monkeypatch: pytest.MonkeyPatch
):
    if loss is finite_loss_with_a_nan_gradient:  # the other program
        monkeypatch.setattr(optimizer_step, "platform", lambda: "cuda")
    mesh = device_mesh(2, 2, tensor=2) if np.isnan(poison) else device_mesh()
    learner = Learner(POLICY, AdamWConfig(0.03).build(10), loss, mesh)
    params = POLICY.init(jax.random.key(0))
    first, second = (split_batch(batch_of(seed)[1], 8) for seed in (0, 1))
    weight = np.array(first[0].batch.weight)
    weight[np.nonzero(np.asarray(first[0].batch.action_mask))[0][0]] = poison
    poisoned = [
        dataclasses.replace(first[0], batch=dataclasses.replace(first[0].batch, weight=weight)),
        *first[1:],
    ]
    with_skip, without = (learner.init(jax.random.key(0), params) for _ in range(2))
    for microbatches in (first, poisoned, second):
        with_skip, metrics = learner.update(with_skip, microbatches)
        assert fetch_metrics(metrics)["nonfinite"] == float(microbatches is poisoned)
    for microbatches in (first, second):
        without, _ = learner.update(without, microbatches)
    assert int(with_skip.step) == 3 and is_finite(with_skip)
    for a, b in zip(*map(jax.tree.leaves, map(weights_and_moments, (with_skip, without)))):
        np.testing.assert_array_equal(a, b)


def weights_and_moments(state: Any) -> Any:
    return jax.device_get((state.params, state.opt_state))


@pytest.mark.parametrize(("part", "value"), [("params", np.inf), ("opt_state", np.nan)])
def test_a_state_that_is_not_finite_is_noticed(part: str, value: float):
    learner = Learner(POLICY, AdamWConfig().build(10), nan_where_weight_is_nan, device_mesh(2))
    state = learner.init(jax.random.key(0), POLICY.init(jax.random.key(0)))
    assert is_finite(state)
    leaves, structure = jax.tree.flatten(getattr(state, part))
    leaves = [x.at[(0,) * x.ndim].set(value) if x.ndim else x for x in leaves]
    assert not is_finite(
        dataclasses.replace(state, **{part: jax.tree.unflatten(structure, leaves)})
    )
