"""The data flywheel: which pool a trajectory goes to, when a cycle runs and what it trains, neutral
settings, and exact resume.
"""

import dataclasses
import json
from typing import Any

import jax
import numpy as np
import pytest
from support.fixtures import MeanEmbeddingPolicy, device_mesh, make_call, trees_equal

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.algorithms.methods.ui_tars2 import (
    Flywheel,
    FlywheelConfig,
    as_pretraining_text,
    maximum_likelihood,
)
from agentrl_jax.configs.chain_vapo import get_config
from agentrl_jax.errors import UserError
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.learner.sequences import sequences_of
from agentrl_jax.messages import assistant, user
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.storage.config_json import from_json, to_json
from agentrl_jax.trajectories import Group, Trajectory, Turn
from agentrl_jax.workers.pool import InlinePool

POLICY = MeanEmbeddingPolicy()
PARAMS = POLICY.init(jax.random.key(1))
SHAPE: dict[str, Any] = {
    "optimizer": AdamWConfig(1e-2, warmup_steps=0),
    "bin_length": 16,
    "microbatch": 8,
}


def episode(token: int, success: bool | None, turns: int = 2) -> Trajectory:
    """A trajectory whose action is the same token in each turn; each prompt extends the
    last call.
    """
    context, out = [1, 2], []
    for _ in range(turns):
        out.append(
            Turn(
                (make_call(context, [token], logp=[-1.0]),),
                assistant("a"),
                (user("o"),),
                float(bool(success)),
            )
        )
        context = [*context, token, 3]
    return Trajectory((user("go"),), tuple(out), f"task {token}", success=success)


def groups(step: int) -> list[Group]:
    """A success, a failure and a truncated episode in each."""
    return [
        Group(
            f"{step}-{i}",
            (
                episode(4 + i, True),
                episode(5 + i, False),
                episode(6 + i, None).replace(stop_reason="tokens"),
            ),
        )
        for i in range(2)
    ]


def config(**fields: Any) -> FlywheelConfig:
    flywheel_config = {
        "every": 2,
        "num_updates": (2, 3),
        "continual_pretraining": maximum_likelihood(**SHAPE),
        "fine_tuning": maximum_likelihood(**SHAPE),
        "batch": 4,
    }
    return FlywheelConfig(grpo(**SHAPE), **{**flywheel_config, **fields})


def built(flywheel_config: FlywheelConfig) -> tuple[Flywheel, Any]:
    algorithm = flywheel_config.build(POLICY, device_mesh(), steps=8)
    return algorithm, algorithm.init(jax.random.key(7), PARAMS)


@pytest.fixture(scope="module")
def runtime():
    with Runtime({}, {}, InlinePool()) as runtime:
        yield runtime


def test_a_pretraining_text_is_the_sequence_with_every_token_but_the_first_as_an_action():
    trajectory = episode(9, False, turns=3)
    (row,), (text,) = sequences_of(trajectory), sequences_of(as_pretraining_text(trajectory))
    assert text.tokens.tolist() == row.tokens.tolist() and text.action_mask.tolist() == [False] + [
        True
    ] * (len(row) - 1)
    assert row.action_mask.sum() == 3 and as_pretraining_text(trajectory).success is False
    split = trajectory.replace(
        turns=(trajectory.turns[0], Turn((make_call([7, 7], [8]),), assistant("a"), (), 0.0))
    )  # a rewritten history
    assert [row.tokens.tolist() for row in sequences_of(as_pretraining_text(split))] == [
        row.tokens.tolist() for row in sequences_of(split)
    ]


@pytest.mark.slow
def test_successes_and_failures_are_stored_in_two_pools_and_cycles_run_on_schedule(
    runtime: Runtime,
):
    algorithm, state = built(config())
    turned = []
    for step in range(4):
        before = jax.tree.map(np.asarray, state.params)
        state, metrics = algorithm.step(state, groups(step), runtime)
        assert metrics["flywheel/passed"] == 2 * (step + 1)
        assert metrics["flywheel/failed"] == 4 * (step + 1)
        turned.append("flywheel/read_loss" in metrics and "flywheel/imitate_loss" in metrics)
        assert not trees_equal(before, state.params)
    assert turned == [False, True, False, True] and metrics["flywheel/turns"] == 2


def test_an_environment_that_does_not_report_success_is_refused(runtime: Runtime):
    algorithm, state = built(config())
    with pytest.raises(UserError, match="does not say whether it was solved"):
        algorithm.step(state, [Group("silent", (episode(4, None), episode(5, True)))], runtime)


def loss_of(algorithm: Flywheel, phase: int, params: Any, runtime: Runtime) -> float:
    return algorithm._run_phase(phase, jax.tree.map(np.copy, params), runtime)[1]


@pytest.mark.slow
def test_fine_tuning_raises_the_likelihood_of_successes_and_pretraining_of_failures(
    runtime: Runtime,
):
    for phase, updates in enumerate([(30, 0), (0, 30)]):
        algorithm, state = built(config(num_updates=updates, every=1))
        once, _ = built(config(num_updates=(1, 1), every=1))
        for buffer, other in zip(algorithm._buffers, once._buffers):
            buffer.add(groups(0))
            other.add(groups(0))
        before = loss_of(once, phase, state.params, runtime)
        after, _ = algorithm._run_phase(phase, state.params, runtime)
        assert loss_of(once, phase, after, runtime) < before - 0.05


@pytest.mark.parametrize("neutral", [{"every": 100}, {"num_updates": (0, 0)}])
def test_a_flywheel_without_cycles_is_its_base_method(neutral: dict, runtime: Runtime):
    (algorithm, state), plain = (
        built(config(**neutral)),
        grpo(**SHAPE).build(POLICY, device_mesh(), steps=8),
    )
    other = plain.init(jax.random.key(7), PARAMS)
    for step in range(3):
        state, _ = algorithm.step(state, groups(step), runtime)
        other, _ = plain.step(other, groups(step), runtime)
        assert trees_equal((state.params, state.opt_state), (other.params, other.opt_state))


@pytest.mark.slow
def test_a_resumed_flywheel_continues_exactly(runtime: Runtime):
    algorithm, state = built(config())
    for step in range(3):
        state, _ = algorithm.step(state, groups(step), runtime)
    saved = json.loads(json.dumps(algorithm.host_state()))
    again, fresh = built(config())
    again.load_host_state(saved)
    resumed = jax.tree.map(lambda x: x.copy(), state)
    state, metrics = algorithm.step(state, groups(3), runtime)
    resumed, resumed_metrics = again.step(resumed, groups(3), runtime)
    assert trees_equal(state.params, resumed.params) and not trees_equal(state.params, fresh.params)
    assert metrics["flywheel/imitate_loss"] == resumed_metrics["flywheel/imitate_loss"]


def test_invalid_settings_are_refused_and_the_config_is_plain_data():
    for wrong in ({"every": 0}, {"batch": 0}, {"num_updates": (-1, 2)}):
        with pytest.raises(UserError, match="flywheel"):
            built(config(**wrong))
    flywheel_config = get_config("flywheel")
    assert from_json(to_json(flywheel_config)) == flywheel_config
    assert dataclasses.replace(config(), every=3).every == 3
