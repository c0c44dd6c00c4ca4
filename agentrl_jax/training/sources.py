"""Sources of experience: rollouts of the policy, demonstrations, and both together."""

import copy
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrl_jax.config_tree import OMITTED_AT_DEFAULT
from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.rollout.episode_counts import conserved_episodes
from agentrl_jax.rollout.runtime import Runtime, Strategy
from agentrl_jax.rollout.strategy import (
    IndependentEpisodes,
    find_pieces,
    load_pieces,
    save_pieces,
)
from agentrl_jax.training.config import ExperienceIterator, Experiment, RunContext
from agentrl_jax.training.demonstrations import DemonstrationIterator
from agentrl_jax.training.task_source import TaskIterator, TaskSource, numbered, round_key
from agentrl_jax.trajectories import Group


@dataclass
class Demonstrations:
    """Shuffled batches of the experiment's demonstrations."""

    batch: int = 128
    # Filtered behavior cloning: only the fraction with the highest returns is used.
    top_fraction: float = 1.0
    successful_only: bool = False  # only successful episodes are used
    on_policy: bool = field(default=False, init=False)

    def open(self, run: RunContext) -> ExperienceIterator:
        assert run.demonstrations is not None, "the experiment has no demonstrations"
        return DemonstrationIterator(
            run.demonstrations,
            run.agent,
            self.batch,
            seed_of(run.experiment.seed, 1),
            run.process_group,
            self.top_fraction,
            self.successful_only,
        )


@dataclass
class NoExperience:
    """The source of a phase that needs none: its steps get no groups."""

    on_policy: bool = field(default=False, init=False)

    def open(self, run: RunContext) -> ExperienceIterator:
        return EmptyIterator()


class EmptyIterator(ExperienceIterator):
    def next(self, step: int) -> list[Group]:
        return []


@dataclass
class Rollouts:
    """Fresh groups from the engine: `tasks` tasks per step, each played by the strategy."""

    tasks: int = 32
    strategy: Strategy = field(default_factory=IndependentEpisodes)
    # Where tasks come from (`TaskSet`, `Mixture`, `TaskFile`); None: every task is a new one of the
    # experiment's environment.
    task_source: TaskSource | None = None
    # step -> turns after which an episode is truncated (`schedules.IntervalSchedule`)
    max_turns: Callable[[int], float] | None = None
    # Applied to each group alone. Dropped groups are replaced by those of further rounds, up to
    # `max_rounds`: DAPO's dynamic sampling (arXiv 2503.14476).
    group_filter: Callable[[Sequence[Group]], Sequence[Group]] | None = None
    max_rounds: int = 1
    on_policy: bool = field(default=True, init=False)

    def check(self, location: str) -> None:
        """Raises UserError for fields that cannot be used; `location` is where it stands."""
        if min(self.tasks, self.max_rounds) < 1 or (
            self.group_filter is None and self.max_rounds > 1
        ):
            raise UserError(
                f"{location}: rollouts need tasks and max_rounds >= 1, and max_rounds > 1 only "
                "with a group_filter"
            )
        if not isinstance(self.strategy, Strategy):
            raise UserError(
                f"{self.strategy!r} is no rollout strategy: it has no "
                "`async def collect(task, runtime, key) -> Group`"
            )

    def open(self, run: RunContext) -> ExperienceIterator:
        self.check(f"config.phases.{run.phase}.source")
        iterator = RolloutIterator(self, run.runtime, run.experiment)
        for piece in find_pieces(iterator.strategy):
            piece.attach(run)
        return iterator


