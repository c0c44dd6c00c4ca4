"""`Evaluations`: the evaluation episodes of a run, in a file for each player and environment."""

from collections.abc import Callable
from pathlib import Path

from agentrl_jax.rollout.runtime import Runtime, Strategy
from agentrl_jax.storage import jsonl, trajectory_log
from agentrl_jax.storage.digests import file_damage, forget_digest
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.evaluation import play_all
from agentrl_jax.training.run_environments import evaluation_sources
from agentrl_jax.training.task_source import numbered
from agentrl_jax.trajectories import Trajectory


class Evaluations:
    """Plays every player in every environment of `sources`, and reads what was played."""

    def __init__(
        self, experiment: Experiment, folder: Path, runtime: Runtime, log: Callable[[str], None]
    ) -> None:
        """All processes of a run play together.

        Args:
            experiment: the config of the run.
            folder: for the files.
            runtime: that plays.
            log: receives what is evaluated.
        """
        self.sources = evaluation_sources(experiment)  # by label
        self._experiment, self._folder = experiment, folder
        self._runtime, self._log = runtime, log

    def is_complete(self, name: str) -> bool:
        """Whether a player has been evaluated in every environment."""
        return all(self._is_intact(self._path(name, label)) for label in self.sources)

    def play(self, name: str, player: str | None = None, strategy: Strategy | None = None) -> None:
        """Play the episodes that are not written yet, and write their trajectories.

        Args:
            name: of the player in files and tables.
            player: a scripted policy; None: the policy.
            strategy: how the policy plays; None: independent episodes of the agent "policy".
        """
        for label in self.sources:
            self._play_in(label, name, player, strategy)

    def _play_in(
        self, label: str, name: str, player: str | None, strategy: Strategy | None
    ) -> None:
        """`play` in the environment with this label."""
        processes, config = self._runtime.process_group, self._experiment.evaluation
        path, where = self._path(name, label), f" in {label}" if label else ""
        if processes.all_gather(f"whether {name} is evaluated{where}", self._is_intact(path))[0]:
            return
        if path.exists():
            self._log(f"{path} is damaged ({file_damage(path)}): its episodes are played again")
        episodes = self.sources[label].fixed_tasks(
            config.episodes, config.seed, self._experiment.environment
        )
        tasks = numbered(episodes, label=label)
        self._log(f"evaluating {name} on {len(tasks)} episodes{where}")
        trajectories = play_all(
            self._runtime, tasks, config.seed, player, config.temperature, strategy
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        parts = [path.with_suffix(f".{p}.unfinished") for p in range(processes.count)]
        local_part = parts[processes.index]
        local_part.unlink(missing_ok=True)
        trajectory_log.write(local_part, trajectories, 0, f"evaluation of {name}")
        count = sum(processes.all_gather(f"evaluation of {name}", len(trajectories)))
        if count < len(tasks):
            self._log(
                f"{len(tasks) - count} of these episodes failed at every attempt: "
                f"{name} is evaluated on the others"
            )
        with processes.coordinator_first(f"trajectories of {name}"):
            if processes.is_coordinator:
                jsonl.merge(parts, path, lambda line: line["group"])

    def trajectories(self, name: str, label: str) -> list[Trajectory]:
        """What a player has played in the environment with this label."""
        return [record.trajectory for record in trajectory_log.read(self._path(name, label))]

    def all_trajectories(self, name: str) -> list[Trajectory]:
        """What a player has played in all environments."""
        return [x for label in self.sources for x in self.trajectories(name, label)]

    def delete(self, name: str) -> None:
        """Forget what a player has played."""
        for label in self.sources:
            if (path := self._path(name, label)).exists():
                forget_digest(path)
                path.unlink()

    def _is_intact(self, path: Path) -> bool:
        return path.exists() and not file_damage(path)

    def _path(self, name: str, label: str) -> Path:
        return self._folder / label / f"{name}.jsonl"
