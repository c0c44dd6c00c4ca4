"""Learning rates, optimizers and parameter groups give the numbers of their formulas."""

import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.learner.learning_rate import (
    Decay,
    LearningRate,
    StableThenLinear,
    constant,
    cosine,
    linear,
)
from agentrl_jax.learner.optimizer import AdamWConfig, OptaxConfig, OptimizerConfig
from agentrl_jax.learner.parameter_groups import ParameterGroup, ParameterGroups
from agentrl_jax.learner.scheduled_transformation import learning_rates
from agentrl_jax.storage.config_json import from_json, to_json


@pytest.mark.parametrize(
    ("decay", "expected"),  # peak 2, warmup of 2 of 6 steps, then p = 0, 1/4, 1/2, 3/4, 1, 1
    [
        (cosine, [0, 1, 2, 1.7657, 1.2, 0.6343, 0.4, 0.4]),
        (linear, [0, 1, 2, 1.6, 1.2, 0.8, 0.4, 0.4]),
        (constant, [0, 1, 2, 2, 2, 2, 2, 2]),
        (StableThenLinear(0.5), [0, 1, 2, 2, 2, 1.2, 0.4, 0.4]),
    ],
)
def test_a_learning_rate_warms_up_and_decays_to_its_final_fraction(
    decay: Decay, expected: list[float]
):
    schedule = LearningRate(2.0, 2, final_fraction=0.2, decay=decay).build(6)
    with jax.numpy_dtype_promotion("standard"):
        rates = [np.asarray(schedule(jnp.int32(step))) for step in range(8)]
    np.testing.assert_allclose(rates, expected, atol=1e-4)


def test_the_default_decay_is_the_cosine_of_optax():
    reference = optax.cosine_decay_schedule(3e-4, 90, 0.1)
    schedule = LearningRate(3e-4, 10, 0.1).build(100)
    with jax.numpy_dtype_promotion("standard"):
        ours = [np.asarray(schedule(jnp.int32(10 + step))) for step in range(95)]
        theirs = [np.asarray(reference(jnp.int32(step))) for step in range(95)]
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "rate",
    [
        LearningRate(0.0),
        LearningRate(1.0, warmup_steps=-1),
        LearningRate(1.0, final_fraction=1.5),
    ],
)
def test_a_learning_rate_that_cannot_be_is_refused(rate: LearningRate):
    with pytest.raises(UserError, match="a learning rate needs"):
        rate.build(10)


PARAMS = {
    "embedding": jnp.ones((3, 2)),
    "layers": {"norm": jnp.full((2,), 2.0), "kernel": jnp.full((2, 2), 3.0)},
}


def updated(config: OptimizerConfig, params: Any = PARAMS, steps: int = 1) -> Any:
    """The parameters after updates with a gradient of ones."""
    tx = config.build(10)
    with jax.numpy_dtype_promotion("standard"):
        state = tx.init(params)
        for _ in range(steps):
            gradient = jax.tree.map(jnp.ones_like, params)
            updates, state = tx.update(gradient, state, params)
            params = optax.apply_updates(params, updates)
    return params


def constant_sgd(rate: float, **fields: Any) -> OptaxConfig:
    return OptaxConfig(optax.sgd, LearningRate(rate), **fields)


def assert_values(params: Any, embedding: float, norm: float, kernel: float) -> None:
    expected = {"embedding": embedding, "layers": {"norm": norm, "kernel": kernel}}
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), params, expected)


def test_any_optax_transformation_is_an_optimizer():
    assert_values(updated(constant_sgd(0.5)), 0.5, 1.5, 2.5)
    # momentum .5: updates of .1 and .15; a gradient of twelve ones is clipped to a norm of 6
    momentum = constant_sgd(0.1, options={"momentum": 0.5})
    assert_values(updated(momentum, steps=2), 0.75, 1.75, 2.75)
    clipped = constant_sgd(1.0, clip_norm=np.sqrt(12) / 4)
    assert_values(updated(clipped), 0.75, 1.75, 2.75)
    assert_values(
        updated(OptaxConfig(optax.lion, LearningRate(0.1), {"weight_decay": 0.0})), 0.9, 1.9, 2.9
    )


