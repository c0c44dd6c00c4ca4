"""Limits of a turn, an episode and a context: where an episode is cut, with which stop reason, and
that nothing is sampled after it.
"""

import dataclasses
import time
from concurrent.futures import Future
from typing import Any, get_args

import numpy as np
import pytest
from support import faulty_envs
from support.fixtures import ScriptedEngine
from support.untimed import turn_time

from agentrl_jax.context import FullHistory
from agentrl_jax.errors import UserError
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent, Limits
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.storage.demonstration_file import DEMONSTRATION
from agentrl_jax.training.rollout_metrics import episode_stats, rollout_metrics
from agentrl_jax.trajectories import Call, Group, RandomKey, Sampling, StopReason, Trajectory
from agentrl_jax.workers.pool import InlinePool, Task

RENDERER = TextRenderer(byte_tokenizer())
# The opening "begin\n" is 6 tokens, an action "abc\n" 4, an observation "turn 1\n" 7: prompts are
# 6, 17 and 28 tokens long.
TEXT, OPENING, ACTION, REPLY = "abc", 6, 4, 7


class Frugal(ScriptedEngine):
    """Writes as much of its text as the budget allows."""

    def __init__(self) -> None:
        super().__init__(RENDERER, TEXT)
        self.budgets: list[int] = []

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Any = (),
    ) -> "Future[Call]":
        self.budgets.append(sampling.budget)
        action, self._action = self._action, self._action[: sampling.budget]
        future = super().submit(ids, sampling, key, parent, images)
        self._action = action
        return future


def run_with_limits(limits: Limits) -> tuple[Trajectory, Frugal]:
    engine = Frugal()
    agent = Agent("policy", RENDERER, FullHistory(), Sampling(budget=8), limits=limits)
    with Runtime({"policy": engine}, {"policy": agent}, InlinePool()) as runtime:
        (group,) = runtime.collect(
            IndependentEpisodes(1), [Task(faulty_envs.ENVIRONMENT_ID, 0)], (0, 0)
        )
    assert engine.held_calls == []
    return group.trajectories[0], engine


def test_a_turn_knows_when_its_environment_was_stepped():
    agent = Agent("policy", RENDERER, FullHistory(), Sampling(budget=8))
    task = Task(faulty_envs.ENVIRONMENT_ID, 0, {"how": "nap"})
    with Runtime({"policy": Frugal()}, {"policy": agent}, InlinePool()) as runtime:
        before = time.time() - 0.01
        (group,) = runtime.collect(IndependentEpisodes(1), [task], (0, 0))
    times = [turn_time(turn) for turn in group.trajectories[0].turns]
    moments = [moment for t in times for moment in (t.environment_start, t.environment_end)]
    assert moments == sorted(moments) and before < moments[0] < moments[-1] < time.time() + 0.01
    seconds = [t.environment_end - t.environment_start for t in times]
    assert seconds[1] >= 0.3 > max(seconds[0], seconds[2])


@pytest.mark.parametrize(
    ("limits", "stop", "actions", "budgets"),
    [
        (Limits(), "terminated", ["abc", "abc", "abc"], [8, 8, 8]),
        (Limits(turns=2), "turns", ["abc", "abc"], [8, 8]),
        (Limits(turns=1), "turns", ["abc"], [8]),
        (
            Limits(turns=3),
            "terminated",
            ["abc", "abc", "abc"],
            [8, 8, 8],
        ),  # the environment's own end comes first
        (Limits(tokens=6), "tokens", ["abc", "ab"], [6, 2]),
        (
            Limits(tokens=8),
            "tokens",
            ["abc", "abc"],
            [8, 4],
        ),  # spent exactly: no budget is left for a third turn
        (Limits(tokens=3), "tokens", ["abc"], [3]),
        (Limits(tokens=12), "terminated", ["abc", "abc", "abc"], [8, 8, 4]),
        (Limits(turns=2, tokens=6), "turns", ["abc", "ab"], [6, 2]),
        (Limits(context=6), "context", [], []),
        (Limits(context=8), "context", ["ab"], [2]),
        (Limits(context=17), "context", ["abc"], [8]),
        (Limits(context=20), "context", ["abc", "abc"], [8, 3]),
        (Limits(context=40), "terminated", ["abc", "abc", "abc"], [8, 8, 8]),
    ],
)
def test_limits_end_an_episode(limits: Limits, stop: str, actions: list[str], budgets: list[int]):
    trajectory, engine = run_with_limits(limits)
    assert trajectory.stop_reason == stop and engine.budgets == budgets
    assert [turn.action.text for turn in trajectory.turns] == actions
    assert [turn.observation[0].text for turn in trajectory.turns] == [
        f"turn {i + 1}\n" for i in range(len(actions))
    ]  # no turn is recorded without its reply
    assert [len(call.prompt) for call in trajectory.calls] == [
        OPENING + i * (ACTION + REPLY) for i in range(len(actions))
    ]
    assert trajectory.total_reward == len(actions) and trajectory.truncated == (
        stop != "terminated"
    )
    assert trajectory.success is (True if stop == "terminated" else None)
    assert not any(turn.truncated for turn in trajectory.turns)


def test_a_budget_does_not_change_the_sampled_tokens():
    trajectory, _ = run_with_limits(Limits(tokens=6))
    first, second = (call.sampling for call in trajectory.calls)
    assert dataclasses.replace(first, budget=2) == second and first.stop_ids == RENDERER.stop_ids


@pytest.mark.parametrize("limits", [Limits(turns=-1), Limits(tokens=-1), Limits(context=-5)])
def test_a_negative_limit_is_refused(limits: Limits):
    with pytest.raises(UserError, match="limits must be positive"):
        Agent("policy", RENDERER, FullHistory(), Sampling(), limits=limits)


def test_metrics_count_stop_reasons():
    reasons = ["terminated", "terminated", "turns", "context"]
    trajectories = tuple(
        Trajectory((), (), stop_reason=reason)  # type: ignore[arg-type]
        for reason in reasons
    )
    group = Group("task", trajectories, num_dropped=3)
    metrics = rollout_metrics(episode_stats([group]))
    stopped = {
        name.rpartition("/")[2]: share
        for name, share in metrics.items()
        if name.startswith("rollout/stopped/")
    }
    assert stopped == {
        **dict.fromkeys(get_args(StopReason), 0.0),
        "terminated": 0.5,
        "turns": 0.25,
        "context": 0.25,
    }
    assert metrics["rollout/dropped"] == 3.0


def test_metrics_leave_out_demonstrations():
    run_with_limits = [
        Group("a", (Trajectory((), (), agent="policy", success=True),)),
        Group("b", (), num_dropped=2),
    ]
    demonstration_group = Group("c", (Trajectory((), (), agent=DEMONSTRATION, success=False),))
    metrics = rollout_metrics(
        episode_stats([*run_with_limits, demonstration_group, demonstration_group])
    )
    assert metrics == rollout_metrics(episode_stats(run_with_limits))
    assert metrics["rollout/success"] == 1.0 and metrics["rollout/dropped"] == 2.0
