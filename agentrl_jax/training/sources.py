"""Sources of experience: rollouts of the policy, demonstrations, and both together."""

import copy
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.rollout.runtime import Runtime, Strategy
from agentrl_jax.rollout.strategy import (
    IndependentEpisodes,
    find_pieces,
    load_pieces,
    save_pieces,
)
from agentrl_jax.rollout.task_sampler import TaskSampler
from agentrl_jax.training.config import ExperienceIterator, Experiment, RunContext
from agentrl_jax.training.demonstrations import DemonstrationIterator
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
    distinct_tasks: int = 0  # size of the fixed task set to draw from; 0: every task is new
    task_sampler: TaskSampler | None = None  # draws from the task set; None: uniformly
    # step -> turns after which an episode is truncated (`schedules.IntervalSchedule`)
    max_turns: Callable[[int], float] | None = None
    # Applied to each group alone. Dropped groups are replaced by those of further rounds, up to
    # `max_rounds`: DAPO's dynamic sampling (arXiv 2503.14476).
    group_filter: Callable[[Sequence[Group]], Sequence[Group]] | None = None
    max_rounds: int = 1
    on_policy: bool = field(default=True, init=False)

    def sample_seeds(
        self, seed: int, step: int, round_index: int = 0
    ) -> tuple[list[int], list[int]]:
        """The environment seeds of a round, [tasks], and its indices into the task set, [tasks] or
        [] without one.
        """
        seeds = [seed_of(seed, 2, *_round_key(step, round_index), i) for i in range(self.tasks)]
        if not self.distinct_tasks:
            return seeds, []
        rng = np.random.default_rng(seeds)
        indices = (
            self.task_sampler.sample(self.distinct_tasks, self.tasks, rng)
            if self.task_sampler
            else rng.integers(self.distinct_tasks, size=self.tasks).tolist()
        )
        return [seed_of(seed, 2, index) for index in indices], indices

    def open(self, run: RunContext) -> ExperienceIterator:
        if (
            min(self.tasks, self.max_rounds) < 1
            or (self.task_sampler and not self.distinct_tasks)
            or (self.group_filter is None and self.max_rounds > 1)
        ):
            raise UserError(
                "rollouts need tasks and max_rounds >= 1, a task_sampler only with distinct_tasks, "
                "and max_rounds > 1 only with a group_filter"
            )
        if not isinstance(self.strategy, Strategy):
            raise UserError(
                f"{self.strategy!r} is no rollout strategy: it has no "
                "`async def collect(task, runtime, key) -> Group`"
            )
        iterator = RolloutIterator(self, run.runtime, run.experiment)
        for piece in find_pieces(iterator.strategy):
            piece.attach(run)
        return iterator


class RolloutIterator(ExperienceIterator):
    """The groups of `Rollouts`: a function of the run's seed, the step, and the state of the task
    sampler, the turn limit and the strategy.
    """

    def __init__(self, config: Rollouts, runtime: Runtime, experiment: Experiment) -> None:
        self._config, self._runtime, self._experiment = copy.deepcopy(config), runtime, experiment
        self.strategy = self._config.strategy

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
        seed, environment = self._experiment.seed, self._experiment.environment
        env_seeds, task_indices = config.sample_seeds(seed, step, round_index)
        tasks = [environment.task(env_seed, group=i) for i, env_seed in enumerate(env_seeds)]
        groups = runtime.collect(config.strategy, tasks, (seed, *_round_key(step, round_index)))
        self._update_pieces(config.strategy, "what the strategy learns", groups)
        if config.task_sampler:
            successes = [[bool(t.success) for t in group.trajectories] for group in groups]
            local_rates = [float(np.mean(group)) if group else None for group in successes]
            rates = processes.interleave(processes.all_gather("successes", local_rates))
            observed = [(i, rate) for i, rate in zip(task_indices, rates) if rate is not None]
            config.task_sampler.observe([i for i, _ in observed], [rate for _, rate in observed])
        return groups

    def _update_pieces(self, slot: Any, label: str, groups: Sequence[Group]) -> None:
        """Let the pieces of a slot learn from the groups of all processes."""
        for piece in find_pieces(slot):
            summary = piece.summarize(groups)
            if summary is not None:
                piece.update(self._runtime.process_group.all_gather(label, summary))

    def _stateful_slots(self) -> dict[str, Any]:
        """The slots that may hold pieces with a state, by their keys in a checkpoint."""
        config = self._config
        return {
            "task_sampler": config.task_sampler,
            "max_turns": config.max_turns,
            "strategy": config.strategy,
        }

    def state(self) -> Any:
        """The states of the task sampler, the turn limit and the strategy; None without any."""
        states = {name: save_pieces(slot) for name, slot in self._stateful_slots().items()}
        return {name: saved for name, saved in states.items() if saved} or None

    def load(self, state: Any) -> None:
        slots = self._stateful_slots()
        for name, saved in (state or {}).items():
            load_pieces(slots[name], saved)


def _round_key(step: int, round_index: int) -> tuple[int, ...]:
    """The step's part of a random key; further rounds have keys of their own."""
    return (step, round_index) if round_index else (step,)


@dataclass
class MixedSource:
    """Rollouts together with demonstrations, for an algorithm with an imitation loss
    (`auxiliary.Imitation`).
    """

    rollouts: Rollouts = field(default_factory=Rollouts)
    demonstrations: Demonstrations = field(default_factory=Demonstrations)
    on_policy: bool = field(default=True, init=False)

    def open(self, run: RunContext) -> ExperienceIterator:
        return MixedIterator(self.rollouts.open(run), self.demonstrations.open(run))


@dataclass(frozen=True)
class MixedIterator(ExperienceIterator):
    """The groups of both, the rollouts first."""

    rollouts: ExperienceIterator
    demonstrations: ExperienceIterator

    def next(self, step: int) -> list[Group]:
        return [*self.rollouts.next(step), *self.demonstrations.next(step)]

    def state(self) -> Any:
        return {"rollouts": self.rollouts.state(), "demonstrations": self.demonstrations.state()}

    def load(self, state: Any) -> None:
        self.rollouts.load(state["rollouts"])
        self.demonstrations.load(state["demonstrations"])
