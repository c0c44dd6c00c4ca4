"""What MARS-SQL's validation agent reads of an episode, and what a majority votes on."""

from collections.abc import Sequence

from agentrl_jax.envs.sql.grammar import thoughts_of, written_text
from agentrl_jax.messages import Message, user
from agentrl_jax.trajectories import Trajectory


def validator_prompt(trajectory: Trajectory) -> Sequence[Message]:
    """Question, evidence, the last two thoughts, the solution and the head of its result, as
    MARS-SQL (arXiv 2511.01008) shows them to its validator.

    Args:
        trajectory: an episode of `SqlQuestions`.
    """
    info = trajectory.turns[-1].info
    thoughts = thoughts_of([written_text(turn.action) for turn in trajectory.turns])[-2:]
    parts = [
        info.get("question", ""),
        info.get("evidence", ""),
        *thoughts,
        info.get("answer") or "no solution",
        info.get("preview", ""),
    ]
    return [user("\n".join(part for part in parts if part) + "\n")]


def solution_result(trajectory: Trajectory) -> str | None:
    """A text that is the same for solutions with equal sets of rows; None: no result."""
    return trajectory.turns[-1].info.get("result")
