"""Invariants of recorded episodes: that they are what was sampled, and ended as they say."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from agentrl_jax.invariants import InvariantCheck
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.trajectories import Call, Group, Trajectory


def recorded_calls(groups: Sequence[Group]) -> InvariantCheck:
    """Calls are as their engine sampled them: no bit of prompt, action, log-probs, versions or
    temperature has changed since, and they end as they say.

    Calls without a checksum are not from an engine that makes one.
    """
    calls = [call for call in _sampled_calls(groups) if call.checksum]
    changed = sum(call.compute_checksum() != call.checksum for call in calls)
    wrong_ends = sum(not _ends_as_recorded(call) for call in calls)
    return InvariantCheck(
        "recorded_calls",
        changed == wrong_ends == 0,
        f"of {len(calls)} sampled calls {changed} are not as the engine sampled them (prompt, "
        f"action, log-probs, versions or temperature), and {wrong_ends} end without the stop token "
        "or budget that they record",
    )


def _sampled_calls(groups: Sequence[Group]) -> list[Call]:
    return [
        call
        for group in groups
        for trajectory in group.trajectories
        for turn in trajectory.turns
        for call in turn.calls
        if call.source == "sampled"
    ]


def _ends_as_recorded(call: Call) -> bool:
    sampling = call.sampling
    if call.finish_reason == "budget":
        return len(call.action) == sampling.budget
    if call.finish_reason == "stop" and not sampling.stop_strings:
        return len(call.action) > 0 and call.action.item(-1) in sampling.stop_ids
    return True


def distinct_episodes(groups: Sequence[Group]) -> InvariantCheck:
    """No two trajectories end with the same sampled call, as copies of one would; a branch without
    turns of its own ends as its parent.
    """
    last_calls = [
        next((turn.calls[-1] for turn in reversed(trajectory.turns) if turn.calls), None)
        for group in groups
        for trajectory in group.trajectories
        if trajectory.branch_turn != len(trajectory.turns)
    ]
    counts = Counter(call.key for call in last_calls if call and call.source == "sampled")
    del counts[()]
    copies = counts.total() - len(counts)
    return InvariantCheck(
        "distinct_episodes",
        copies == 0,
        f"of {counts.total()} trajectories {copies} are copies of another one",
    )


def recorded_ends(groups: Sequence[Group]) -> InvariantCheck:
    """A trajectory's stop reason is "terminated" or "truncated" only where its last turn is."""
    ends = [
        (trajectory.stop_reason, trajectory.turns[-1])
        for group in groups
        for trajectory in group.trajectories
        if trajectory.turns
    ]
    wrong = sum(
        (reason == "terminated" and not turn.terminated)
        or (reason == "truncated" and not turn.truncated)
        for reason, turn in ends
    )
    return InvariantCheck(
        "recorded_ends",
        wrong == 0,
        f"of {len(ends)} trajectories {wrong} are called terminated or truncated while their last "
        "turn is not",
    )


def reported_end(trajectory: Trajectory, terminated: bool, truncated: bool) -> InvariantCheck:
    """Only an episode that the environment's last reply terminated or truncated is called so."""
    reason = trajectory.stop_reason
    reported = "terminated" if terminated else "truncated" if truncated else "not over"
    return InvariantCheck(
        "recorded_ends",
        reason == reported or reason not in ("terminated", "truncated"),
        f"an episode of {trajectory.task} is called {reason} while its environment's last reply "
        f"says {reported}",
    )


def weight_versions(groups: Sequence[Group], oldest: int, newest: int) -> InvariantCheck:
    """Every sampled token is of weights that may have sampled it.

    Args:
        groups: trajectories of agents that are trained.
        oldest: the least version that the source allows.
        newest: the version that was published last.
    """
    versions = [call.version for call in _sampled_calls(groups)]
    merged = np.concatenate([np.array([], np.int32), *versions])
    if not len(merged):
        merged = np.array([newest])
    low, high = int(merged.min()), int(merged.max())
    return InvariantCheck(
        "weight_versions",
        oldest <= low and high <= newest,
        f"the sampled tokens are of weight versions {low} to {high}, while those from {oldest} to "
        f"{newest} may have sampled them",
    )


def dropped_episodes(dropped: int, episodes: int, maximum: float) -> InvariantCheck:
    """At most a fraction `maximum` of the episodes was dropped."""
    fraction = dropped / max(episodes, 1)
    return InvariantCheck(
        "dropped_episodes",
        fraction <= maximum,
        f"{dropped} of {episodes} episodes were dropped after their retries ({fraction:.0%}), more "
        f"than {maximum:.0%}: see the environment failures in summary.json and the log",
    )


def demonstrations_of(groups: Sequence[Group]) -> list[Trajectory]:
    """The trajectories of messages that an agent's calls were made for; a document without messages
    is trained as a whole.
    """
    return [
        trajectory
        for group in groups
        for trajectory in group.trajectories
        if trajectory.opening
        and trajectory.turns
        and all(
            turn.calls and turn.calls[-1].source == "demonstration" for turn in trajectory.turns
        )
    ]


def demonstrated_tokens(trajectory: Trajectory, index: int, agent: Agent) -> InvariantCheck:
    """The action of a turn, its last call, is the demonstrated message and no token more: neither
    an observation nor anything else that the agent did not write.

    Args:
        trajectory: a demonstration.
        index: of the turn, modulo their number.
        agent: whose renderer writes the action.
    """
    turn = trajectory.turns[index % len(trajectory.turns)]
    action = turn.calls[-1].action
    expected = agent.for_task(trajectory.task).renderer.action_ids(turn.action)
    return InvariantCheck(
        "demonstrated_tokens",
        np.array_equal(action, expected),
        f"the demonstrated action {turn.action.full_text!r:.100} of {trajectory.task} is trained "
        f"as {len(action)} tokens that are not the {len(expected)} of its message",
    )
