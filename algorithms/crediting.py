"""`Lesson`: what is to be learned from a batch, as numbers per token; and whose tokens they are in a process."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from agentrl_jax.algorithms.keying import place_of_turn
from agentrl_jax.algorithms.masks import restricted
from agentrl_jax.pooled import Pool
from agentrl_jax.rows import Evidence, Indices, Row

TURNS_SHOWN = 8  # places in an episode for which the mean advantage is reported


@dataclass(frozen=True, eq=False)
class Lesson:
    """Numbers for all tokens [N] of all processes."""

    advantage: np.ndarray
    trained: np.ndarray  # bool: where a mask is off, a token has no weight and is not counted
    aggregation: Callable[[Indices], np.ndarray]
    scale: float = 1.0  # of the weights
    likelihood: np.ndarray | None = None  # coefficient of -logp
    target: np.ndarray | None = None  # of the critic
    data: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)  # of each regulariser

    def weight(self, part: Evidence, where: slice) -> np.ndarray:
        """The weight in the loss of the tokens `where` in [N], whose evidence is `part`."""
        trained = self.trained[where]
        weight = np.zeros(len(trained))
        weight[trained] = self.scale * self.aggregation(restricted(part, trained))
        return weight


@dataclass(frozen=True, eq=False)
class Studied:
    """A lesson, and this process's rows and tokens in it."""

    rows: list[Row]
    indices: Indices  # of this process alone
    pool: Pool[Evidence]
    lesson: Lesson
    columns: Mapping[str, np.ndarray]  # what the loss reads of this process's tokens, each [n]

    def part(self, groups: np.ndarray) -> tuple[Evidence, slice, slice]:
        """The evidence of these groups alone, where their tokens are in [N], and where this process's among them are in [n]."""
        part, where = self.pool.part(groups)
        before = int(self.pool.mine[: where.start].sum())
        return part, where, slice(before, before + int(self.pool.mine[where].sum()))


def described(evidence: Evidence, lesson: Lesson) -> dict[str, float]:
    """Metrics of the credit given: how large, to how many groups, at which turns, what masks leave."""
    if not len(lesson.advantage):
        return {}
    trained = lesson.advantage[lesson.trained]
    place = place_of_turn(evidence)[evidence.token_turn]
    found = {
        "advantage/mean": float(trained.mean()) if len(trained) else 0.0,
        "advantage/std": float(trained.std()) if len(trained) else 0.0,
        "advantage/positive": float((trained > 0).mean()) if len(trained) else 0.0,
        "tokens/masked": 1.0 - float(lesson.trained.mean()),
    }
    for turn in range(min(TURNS_SHOWN, int(place.max()) + 1)):
        here = lesson.trained & (place == turn)
        if here.any():
            found[f"advantage/turn_{turn}"] = float(lesson.advantage[here].mean())
    return found
