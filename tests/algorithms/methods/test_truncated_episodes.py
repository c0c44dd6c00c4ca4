"""Every published method trains on episodes that a limit truncated."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from support.method_runs import GROUPS, METHODS, SHAPE, recorded_run

from agentrl_jax.algorithms.advantages.info_fields import succeeded
from agentrl_jax.errors import UserError
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.training.rollout_metrics import episode_stats, rollout_metrics
from agentrl_jax.trajectories import Group, Trajectory
from agentrl_jax.workers.pool import InlinePool


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime({}, {}, InlinePool()) as runtime:
        yield runtime


TRUNCATED = GROUPS[0].trajectories[0].replace(success=None, stop_reason="tokens")


def truncated(trajectory: Trajectory, num_turns: int) -> Trajectory:
    """The first turns of an episode, without rewards."""
    turns = [dataclasses.replace(turn, reward=0.0, rewards={}) for turn in trajectory.turns]
    return trajectory.replace(turns=tuple(turns[:num_turns]), success=None, stop_reason="context")


def with_truncated_members(groups: list[Group]) -> list[Group]:
    """Two of three groups with a truncated member, one of them before its first action; the last
    group has no other.
    """
    results = []
    for i, group in enumerate(groups):
        num_truncated = {0: 0, len(groups) - 1: len(group.trajectories)}.get(i, int(i % 3 > 0))
        num_turns = 0 if i == 1 else 1
        members = (
            *(
                truncated(trajectory, num_turns)
                for trajectory in group.trajectories[:num_truncated]
            ),
            *group.trajectories[num_truncated:],
        )
        results.append(dataclasses.replace(group, trajectories=members))
    return results


@pytest.mark.parametrize("name", METHODS)
def test_a_method_learns_from_truncated_episodes(
    name: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
):
    groups = with_truncated_members(GROUPS)
    _, microbatches, metrics = recorded_run(
        METHODS[name](**SHAPE), [groups, groups], runtime, monkeypatch
    )
    assert microbatches and all(
        np.isfinite(value) for m in metrics for value in m.values() if isinstance(value, float)
    )


def test_a_truncated_episode_did_not_succeed():
    assert TRUNCATED.succeeded is False and not succeeded(TRUNCATED)
    assert TRUNCATED.replace(success=True).succeeded is True
    assert TRUNCATED.replace(stop_reason="error").succeeded is False
    silent = TRUNCATED.replace(stop_reason="terminated")
    assert silent.succeeded is None
    with pytest.raises(UserError, match="does not say whether it was solved"):
        succeeded(silent)


def test_the_success_rate_counts_truncated_episodes():
    members = [TRUNCATED, *(TRUNCATED.replace(success=x) for x in (True, True, False))]

    def metrics(trajectories: list[Trajectory]) -> dict[str, float]:
        return rollout_metrics(episode_stats([Group("", tuple(trajectories))]))

    assert metrics(members)["rollout/success"] == 0.5
    assert (
        metrics(members)["rollout/stopped/tokens"] == metrics(members)["rollout/truncated"] == 1.0
    )
    ended = [member.replace(stop_reason="terminated") for member in members[1:]]
    mixed = metrics([TRUNCATED, TRUNCATED.replace(stop_reason="error"), *ended])
    assert mixed["rollout/truncated"] == 0.2 and mixed["rollout/success"] == pytest.approx(0.4)
    assert metrics([TRUNCATED])["rollout/success"] == 0.0
    silent = TRUNCATED.replace(stop_reason="terminated")
    assert "rollout/success" not in metrics([TRUNCATED, silent])
