"""Invariants of a reward model's batch: its pairs are preferences, and each is there once."""

from collections.abc import Sequence

from agentrl_jax.invariants import InvariantCheck
from agentrl_jax.trajectories import Trajectory


def preferences(
    pairs: Sequence[tuple[Trajectory, Trajectory]], label_noise: float
) -> InvariantCheck:
    """The first trajectory of each pair has the higher return, unless noise reverses it, and no
    pair is there twice, in either order.

    Args:
        pairs: of this process.
        label_noise: the fraction that is reversed.
    """
    returns = [(a.total_reward, b.total_reward) for a, b in pairs]
    equal = sum(a == b for a, b in returns)
    reversed_pairs = sum(a < b for a, b in returns)
    repeated = len(pairs) - len({frozenset((id(a), id(b))) for a, b in pairs})
    return InvariantCheck(
        "preferences",
        equal == repeated == 0 and (label_noise > 0 or reversed_pairs == 0),
        f"of {len(pairs)} pairs {equal} have equal returns, {reversed_pairs} prefer the lower one "
        f"(label_noise is {label_noise:g}), and {repeated} are there twice",
    )
