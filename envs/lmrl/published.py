"""LMRL-Gym's offline data sets (arXiv 2311.18232): who played them, how many games, and their published statistics."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from agentrl_jax.shards import Recipe


@dataclass(frozen=True)
class Published:
    """A data set as it was published, and the environment and player here that stand for its own."""

    environment: str
    records: int
    length: float  # turns, a mean
    success: float  # a share
    mean: float  # of the returns
    std: float
    player: str = "mixture"
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"agentrl_jax.envs:agentrl/{self.environment}-v0"

    def recipe(self, records: int = 0, player: str = "", options: Mapping[str, Any] = MappingProxyType({}), **others: int) -> Recipe:
        """The data set here; what is 0 or empty is as published."""
        return Recipe(self.id, player or self.player, records or self.records, {**self.options, **options}, **others)


# The mean lengths of the two question games were printed with a minus sign; Maze's mean return there is not the -83 of its score.
PUBLISHED: Mapping[str, Published] = MappingProxyType(
    {
        "maze_fo": Published("MazeFO", 1_240, 19.7, 0.11, -19.7, 24.5),
        "maze_po": Published("MazePO", 1_240, 19.7, 0.11, -19.7, 24.5),
        "nav_fo": Published("TextNav", 2_500, 12.2, 0.26, 0.258, 0.424),
        "nav_po": Published("TextNav", 2_500, 12.2, 0.26, 0.258, 0.424, options={"view": "partial"}),
        "wordle": Published("Wordle", 1_000_000, 4.82, 0.70, -4.12, 1.59),
        "chess": Published("Chess", 625_000, 46.7, 0.60, 0.210, 0.970),
        "endgames": Published("ChessEndgames", 97_756, 11.9, 0.59, 0.586, 0.492),
        "questions": Published("TwentyQuestions", 100_000, 14.9, 0.31, -17.3, 2.56),
        "city": Published("GuessCity", 100_000, 18.8, 0.53, -18.8, 4.12),
        "dealer": Published("CarDealer", 19_000, 16.5, 0.53, 0.562, 0.422),
    }
)