class RolloutIterator(ExperienceIterator):
    """The groups of `Rollouts`: a function of the run's seed, the step, and the state of the task
    source, the turn limit and the strategy.
    """

    def __init__(self, config: Rollouts, runtime: Runtime, experiment: Experiment) -> None:
        self._config, self._runtime, self._experiment = copy.deepcopy(config), runtime, experiment
        self.strategy = self._config.strategy
        self._task_source = config.task_source or experiment.environment
        self._labels, self._tasks = open_tasks(self._task_source, experiment)

    @property
    def labels(self) -> Sequence[str]:
        return self._labels

    def next(self, step: int) -> list[Group]:
        config, processes = self._config, self._runtime.process_group
        runtime = self._with_turn_limit(step)
        collected: list[Group] = []
        for round_index in range(config.max_rounds):
            groups = self._collect_round(runtime, step, round_index)
            if config.group_filter:
                groups = [g for group in groups for g in config.group_filter([group])]
            collected += groups
            if sum(processes.all_gather("groups kept", len(collected))) >= config.tasks:
                break
        self._update_pieces(config.max_turns, "turns", collected)
        if config.group_filter is None:
            return collected
        counts = processes.all_gather("groups", len(collected))
        order = processes.interleave([[(p, i) for i in range(n)] for p, n in enumerate(counts)])
        return [collected[i] for p, i in order[: config.tasks] if p == processes.index]

    def _with_turn_limit(self, step: int) -> Runtime:
        """The runtime, its agents with the turn limit of the step."""
        if not self._config.max_turns:
            return self._runtime
        turns = int(self._config.max_turns(step))
        agents = {
            name: dataclasses.replace(agent, limits=dataclasses.replace(agent.limits, turns=turns))
            for name, agent in self._runtime.agents.items()
        }
        return self._runtime.with_agents(agents)

    def _collect_round(self, runtime: Runtime, step: int, round_index: int) -> list[Group]:
        config, processes = self._config, runtime.process_group
        tasks = numbered(self._tasks.draw(step, round_index, config.tasks))
        key = (self._experiment.seed, *round_key(step, round_index))
        before = runtime.episode_counts.totals
        groups = runtime.collect(config.strategy, tasks, key)
        episodes = runtime.episode_counts.totals.since(before)
        runtime.invariants.check(conserved_episodes, episodes, groups)
        self._update_pieces(config.strategy, "what the strategy learns", groups)
        if self._task_source.learns:
            local_rates = [_success_rate(group) for group in groups]
            rates = processes.interleave(processes.all_gather("successes", local_rates))
            self._tasks.observe(rates)
        return groups

    def metrics(self) -> dict[str, float]:
        """Those of the task source, as tasks/<name>."""
        return {f"tasks/{name}": value for name, value in self._tasks.metrics().items()}

    def _update_pieces(self, slot: Any, label: str, groups: Sequence[Group]) -> None:
        """Let the pieces of a slot learn from the groups of all processes."""
        for piece in find_pieces(slot):
            summary = piece.summarize(groups)
            if summary is not None:
                piece.update(self._runtime.process_group.all_gather(label, summary))

    def _stateful_slots(self) -> dict[str, Any]:
        """The slots that may hold pieces with a state, by their keys in a checkpoint."""
        config = self._config
        return {"max_turns": config.max_turns, "strategy": config.strategy}

    def state(self) -> Any:
        """The states of the task source, the turn limit and the strategy; None without any."""
        slots = {name: save_pieces(slot) for name, slot in self._stateful_slots().items()}
        states = {name: saved for name, saved in slots.items() if saved}
        tasks = self._tasks.state()
        return (states if tasks is None else {**states, "tasks": tasks}) or None

    def load(self, state: Any) -> None:
        state = state or {}
        for name, slot in self._stateful_slots().items():
            if name in state:
                load_pieces(slot, state[name])
        if "tasks" in state:
            self._tasks.load(state["tasks"])


def open_tasks(source: TaskSource, experiment: Experiment) -> tuple[list[str], TaskIterator]:
    """The labels of a source's environments, and its tasks."""
    labels = [label for label in source.labeled_environments(experiment.environment) if label]
    return labels, source.open(experiment.seed, experiment.environment)


def load_strategy(rollouts: Rollouts, state: Any) -> Strategy:
    """The rollouts' strategy with what it had learned at a checkpoint; `state` is of its feed."""
    strategy = copy.deepcopy(rollouts.strategy)
    if saved := (state or {}).get("strategy"):
        load_pieces(strategy, saved)
    return strategy


def _success_rate(group: Group) -> float | None:
    """The fraction of a group's episodes that succeeded, cut ones not among them; None without any.

    Raises:
        UserError: the environment does not report success.
    """
    outcomes = [trajectory.succeeded for trajectory in group.trajectories]
    if None in outcomes:
        raise UserError(
            f"{group.task or 'a task'} does not say whether it was solved, which a task sampler "
            "follows: use an environment that does, or leave the sampler out"
        )
    return outcomes.count(True) / len(outcomes) if outcomes else None


@dataclass
class MixedSource:
    """Rollouts together with demonstrations, for an algorithm with an imitation loss
    (`auxiliary.Imitation`) or a replay of them.
    """

    rollouts: Rollouts = field(default_factory=Rollouts)
    demonstrations: Demonstrations = field(default_factory=Demonstrations)
    # later steps have rollouts alone: a replay that begins with demonstrations
    only_first_step: bool = field(default=False, metadata=OMITTED_AT_DEFAULT)
    on_policy: bool = field(default=True, init=False)

    def open(self, run: RunContext) -> ExperienceIterator:
        rollouts, demonstrations = self.rollouts.open(run), self.demonstrations.open(run)
        return MixedIterator(rollouts, demonstrations, self.only_first_step)


@dataclass(frozen=True)
class MixedIterator(ExperienceIterator):
    """The groups of both, the rollouts first."""

    rollouts: ExperienceIterator
    demonstrations: ExperienceIterator
    only_first_step: bool = False

    @property
    def labels(self) -> Sequence[str]:
        return self.rollouts.labels

    @property
    def max_staleness(self) -> int:
        return self.rollouts.max_staleness

    def next(self, step: int) -> list[Group]:
        if self.only_first_step and step:
            return self.rollouts.next(step)
        return [*self.rollouts.next(step), *self.demonstrations.next(step)]

    def metrics(self) -> dict[str, float]:
        return {**self.rollouts.metrics(), **self.demonstrations.metrics()}

    def state(self) -> Any:
        return {"rollouts": self.rollouts.state(), "demonstrations": self.demonstrations.state()}

    def load(self, state: Any) -> None:
        self.rollouts.load(state["rollouts"])
        self.demonstrations.load(state["demonstrations"])
