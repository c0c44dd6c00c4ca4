"""Updates that were skipped since their gradient or loss was not finite, and what then follows."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from agentrl_jax.errors import UserError
from agentrl_jax.storage import trajectory_log
from agentrl_jax.trajectories import Group

MAX_NONFINITE_UPDATES = 3  # in a row, by default
NONFINITE = "nonfinite"  # of an update: 1 where it was skipped


def initial_weights_error(phase: str) -> UserError:
    """What a run stops with before the first step of a phase."""
    return UserError(
        f"the weights with which {phase} starts are not finite: look at the config's model and at "
        "the phase before"
    )


class NonfiniteUpdates:
    """Counts the skipped updates of a phase in a row, of each of its learners."""

    def __init__(self, maximum: int = MAX_NONFINITE_UPDATES) -> None:
        self._maximum = maximum
        self._in_a_row: dict[str, int] = {}  # by learner
        self.any_since_checkpoint = False

    def add(self, learner: str, updates: Sequence[Mapping[str, float]]) -> bool:
        """Add a step's updates of a learner; returns whether the maximum is reached."""
        reached = False
        for update in updates:
            skipped = update[NONFINITE] > 0
            self._in_a_row[learner] = self._in_a_row.get(learner, 0) + 1 if skipped else 0
            self.any_since_checkpoint = self.any_since_checkpoint or skipped
            reached = reached or self._in_a_row[learner] >= self._maximum
        return reached

    def error(self, metric: str, phase: str, step: int, groups_path: Path) -> UserError:
        """What the run stops with."""
        return UserError(
            f"{self._maximum} updates in a row had a gradient or loss that is not finite, the last "
            f"in step {step} of {phase} ({metric} in metrics.jsonl); the weights are those before "
            f"them, and the step's experience is in {groups_path}: look there for rewards that are "
            "too large, or lower the learning rate"
        )


def save_groups(
    run_dir: Path,
    phase: str,
    step: int,
    groups: Sequence[Group],
    process: int,
    folder: str = "nonfinite",
) -> Path:
    """Write a process's experience of a step to nonfinite/rl-7.jsonl, or, of another process than
    the coordinator, to nonfinite/rl-7.3.jsonl; or to another folder. Returns the path.
    """
    name = f"{phase}-{step}.{process}.jsonl" if process else f"{phase}-{step}.jsonl"
    path = run_dir / folder / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    trajectory_log.write(path, [t for group in groups for t in group.trajectories], step, phase)
    return path
