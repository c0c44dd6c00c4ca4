"""`TaskSampler`: which tasks of a fixed set a step plays."""

from collections.abc import Sequence

import numpy as np

from agentrl_jax.rollout.strategy import RolloutPiece


class TaskSampler(RolloutPiece):
    """Draws a step's tasks out of a fixed number of them (`schedules.SuccessRateSampler`)."""

    def sample(self, num_tasks: int, count: int, rng: np.random.Generator) -> list[int]:
        """`count` task indices below `num_tasks`, with repetition or without."""
        raise NotImplementedError

    def observe(self, tasks: Sequence[int], success_rates: Sequence[float]) -> None:
        """Called after each round with the fraction of each task's episodes that succeeded."""
