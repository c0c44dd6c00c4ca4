"""What ArCHer's steps trained of trajectories, and the invariants of its critic, on one fault
each.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from support.credit_tables import (
    AGENT,
    END_TOKEN,
    MarkovPolicy,
    RoundRobinEngine,
    SGDConfig,
    TabularCritic,
    WeightlessEncoder,
    make_runtime,
)
from support.fixtures import device_mesh, make_call, make_trajectory, make_turn

from agentrl_jax.algorithms.archer import critic_trainer
from agentrl_jax.algorithms.archer.algorithm import Archer, ArcherConfig
from agentrl_jax.algorithms.archer.critic_invariants import replayed_turns
from agentrl_jax.algorithms.archer.replay_buffer import transitions_of
from agentrl_jax.algorithms.methods import hierarchical
from agentrl_jax.invariants import Invariants
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, Trajectory
from agentrl_jax.trajectory_record import TrajectoryTraining

A, B = [3, END_TOKEN], [4, END_TOKEN]
GAMMA = 0.95


def episode(letters: list[int], reward: float, end: bool = True) -> Trajectory:
    turns, ids = [], [9]
    for i, letter in enumerate(letters):
        call = make_call([*ids, 1], [letter, END_TOKEN])
        ids = call.ids.tolist()
        turns.append(make_turn([call], reward + i, terminated=end and i + 1 == len(letters)))
    trajectory = make_trajectory(*turns)
    return trajectory if end else trajectory.replace(stop_reason="turns")


def group() -> Group:
    return Group("", (episode([3, 4], 1.0), episode([4], -1.0)))


def config(**settings: Any) -> ArcherConfig:
    critic = hierarchical.utterance_critic(
        TabularCritic(),
        WeightlessEncoder(),
        state_lengths=(16,),
        utterance_lengths=(4,),
        batch=8,
        microbatch=4,
        optimizer=SGDConfig(0.1),
    )
    actor = hierarchical.reinforce_actor(optimizer=SGDConfig(0.1), bin_length=16, microbatch=4)
    settings = {"critic_steps": 1, "actor_steps": 2, "batch": 8, "warmup": 0, **settings}
    return dataclasses.replace(hierarchical.archer(critic, actor), **settings)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with make_runtime(RoundRobinEngine(A, B)) as runtime:
        runtime.invariants.enabled = True
        yield runtime


def step(settings: dict[str, Any], groups: list[Group], runtime: Runtime) -> Archer:
    algorithm = config(**settings).build(MarkovPolicy(), device_mesh(), 4)
    table = np.random.default_rng(0).normal(size=(12, 12)).astype(np.float32)
    state = algorithm.init(jax.random.key(3), {"table": table})
    algorithm.begin_phase(state, runtime)
    algorithm.step(state, groups, runtime)
    return algorithm


def test_replayed_turns_that_the_actor_trained_have_their_weights(runtime: Runtime):
    groups = [group()]
    algorithm = step({"train_on_replay": True}, groups, runtime)
    records = algorithm.training_of(groups[0].trajectories)
    weights = []
    for record in records:
        assert record is not None
        for turn in record.turns:
            assert not turn.utterances
            for call in turn.calls:
                if call is not None:
                    assert (call.weight > 0).all() and np.isfinite(call.advantage).all()
                    weights.append(call.weight[0])
    # In each of two steps 8 utterances are drawn, each with the same weight for its tokens.
    assert sum(weights) == pytest.approx(2.0)
    assert records[0] is not None and records[0].total_reward == 3.0
    assert algorithm.training_of([episode([3], 0.0)]) == [None]
    assert runtime.invariants.take_violations() == []


def test_utterances_that_the_actor_sampled_are_in_the_turn_of_their_state(runtime: Runtime):
    groups = [group()]
    records = step({}, groups, runtime).training_of(groups[0].trajectories)
    turns = [turn for record in records if record for turn in record.turns]
    assert all(call is None for turn in turns for call in turn.calls)
    utterances = [x for turn in turns for x in turn.utterances]
    assert {tuple(x.action.tolist()) for x in utterances} == {tuple(A), tuple(B)}
    assert sum(x.training.weight[0] for x in utterances) == pytest.approx(2.0)
    assert all(len(x.training.advantage) == 2 for x in utterances)
    assert runtime.invariants.take_violations() == []


def test_an_iteration_without_actor_steps_has_rewards_alone(runtime: Runtime):
    groups = [group()]
    (first, second) = step({"warmup": 9}, groups, runtime).training_of(groups[0].trajectories)
    assert isinstance(first, TrajectoryTraining) and second is not None
    assert first.total_reward == 3.0 and first.turns[0].calls == (None,)


def roll(values: np.ndarray) -> np.ndarray:
    return np.roll(np.asarray(values), 1, axis=0)


CORRUPTIONS: dict[str, Callable[[Any], Any]] = {
    "rewards of other rows": lambda x: dataclasses.replace(
        x, outcome=dataclasses.replace(x.outcome, reward=roll(x.outcome.reward) + 1)
    ),
    "returns of other rows": lambda x: dataclasses.replace(
        x, outcome=dataclasses.replace(x.outcome, return_to_go=x.outcome.return_to_go * 2)
    ),
    "a terminated turn that bootstraps": lambda x: dataclasses.replace(
        x,
        outcome=dataclasses.replace(
            x.outcome, has_next_value=np.ones_like(x.outcome.has_next_value)
        ),
    ),
    "states shifted by a token": lambda x: dataclasses.replace(
        x,
        batch=dataclasses.replace(
            x.batch,
            states=dataclasses.replace(
                x.batch.states, tokens=np.roll(x.batch.states.tokens, 1, axis=1)
            ),
        ),
    ),
    "utterances and those of the target exchanged": lambda x: dataclasses.replace(
        x,
        batch=dataclasses.replace(
            x.batch, utterances=dataclasses.replace(
                x.batch.utterances, tokens=x.batch.utterances.tokens + 1
            ),
        ),
    ),
    "a mask of a token less": lambda x: dataclasses.replace(
        x,
        batch=dataclasses.replace(
            x.batch, next_states=dataclasses.replace(
                x.batch.next_states, mask=np.roll(x.batch.next_states.mask, 1, axis=1)
            ),
        ),
    ),
    "a row without its weight": lambda x: dataclasses.replace(
        x,
        batch=dataclasses.replace(x.batch, weight=x.batch.weight * (np.arange(4) > 0)[:, None]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CORRUPTIONS.values(), ids=list(CORRUPTIONS))
def test_a_corrupted_batch_of_the_critic_is_a_violation(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any]
):
    original = critic_trainer.split_bins

    def corrupted(batch: Any, rows: int) -> list[Any]:
        pieces = original(batch, rows)
        return [*map(change, pieces)] if "outcome" in vars(batch) else pieces

    monkeypatch.setattr(critic_trainer, "split_bins", corrupted)
    step({"actor_steps": 0}, [group()], runtime)
    (violation,) = runtime.invariants.take_violations()
    assert violation.name == "critic_rows"


CHANGED: dict[str, dict[str, Any]] = {
    "reward": {"reward": 7.0},
    "end": {"terminated": False, "truncated": True},
    "return": {"return_to_go": 0.5},
    "temperature": {"temperature": 0.5},
}


@pytest.mark.parametrize("changes", CHANGED.values(), ids=list(CHANGED))
def test_replayed_turns_are_those_that_were_played(changes: dict[str, Any]):
    trajectories = [episode([3, 4], 1.0), episode([4, 4], 0.5, end=False)]
    transitions = [x for t in trajectories for x in transitions_of(t, AGENT, GAMMA)]
    assert replayed_turns(trajectories, transitions, GAMMA).holds
    for i in (1, 2):
        changed = list(transitions)
        if vars(changed[i]) | changes != vars(changed[i]):
            changed[i] = dataclasses.replace(changed[i], **changes)
            assert not replayed_turns(trajectories, changed, GAMMA).holds
    assert not replayed_turns(trajectories, transitions[:-1], GAMMA).holds
    assert not replayed_turns(trajectories, transitions[::-1], GAMMA).holds
    assert not replayed_turns(trajectories, [*transitions, transitions[0]], GAMMA).holds


def test_nothing_is_checked_before_invariants_are_enabled(monkeypatch: pytest.MonkeyPatch):
    checks = Invariants()
    checks.check(replayed_turns, [episode([3], 1.0)], [], GAMMA)
    assert checks.take_violations() == []
