"""`RejectionSampling`: the accepted rollouts of the policy with which a phase starts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.storage import jsonl, trajectory_log
from agentrl_jax.training.config import ExperienceIterator, RunContext
from agentrl_jax.training.shuffled_batches import ShuffledBatches
from agentrl_jax.training.sources import Demonstrations, MixedIterator, Rollouts
from agentrl_jax.trajectories import Group, Trajectory


def has_succeeded(trajectory: Trajectory) -> bool:
    """Known to have succeeded."""
    return trajectory.succeeded is True


@dataclass
class RejectionSampling:
    """Shuffled batches of the accepted rollouts of the newest weights.

    Before the phase's first step, `rounds` x `rollouts.tasks` tasks are played with the weights
    that the phase before left in the engine, and what `accept` accepts is written into the run
    folder. With `demonstrations` every step has a batch of those too.

    A phase of it, with a cloning loss and the weights of a base phase as its start, is an iteration
    of AgentEvol (arXiv 2406.04151); several in a row are its rounds.
    """

    rollouts: Rollouts = field(default_factory=Rollouts)
    rounds: int = 8
    batch: int = 32  # accepted trajectories per step
    accept: Callable[[Trajectory], bool] = has_succeeded
    demonstrations: Demonstrations | None = None
    on_policy: bool = field(default=False, init=False)

    def open(self, run: RunContext) -> ExperienceIterator:
        if min(self.rounds, self.batch) < 1:
            raise UserError("rejection sampling needs rounds and batch >= 1")
        path = run.run_dir / "accepted" / f"{run.phase}.jsonl"
        if not run.process_group.all_gather("whether there are rollouts", path.exists())[0]:
            self._write_accepted(run, path)
        accepted = [record.trajectory for record in trajectory_log.read(path)]
        if len(accepted) < self.batch:
            raise UserError(
                f"{len(accepted)} of {self.rounds} x {self.rollouts.tasks} tasks' rollouts are "
                f"accepted, fewer than one batch of {self.batch}: play more rounds, or train the "
                "policy longer before"
            )
        iterator = ShuffledBatches(
            accepted,
            self.batch,
            seed_of(run.experiment.seed, 5),
            lambda trajectory: Group(trajectory.task, (trajectory,)),
            run.process_group,
        )
        if self.demonstrations is None:
            return iterator
        return MixedIterator(iterator, self.demonstrations.open(run))

    def _write_accepted(self, run: RunContext, path: Path) -> None:
        processes = run.process_group
        path.parent.mkdir(exist_ok=True)
        parts = [path.with_suffix(f".{p}.unfinished") for p in range(processes.count)]
        part = parts[processes.index]
        part.unlink(missing_ok=True)
        trajectory_log.write(part, [], 0, path.stem)
        iterator = self.rollouts.open(run)
        for step in range(self.rounds):
            accepted = [
                trajectory
                for group in iterator.next(step)
                for trajectory in group.trajectories
                if trajectory.turns and self.accept(trajectory)
            ]
            trajectory_log.write(part, accepted, step, path.stem)
        with processes.coordinator_first("accepted rollouts"):
            if processes.is_coordinator:
                jsonl.merge(parts, path, lambda line: (line["step"], line["group"], line["sample"]))
