"""Keys that say which units share a statistic (per turn [R], trajectory [J] or token [N]), and the
means and deviations over units that share a key.
"""

from collections.abc import Hashable, Iterable

import numpy as np

from agentrl_jax.algorithms.advantages.info_fields import calls_and_owners
from agentrl_jax.learner.deferred_inputs import trajectory_values
from agentrl_jax.learner.sequences import CreditInputs, TokenIndex


def factorize(values: Iterable[Hashable]) -> np.ndarray:
    """Integers from 0, equal where values are equal, in order of first appearance, [U]."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)


def group_of_trajectory(indices: TokenIndex) -> np.ndarray:
    """The group of each trajectory, [J]."""
    return indices.trajectory_group


def environment_of_trajectory(inputs: CreditInputs) -> np.ndarray:
    """The environment of each trajectory: its label in a mixture, or else its id, [J]."""
    return factorize(trajectory_values(inputs, lambda t: t.environment))


def player_of_trajectory(inputs: CreditInputs) -> np.ndarray:
    """The environment and the agent index of each trajectory, over all groups, [J]."""
    players = trajectory_values(inputs, lambda t: [t.environment, t.agent_index])
    return factorize(map(tuple, players))


def batch_of_turn(indices: TokenIndex) -> np.ndarray:
    """One key for all turns of the batch, [R]."""
    return np.zeros(len(indices.turn_trajectory), np.int64)


def group_of_turn(indices: TokenIndex) -> np.ndarray:
    """The group of each turn, [R]."""
    return indices.trajectory_group[indices.turn_trajectory]


def environment_of_turn(inputs: CreditInputs) -> np.ndarray:
    """The environment of each turn, see `environment_of_trajectory`, [R]."""
    return environment_of_trajectory(inputs)[inputs.turn_trajectory]


def environment_of_token(inputs: CreditInputs) -> np.ndarray:
    """The environment of each token, see `environment_of_trajectory`, [N]."""
    return environment_of_trajectory(inputs)[inputs.token_trajectory]


def player_of_turn(inputs: CreditInputs) -> np.ndarray:
    """The player of each turn, see `player_of_trajectory`, [R]."""
    return player_of_trajectory(inputs)[inputs.turn_trajectory]


def turn_index(indices: TokenIndex) -> np.ndarray:
    """The index of each turn in its trajectory, from 0, [R]."""
    owner = indices.turn_trajectory
    return np.arange(len(owner)) - np.searchsorted(owner, owner)


def step_of_turn(inputs: CreditInputs) -> np.ndarray:
    """Group and step: turns of a group at the same step of the expert's path (`info["step"]`), or
    else of the same turn index, [R].
    """
    steps = [
        turn.info.get("step", int(index)) for turn, index in zip(inputs.turns, turn_index(inputs))
    ]
    return factorize(zip(group_of_turn(inputs).tolist(), steps))


def anchor_of_turn(inputs: CreditInputs) -> np.ndarray:
    """Group and state: turns of a group whose action was taken in the same state (GiGPO, arXiv
    2505.10978), [R].

    A state is `info["anchor"]`, or else the last messages observed before the action.
    """
    keys, group = [], group_of_turn(inputs)
    for r, (turn, j, index) in enumerate(
        zip(inputs.turns, inputs.turn_trajectory, turn_index(inputs))
    ):
        last_observation = (
            inputs.trajectories[j].opening if index == 0 else inputs.turns[r - 1].observation
        )
        keys.append((int(group[r]), turn.info.get("anchor", last_observation)))
    return factorize(keys)


def sequence_of_token(indices: TokenIndex) -> np.ndarray:
    """Slot `sequence`: the policy-written tokens of a training sequence share a ratio, [N]."""
    return indices.token_sequence


def turn_of_token(indices: TokenIndex) -> np.ndarray:
    """Slot `sequence`: the policy-written tokens of a turn share a ratio, [N]."""
    return indices.token_turn


def call_of_token(inputs: CreditInputs) -> np.ndarray:
    """Slot `sequence`: the policy-written tokens of one generation share a ratio, [N]."""
    return calls_and_owners(inputs)[1]


def group_mean(values: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Mean of `values` [U] over each key, returned per unit [U]; exact where the values are
    equal.
    """
    count = np.bincount(key)
    lowest = np.full(len(count), np.inf)
    np.minimum.at(lowest, key, values)
    return lowest[key] + (np.bincount(key, values - lowest[key]) / np.maximum(count, 1))[key]


def center(
    values: np.ndarray,
    key: np.ndarray,
    *,
    std: bool = False,
    eps: float = 1e-6,
    leave_one_out: bool = False,
    keep_singletons: bool = False,
) -> np.ndarray:
    """x - mean_key(x), or with `std` (x - mean_key(x)) / (std_key(x) + eps); [U].

    std_key is the deviation from mean_key also with `leave_one_out`. Equal values become exactly 0.

    Args:
        values: float [U], one per unit.
        key: int >= 0 [U]; units of equal key share a mean.
        std: divide by the unbiased standard deviation (n - 1).
        eps: added to it.
        leave_one_out: subtract the mean of the other units: the result is n / (n - 1) times larger.
        keep_singletons: a unit alone with its key keeps its value (mean 0, std 1); otherwise it
            becomes 0.
    """
    values = np.asarray(values, np.float64)
    if not len(values):
        return np.zeros(0)
    count = np.bincount(key)[key]
    is_singleton = count == 1
    centered = values - np.where(is_singleton & keep_singletons, 0.0, group_mean(values, key))
    num_others = np.maximum(count - 1, 1)
    factor = np.where(is_singleton, 1.0, count / num_others) if leave_one_out else 1.0
    if not std:
        return centered * factor
    variance = np.bincount(key, centered**2)[key] / num_others
    return centered * factor / (np.where(is_singleton, 1.0, np.sqrt(variance)) + eps)


def whiten_values(values: np.ndarray, key: np.ndarray | None = None) -> np.ndarray:
    """(x - mean) / sqrt(variance + 1e-8) with the unbiased variance, [U]; equal values, and a
    single one, become exactly 0.

    Mean and variance are over the units of equal key (int >= 0, [U]); None: over all.
    """
    if key is not None:
        centered = center(values, key)
        count, squares = np.bincount(key), np.bincount(key, centered**2)
        return centered / np.sqrt((squares / np.maximum(count - 1, 1))[key] + 1e-8)
    centered = center(values, np.zeros(len(values), np.int64))
    return centered / np.sqrt((centered**2).sum() / max(len(values) - 1, 1) + 1e-8)