def test_a_group_has_its_own_optimizer_or_none():
    groups = ParameterGroups(
        {
            "embedding": ParameterGroup("^embedding$", constant_sgd(0.1)),
            "norms": ParameterGroup(is_norm, None),
            "others": ParameterGroup(".*", constant_sgd(1.0)),
        }
    )
    assert_values(updated(groups), 0.9, 2.0, 2.0)
    moments = ParameterGroups(
        {"norms": ParameterGroup("norm", AdamWConfig()), "others": ParameterGroup("", None)}
    )
    state = moments.build(10).init(PARAMS)
    shapes = sorted(x.shape for x in jax.tree.leaves(state))
    assert shapes == [(), (), (2,), (2,)]  # counters and two moments of the norm alone


def is_norm(path: str) -> bool:
    return path.endswith("/norm")


def test_the_first_group_that_matches_has_the_parameter():
    groups = {
        "layers": ParameterGroup("layers/", constant_sgd(1.0)),
        "others": ParameterGroup("", None),
    }
    assert_values(updated(ParameterGroups(groups)), 1.0, 1.0, 2.0)
    with pytest.raises(UserError, match="the parameter group 'layers' has no parameter"):
        updated(ParameterGroups(dict(reversed(groups.items()))))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (
            {"norms": ParameterGroup("norm", None)},
            "the parameter embedding is in none of the groups norms: add a group",
        ),
        (
            {"a": ParameterGroup("", None), "b": ParameterGroup("bias", None)},
            "'b' has no parameter: .* among embedding, layers/kernel, layers/norm",
        ),
        ({"a": ParameterGroup("(", None)}, r"the pattern '\(' of the parameter group 'a' is no"),
    ],
)
def test_a_parameter_without_a_group_and_a_group_without_one_are_errors(
    groups: dict[str, ParameterGroup], message: str
):
    with pytest.raises(UserError, match=message):
        updated(ParameterGroups(groups))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: constant_sgd(1.0, options={"momentun": 0.9}), "does not take .*momentun"),
        (lambda: constant_sgd(1.0, clip_norm=-1.0), "clip_norm must be at least 0"),
        (lambda: AdamWConfig(clip_norm=0.0), "clip_norm > 0"),
    ],
)
def test_an_optimizer_that_cannot_be_built_is_refused(
    make: Callable[[], OptimizerConfig], message: str
):
    with pytest.raises(UserError, match=message):
        make().build(10)


def test_optimizers_survive_json():
    config = ParameterGroups(
        {
            "matrices": ParameterGroup(
                "kernel", OptaxConfig(optax.contrib.muon, LearningRate(0.1, decay=linear))
            ),
            "rest": ParameterGroup("", AdamWConfig(decay=StableThenLinear(0.2))),
        }
    )
    after = from_json(json.loads(json.dumps(to_json(config))))
    assert after == config and after.groups["matrices"].optimizer.make is optax.contrib.muon


def test_a_learning_rate_is_that_of_the_next_update_also_by_parameter_group():
    params = {"a": jnp.ones(3), "b": jnp.ones(2)}
    half = LearningRate(0.5, warmup_steps=2)
    groups = ParameterGroups(
        {
            "first": ParameterGroup("a", OptaxConfig(optax.sgd, LearningRate(4.0, decay=constant))),
            "second": ParameterGroup("b", OptaxConfig(optax.sgd, half, clip_norm=1.0)),
        }
    )
    adamw = AdamWConfig(2.0, warmup_steps=4)
    rates = []
    for config in (adamw, groups):
        tx = config.build(10)
        state = tx.init(params)
        with jax.numpy_dtype_promotion("standard"):
            rates.append(learning_rates(tx, state))
            for _ in range(2):
                _, state = tx.update(params, state, params)
        rates.append(learning_rates(tx, state))
    assert rates == [
        {"learning_rate": 0.0},
        {"learning_rate": 1.0},
        {"learning_rate/first": 4.0, "learning_rate/second": 0.0},
        {"learning_rate/first": 4.0, "learning_rate/second": 0.5},
    ]
    assert learning_rates(optax.sgd(1.0), optax.sgd(1.0).init(params)) == {}
