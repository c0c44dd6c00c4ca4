"""The data flywheel: what goes to which pool, when the wheel turns and what it trains, neutral knobs, and exact resume."""

import dataclasses
import json
from typing import Any

import jax
import numpy as np
import pytest
from hand_made import Averaging, make_call, mesh_of, same_leaves

from agentrl_jax.algorithms.grpo import grpo
from agentrl_jax.algorithms.methods.flywheel import Flywheel, FlywheelConfig, as_text, likelihood
from agentrl_jax.configfile import from_json, to_json
from agentrl_jax.configs.chain_vapo import get_config
from agentrl_jax.errors import UserError
from agentrl_jax.messages import assistant, user
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.rows import rows_of
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Group, Trajectory, Turn
from agentrl_jax.workers import InProcess

POLICY = Averaging()
PARAMS = POLICY.init(jax.random.key(1))
SHAPE: dict[str, Any] = {"optimizer": AdamWConfig(1e-2, warmup_steps=0), "bin_length": 16, "microbatch": 8}


def episode(token: int, success: bool | None, turns: int = 2) -> Trajectory:
    """Turn by turn it writes its token after what was said so far."""
    said, out = [1, 2], []
    for _ in range(turns):
        out.append(Turn((make_call(said, [token], logp=[-1.0]),), assistant("a"), (user("o"),), float(bool(success))))
        said = [*said, token, 3]
    return Trajectory((user("go"),), tuple(out), f"task {token}", success=success)


def groups(step: int) -> list[Group]:
    return [Group(f"{step}-{i}", (episode(4 + i, True), episode(5 + i, False), episode(6 + i, None))) for i in range(2)]


def config(**fields: Any) -> FlywheelConfig:
    made = {"every": 2, "updates": (2, 3), "read": likelihood(**SHAPE), "imitate": likelihood(**SHAPE), "draw": 4}
    return FlywheelConfig(grpo(**SHAPE), **{**made, **fields})


def built(made: FlywheelConfig) -> tuple[Flywheel, Any]:
    algorithm = made.build(POLICY, mesh_of(), steps=8)
    return algorithm, algorithm.init(jax.random.key(7), PARAMS)


@pytest.fixture(scope="module")
def runtime():
    with Runtime({}, {}, InProcess()) as runtime:
        yield runtime


def test_a_text_is_the_row_with_every_token_but_the_first_written():
    whole = episode(9, False, turns=3)
    (row,), (text,) = rows_of(whole), rows_of(as_text(whole))
    assert text.tokens.tolist() == row.tokens.tolist() and text.action_mask.tolist() == [False] + [True] * (len(row) - 1)
    assert row.action_mask.sum() == 3 and as_text(whole).success is False
    split = whole.replace(turns=(whole.turns[0], Turn((make_call([7, 7], [8]),), assistant("a"), (), 0.0)))  # a history that was rewritten
    assert [row.tokens.tolist() for row in rows_of(as_text(split))] == [row.tokens.tolist() for row in rows_of(split)]


def test_what_passed_and_what_failed_is_stored_apart_and_the_wheel_turns_when_it_should(runtime: Runtime):
    algorithm, state = built(config())
    turned = []
    for step in range(4):
        before = jax.tree.map(np.asarray, state.params)
        state, metrics = algorithm.step(state, groups(step), runtime)
        assert metrics["flywheel/passed"] == metrics["flywheel/failed"] == 2 * (step + 1)  # what is not known is in neither
        turned.append("flywheel/read_loss" in metrics and "flywheel/imitate_loss" in metrics)
        assert not same_leaves(before, state.params)
    assert turned == [False, True, False, True] and metrics["flywheel/turns"] == 2


def loss_of(algorithm: Flywheel, phase: int, params: Any, runtime: Runtime) -> float:
    return algorithm._taught(phase, jax.tree.map(np.copy, params), runtime)[1]


def test_imitation_makes_likelier_what_passed_and_reading_what_failed(runtime: Runtime):
    for phase, updates in enumerate([(30, 0), (0, 30)]):
        algorithm, state = built(config(updates=updates, every=1))
        once, _ = built(config(updates=(1, 1), every=1))
        for pool, other in zip(algorithm._pools, once._pools):
            pool.add(groups(0))
            other.add(groups(0))
        before = loss_of(once, phase, state.params, runtime)
        after, _ = algorithm._taught(phase, state.params, runtime)
        assert loss_of(once, phase, after, runtime) < before - 0.05


@pytest.mark.parametrize("neutral", [{"every": 100}, {"updates": (0, 0)}])
def test_a_wheel_that_does_not_turn_is_the_method_alone(neutral: dict, runtime: Runtime):
    (algorithm, state), plain = built(config(**neutral)), grpo(**SHAPE).build(POLICY, mesh_of(), steps=8)
    other = plain.init(jax.random.key(7), PARAMS)
    for step in range(3):
        state, _ = algorithm.step(state, groups(step), runtime)
        other, _ = plain.step(other, groups(step), runtime)
        assert same_leaves((state.params, state.opt_state), (other.params, other.opt_state))


def test_a_resume_goes_on_exactly(runtime: Runtime):
    algorithm, state = built(config())
    for step in range(3):
        state, _ = algorithm.step(state, groups(step), runtime)
    saved = json.loads(json.dumps(algorithm.host_state()))
    again, fresh = built(config())
    again.load_host_state(saved)
    resumed = jax.tree.map(lambda x: x.copy(), state)
    state, metrics = algorithm.step(state, groups(3), runtime)
    resumed, others = again.step(resumed, groups(3), runtime)
    assert same_leaves(state.params, resumed.params) and not same_leaves(state.params, fresh.params)
    assert metrics["flywheel/imitate_loss"] == others["flywheel/imitate_loss"]


def test_numbers_that_cannot_be_are_refused_and_the_config_is_plain_data():
    for wrong in ({"every": 0}, {"draw": 0}, {"updates": (-1, 2)}):
        with pytest.raises(UserError, match="flywheel"):
            built(config(**wrong))
    made = get_config("flywheel")
    assert from_json(to_json(made)) == made
    assert dataclasses.replace(config(), every=3).every == 3
