"""Who shares a statistic: a key for each turn [R], or for each trajectory [J]."""

from collections.abc import Hashable, Iterable

import numpy as np

from agentrl_jax.algorithms.facts import calls_of
from agentrl_jax.rows import Evidence, Indices


def codes(values: Iterable[Hashable]) -> np.ndarray:
    """Numbers from 0, the same where values are equal, in order of first appearance."""
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(value, len(seen)) for value in values], np.int64)


def group_of_trajectory(indices: Indices) -> np.ndarray:
    """[J]"""
    return indices.trajectory_group


def player_of_trajectory(evidence: Evidence) -> np.ndarray:
    """The seat in its kind of environment (the task up to "#"), over all groups, [J]."""
    return codes((trajectory.task.split("#")[0], trajectory.seat) for trajectory in evidence.trajectories)


def batch_of_turn(indices: Indices) -> np.ndarray:
    """All turns together, [R]."""
    return np.zeros(len(indices.turn_trajectory), np.int64)


def group_of_turn(indices: Indices) -> np.ndarray:
    """[R]"""
    return indices.trajectory_group[indices.turn_trajectory]


def player_of_turn(evidence: Evidence) -> np.ndarray:
    """[R]"""
    return player_of_trajectory(evidence)[evidence.turn_trajectory]


def place_of_turn(indices: Indices) -> np.ndarray:
    """The turn's place in its trajectory, from 0, [R]."""
    owner = indices.turn_trajectory
    return np.arange(len(owner)) - np.searchsorted(owner, owner)


def step_of_turn(evidence: Evidence) -> np.ndarray:
    """Group and step: turns of a group that stand at the same step of the expert's path, or at the same place, [R]."""
    steps = [turn.info.get("step", int(place)) for turn, place in zip(evidence.turns, place_of_turn(evidence))]
    return codes(zip(group_of_turn(evidence).tolist(), steps))


def anchor_of_turn(evidence: Evidence) -> np.ndarray:
    """Group and state: turns of a group whose action was taken in the same state (GiGPO, arXiv 2505.10978), [R].

    A state is what `info["anchor"]` says; else the messages shown last before the action.
    """
    keys, group = [], group_of_turn(evidence)
    for r, (turn, j, place) in enumerate(zip(evidence.turns, evidence.turn_trajectory, place_of_turn(evidence))):
        shown = evidence.trajectories[j].opening if place == 0 else evidence.turns[r - 1].observation
        keys.append((int(group[r]), turn.info.get("anchor", shown)))
    return codes(keys)


def row_of_token(indices: Indices) -> np.ndarray:
    """A sequence is all that was written in a training row, [N]."""
    return indices.token_row


def turn_of_token(indices: Indices) -> np.ndarray:
    """A sequence is all that was written in a turn, [N]."""
    return indices.token_turn


def call_of_token(evidence: Evidence) -> np.ndarray:
    """A sequence is what one call wrote, [N]."""
    return calls_of(evidence)[1]
