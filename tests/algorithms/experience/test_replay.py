"""Replay: what is stored, how much of it, when it is injected, and that its state is plain data."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from support.fixtures import (
    make_call,
    make_credit_inputs,
    make_trajectory,
    make_turn,
    random_trajectory,
)

from agentrl_jax.algorithms.advantages.group import ExternalBaseline, group_normalized
from agentrl_jax.algorithms.experience.replay import (
    LowRewardBuffer,
    NewestSuccessReplay,
    SolvedSteps,
    SuccessReplay,
)
from agentrl_jax.algorithms.experience.self_imitation import PositiveReplay, replace_sampler_logp
from agentrl_jax.learner.sequences import collate
from agentrl_jax.trajectories import Group, Trajectory


def member(reward: float, sample: int = 0, version: int = 0, tool: bool = True) -> Trajectory:
    turn = make_turn([make_call([1], [2], logp=[-0.25], version=[version])], reward)
    turn = dataclasses.replace(turn, info={"called_tools": ["find"] if tool else []})
    return make_trajectory(turn).replace(success=reward > 0, sample=sample)


def group(*rewards: float, task: str = "t", **fields: Any) -> Group:
    return Group(task, tuple(member(r, i, **fields) for i, r in enumerate(rewards)))


def samples(groups: list[Group]) -> list[list[int]]:
    return [[t.sample for t in g.trajectories] for g in groups]


def through_json(source: Any, target: Any) -> None:
    target.load(json.loads(json.dumps(source.state())))


def test_an_all_failed_group_gets_a_stored_success():
    replay, rng = SuccessReplay(), np.random.default_rng(0)
    failed, mixed = group(*[0.0] * 8), group(*[0.0] * 7, 1.0)
    assert replay.inject([failed], rng) == [failed]  # nothing is stored
    replay.add([Group("t", (member(1.0, sample=77), member(0.1, sample=78)))])
    assert len(replay) == 1  # .1 is not above .1
    injected = replay.inject([failed, mixed, group(*[0.0] * 8, task="other")], rng)
    assert samples(injected) == [[77, *range(1, 8)], list(range(8)), list(range(8))]
    advantage = group_normalized(make_credit_inputs(injected[:1]))
    assert advantage == pytest.approx([2.4749, *[-0.35355] * 7], abs=1e-4)
    # not all-failed: the mean return is too high, or the returns differ
    for not_failed in (group(*[0.2] * 8), group(*[0.0] * 7, 0.15)):
        assert replay.inject([not_failed], rng) == [not_failed]
    assert samples(replay.inject([group(0.0)], rng)) == [[77]]


def test_the_store_of_successes_is_bounded_and_first_in_first_out():
    replay = SuccessReplay(per_task=8, max_tasks=3)
    for i in range(20):
        replay.add([Group("a", (member(1.0, sample=i),))])
    assert len(replay) == 8
    samples_drawn = {
        replay.inject([group(0.0, 0.0, task="a")], np.random.default_rng(s))[0]
        .trajectories[0]
        .sample
        for s in range(200)
    }
    assert samples_drawn == set(range(12, 20))
    for task in "bcd":
        replay.add([group(1.0, task=task)])
    assert len(replay) == 3  # the oldest task was dropped
    again = SuccessReplay(per_task=8, max_tasks=3)
    through_json(replay, again)
    assert again.state() == replay.state()
    for task in "abcd":
        failed = [group(0.0, 0.0, task=task)]
        first, second = (
            r.inject(failed, np.random.default_rng(1))[0].trajectories[0].total_reward
            for r in (replay, again)
        )
        assert first == second == float(task != "a")


def test_dart_replaces_the_oldest_member_by_the_newest_success():
    replay, rng = NewestSuccessReplay(), np.random.default_rng(0)
    failed = Group("t", (member(0, 0, version=5), member(0, 1, version=2), member(0, 2, version=7)))
    assert samples(replay.inject([failed, group(0, 1)], rng)) == [[0, 1]]
    assert NewestSuccessReplay(drop_unsolved=False).inject([failed], rng) == [failed]
    for i in (70, 71):
        replay.add([Group("t", (member(1, i, version=0), member(0, 99)))])
    injected = replay.inject([failed], rng)
    assert samples(injected) == [[0, 71, 2]]
    assert {t.success for t in injected[0].trajectories} == {True, False}
    again = NewestSuccessReplay()
    through_json(replay, again)
    assert samples(again.inject([failed], rng)) == [[0, 71, 2]] and len(again) == 1


def test_self_imitation_stores_trajectories_better_than_their_group():
    replay = PositiveReplay(size=2, max_age=5)
    assert replay.sample(np.random.default_rng(0)) == []
    with pytest.raises(ValueError, match="no baseline"):
        _ = replay.baseline
    replay.add([group(1, 0, 0, 0), group(1, 1), group(4, 0, tool=False), Group("t", ())])
    assert (
        len(replay) == 1 and not replay.is_ready
    )  # equal trajectories are not better, and one has no tool call
    assert replay.baseline == 1.0  # the median of .25, 1 and 2
    replay.add([group(3, 0, 0, 0), group(9, 0, 0, 0), group(0, 0, 5)])
    assert replay.is_ready  # 4 > 3
    samples_drawn = replay.sample(np.random.default_rng(0))
    # means .25, 1, 2, .75, 2.25, 5/3: the median is 4/3; the reward of 1 is no longer above it; two
    # of three are drawn
    rewards = [g.trajectories[0].total_reward for g in samples_drawn]
    assert (
        len(samples_drawn) == 2
        and set(rewards) < {3.0, 9.0, 5.0}
        and replay.baseline == pytest.approx(4 / 3)
    )
    assert len(replay) == 0 and not replay.is_ready
    assert (ExternalBaseline(replay.baseline)(collate(samples_drawn).token_index) > 0).all()
    assert [len(g.trajectories) for g in samples_drawn] == [1, 1]


def test_self_imitation_drops_old_trajectories_and_is_bounded():
    replay = PositiveReplay(size=4, max_age=3)
    replay.add([group(1, 0)])
    for age in range(1, 4):
        replay.add([group(0, 0)])
        assert len(replay) == (age < 3)
    for _ in range(3):
        replay.add([group(1, 0)] * 10)
    assert len(replay) == 8
    again = PositiveReplay(size=4, max_age=3)
    through_json(replay, again)
    first, second = (r.sample(np.random.default_rng(3)) for r in (replay, again))
    assert samples(first) == samples(second) and len(first) == 8
    assert again.state() == replay.state()
    short = PositiveReplay(size=4, baseline_window=2)
    short.add([group(1, 0), group(9, 9), group(5, 5)])
    assert short.baseline == 7.0


def test_a_replayed_trajectory_has_the_log_probs_with_which_it_was_sampled():
    trajectory = random_trajectory(
        [(2, 3, False, 1.0), (1, 2, True, 0.0)], np.random.default_rng(0)
    )
    logp = np.linspace(-3, -1, 5).astype(np.float32)
    rescored = replace_sampler_logp(trajectory, logp)
    assert collate([Group("a", (rescored,))]).token_values("sampler_logp").tolist() == logp.tolist()
    assert [c.sampler_logp.tolist() for c in trajectory.calls] != [
        c.sampler_logp.tolist() for c in rescored.calls
    ]
    low = LowRewardBuffer(2, 5.0)
    low.add([Group("a", (rescored,))])
    again = LowRewardBuffer(2, 5.0)
    through_json(low, again)
    (back,) = again.sample(3, np.random.default_rng(0))
    assert collate([Group("a", (back,))]).token_values("sampler_logp").tolist() == logp.tolist()
    for wrong in (logp[:4], np.append(logp, 0)):
        with pytest.raises(ValueError):
            replace_sampler_logp(trajectory, wrong)


def test_trajectories_of_low_reward_are_stored():
    replay = LowRewardBuffer(3, 0.5)
    replay.add([group(0, 1, 0.5, 0.2, 0.1)])
    assert len(replay) == 3
    assert [t.total_reward for t in replay.sample(9, np.random.default_rng(0))] == [0.5, 0.2, 0.1]
    assert (
        len(replay.sample(2, np.random.default_rng(0))) == 2
        and LowRewardBuffer(3, 0.5).sample(2, np.random.default_rng(0)) == []
    )


def test_solved_steps_are_stored_once():
    def path(*words: int, success: bool = True) -> Trajectory:
        turns = (
            dataclasses.replace(make_turn([make_call([1, w], [w])], 0.0), info={"on_path": w < 9})
            for w in words
        )
        return make_trajectory(*turns).replace(success=success)

    replay = SolvedSteps(3, lambda turn: bool(turn.info["on_path"]))
    replay.add([Group("a", (path(2, 3, 9), path(3, 2), path(7, success=False)))])
    steps = replay.sample(9, np.random.default_rng(0))
    assert [t.calls[0].action.tolist() for t in steps] == [[2], [3]] and all(
        len(t.turns) == 1 for t in steps
    )
    replay.add([Group("a", (path(2, 4, 5),))])
    again = SolvedSteps(3)
    through_json(replay, again)
    assert [t.calls[0].action.tolist() for t in again.sample(9, np.random.default_rng(0))] == [
        [3],
        [4],
        [5],
    ]
