"""LMRL-Gym's offline datasets (arXiv 2311.18232): environments, policies, sizes and statistics."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from agentrl_jax.storage.dataset_folder import DatasetManifest


@dataclass(frozen=True)
class PublishedDataset:
    """A published dataset, and the environment and scripted policy here that stand for its own."""

    environment_name: str
    records: int
    mean_length: float  # turns
    success_rate: float
    mean_return: float
    std_return: float
    player: str = "mixture"
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def environment_id(self) -> str:
        return f"agentrl_jax.envs:agentrl/{self.environment_name}-v0"

    def manifest(
        self,
        records: int = 0,
        player: str = "",
        options: Mapping[str, Any] = MappingProxyType({}),
        **manifest_fields: int,
    ) -> DatasetManifest:
        """The manifest of the dataset here; arguments that are 0 or empty are as published."""
        return DatasetManifest(
            self.environment_id,
            player or self.player,
            records or self.records,
            {**self.options, **options},
            **manifest_fields,
        )


# The paper prints the mean lengths of the two question games with a minus sign; its mean return of
# Maze is not the -83 of its score.
PUBLISHED_DATASETS: Mapping[str, PublishedDataset] = MappingProxyType(
    {
        "maze_fo": PublishedDataset("MazeFO", 1_240, 19.7, 0.11, -19.7, 24.5),
        "maze_po": PublishedDataset("MazePO", 1_240, 19.7, 0.11, -19.7, 24.5),
        "nav_fo": PublishedDataset("TextNav", 2_500, 12.2, 0.26, 0.258, 0.424),
        "nav_po": PublishedDataset(
            "TextNav", 2_500, 12.2, 0.26, 0.258, 0.424, options={"view": "partial"}
        ),
        "wordle": PublishedDataset("Wordle", 1_000_000, 4.82, 0.70, -4.12, 1.59),
        "chess": PublishedDataset("Chess", 625_000, 46.7, 0.60, 0.210, 0.970),
        "endgames": PublishedDataset("ChessEndgames", 97_756, 11.9, 0.59, 0.586, 0.492),
        "questions": PublishedDataset("TwentyQuestions", 100_000, 14.9, 0.31, -17.3, 2.56),
        "city": PublishedDataset("GuessCity", 100_000, 18.8, 0.53, -18.8, 4.12),
        "dealer": PublishedDataset("CarDealer", 19_000, 16.5, 0.53, 0.562, 0.422),
    }
)
