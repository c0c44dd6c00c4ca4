"""Value iteration for environments of Gymnasium that show their table of transitions."""

import functools
from typing import Any

import numpy as np

DISCOUNT, SWEEPS = 0.999, 2000


def tabular_policy(env: Any) -> tuple[int, ...] | None:
    """The best action of each state, by value iteration on `env.P`; None where there is none.

    V(s) = max_a sum_s' P(s' | s, a) (R(s, a, s') + DISCOUNT V(s'))
    """
    table = getattr(env, "P", None)
    if not isinstance(table, dict):
        return None
    flat = tuple(
        (s, a, float(p), int(after), float(reward), bool(over))
        for s, actions in table.items()
        for a, outcomes in actions.items()
        for p, after, reward, over in outcomes
    )
    return _solved(flat, len(table), 1 + max(row[1] for row in flat))


@functools.lru_cache(maxsize=8)
def _solved(flat: tuple[tuple[Any, ...], ...], states: int, actions: int) -> tuple[int, ...]:
    s, a, p, after, reward, over = (np.array(column) for column in zip(*flat))
    value, q = np.zeros(states), np.zeros((states, actions))
    for _ in range(SWEEPS):
        q = np.zeros((states, actions))
        np.add.at(q, (s, a), p * (reward + DISCOUNT * np.where(over, 0.0, value[after])))
        if np.abs(q.max(1) - value).max() < 1e-9:
            break
        value = q.max(1)
    return tuple(int(x) for x in q.argmax(1))
