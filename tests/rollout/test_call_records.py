"""Invariants of calls and turns, on hand-made ones."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from support.fixtures import make_call

from agentrl_jax.messages import assistant, user
from agentrl_jax.rollout.call_records import (
    answered_calls,
    placed_calls,
    recorded_rewards,
    reported_rewards,
)
from agentrl_jax.trajectories import Call, Group, Trajectory, Turn, turn_checksum

KEY = (0, 3, 7, 1, 0, 0)  # run, step, task, sample, agent, turn


def call(turn: int = 0, **fields: Any) -> Call:
    return dataclasses.replace(make_call([1, 2], [3, 4]), **{"key": (*KEY[:5], turn), **fields})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, ""),
        ({"prompt": np.array([1, 2, 9], np.int32)}, "another prompt than"),
        ({"key": (0, 3, 7, 2, 0, 0)}, "another key than"),
        ({"key": (*KEY, 4)}, ""),  # of the candidate that was chosen
        ({"version": np.zeros(3, np.int32)}, "another number of log-probs or versions than"),
        ({"sampling": dataclasses.replace(call().sampling, top_k=2)}, "sampling parameters than"),
    ],
)
def test_an_answer_to_another_request_is_named(fields: dict[str, Any], words: str):
    request = call()
    check = answered_calls(call(**fields), request.prompt, request.sampling, request.key)
    assert check.holds == (not words) and words in check.detail


@pytest.mark.parametrize(("reason", "holds"), [("context", True), ("stop", False)])
def test_an_empty_action_is_an_answer_only_where_there_was_no_room(reason: Any, holds: bool):
    empty: dict[str, Any] = {
        name: np.zeros(0, np.int32) for name in ("action", "sampler_logp", "version")
    }
    request = call()
    answer = call(**empty, finish_reason=reason)
    check = answered_calls(answer, request.prompt, request.sampling, request.key)
    assert check.holds == holds and ("empty action" in check.detail) == (not holds)


def turn(index: int, reward: float = 0.5) -> Turn:
    checksum = turn_checksum(reward, False, False)
    return Turn((call(index),), assistant("a"), (user("o"),), reward, checksum=checksum)


def group(*turns: Turn, **fields: Any) -> Group:
    return Group("env#7", (Trajectory((), turns, **{"task": "env#7", "sample": 1, **fields}),))


@pytest.mark.parametrize(
    ("groups", "holds"),
    [
        ([group(turn(0), turn(1))], True),
        ([group(turn(1), turn(0))], False),
        ([group(turn(1))], False),
        ([group(turn(0), sample=2)], False),
        ([group(turn(0), sample=2, parent=1, branch_turn=1)], True),
        ([group(turn(0), agent_index=1)], False),
        ([group(turn(0), task="env#8")], False),
    ],
)
def test_each_call_stands_in_its_own_turn(groups: list[Group], holds: bool):
    assert placed_calls(groups).holds == holds


def test_a_reward_is_the_environments_or_what_a_strategy_made_of_it():
    first = turn(0)
    rewritten = first.with_reward(2.0, {"judge": 1.5})
    changed = dataclasses.replace(first, reward=2.0)
    assert recorded_rewards([group(first, rewritten)]).holds
    assert not recorded_rewards([group(first, changed)]).holds
    unknown = dataclasses.replace(changed, checksum=0).with_reward(3.0, {})
    assert recorded_rewards([group(unknown)]).holds and unknown.checksum == 0
    (trajectory,) = group(first, turn(1, 0.25)).trajectories
    assert reported_rewards(trajectory, [0.5, 0.25]).holds
    assert not reported_rewards(trajectory, [0.25, 0.5]).holds
