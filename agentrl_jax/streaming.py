"""`Streaming`: rollouts that go on while the trainer is at work."""

import copy
import functools
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentrl_jax.data_manager import DataManager, News
from agentrl_jax.errors import UserError
from agentrl_jax.experiment import EnvironmentConfig, Experiment, Feed, Rollouts
from agentrl_jax.runtime import Runtime
from agentrl_jax.strategies import Joining, Stateful, found
from agentrl_jax.stream import Flight, Stream
from agentrl_jax.trajectories import Group
from agentrl_jax.virtual_clock import VirtualLoop
from agentrl_jax.workers import Task

if TYPE_CHECKING:
    from agentrl_jax.run import Run


@dataclass
class Streaming:
    """Rollouts of which no token is more than `staleness` versions of the weights older than those it trains.

    With 0 the trainer and the rollouts wait for each other, as with `Rollouts` alone. `docs/asynchrony.md`.
    """

    rollouts: Rollouts = field(default_factory=Rollouts)
    staleness: int = 1
    quiet: bool = False  # nothing is in flight at a checkpoint: a run that goes on from there is one that never stopped, but it waits
    on_policy: bool = field(default=True, init=False)

    def open(self, run: "Run") -> Feed:
        """Raises UserError where something does not go together with it."""
        name, phase = next((name, phase) for name, phase in run.experiment.phases.items() if phase.source is self)
        r, experiment = self.rollouts, run.experiment
        if r.tasks < run.hosts.count or self.staleness < 0:
            raise UserError(f"{name}.source needs staleness >= 0 and rollouts.tasks >= {run.hosts.count}, a task for each process")
        if r.order or r.turns or r.keep or r.rounds != 1 or found(Joining, r.strategy) or found(Stateful, r.strategy):
            pieces = "order, turns, keep, rounds or strategies that remember"
            raise UserError(f"{name}.source streams without {pieces}, which wait for whole steps: leave them off")
        if self.staleness < phase.publish_every - 1:
            raise UserError(f"{name}.source.staleness must be at least publish_every - 1 = {phase.publish_every - 1}")
        if experiment.record_groups < r.tasks:
            raise UserError(
                f"config.record_groups must be at least {name}.source.rollouts.tasks = {r.tasks}: the index is made of the record"
            )
        mesh = experiment.engine.devices()
        if mesh.shape["tensor"] * mesh.shape["expert"] > 1 and set(mesh.devices.flat) & set(run.mesh.devices.flat):
            raise UserError("an engine whose devices compute together needs devices that the learner has not: set engine.first_device")
        number = f".{run.hosts.index}" * (run.hosts.index > 0)
        paths = run.run_dir / f"rollouts{number}.sqlite", run.run_dir / f"trajectories{number}.jsonl"
        manager = DataManager(*paths, name, run.reporter.warn, run.runtime.at)
        run.beside.callback(manager.close)
        if experiment.clock is None:
            run.runtime.serve()
        return StreamFeed(self, run.runtime, experiment, manager, phase.steps, phase.checkpoint_every if self.quiet else 0)


@dataclass
class Ledger:
    """Which tasks were used, each once: all below `first`, and some after it. Facts are [groups, episodes, turns, seconds]."""

    first: int = 0
    after: dict[int, list[float]] = field(default_factory=dict)
    sums: list[float] = field(default_factory=lambda: [0.0] * 4)  # over all below `first`

    def use(self, task: int, facts: Sequence[float]) -> None:
        """Raises AssertionError where it was used before."""
        assert task >= self.first and task not in self.after, f"task {task} was used twice"
        self.after[task] = list(facts)
        while self.first in self.after:
            self.sums = _added(self.sums, self.after.pop(self.first))
            self.first += 1

    def left(self) -> tuple[list[int], int]:
        """The tasks before the last one used that were not, and the one after that."""
        end = max(self.after, default=self.first - 1) + 1
        return [task for task in range(self.first, end) if task not in self.after], end

    def metrics(self) -> dict[str, float]:
        """Means over what was used, and over all tasks up to the first that was not: equal but for what long tasks still owe."""
        used = functools.reduce(_added, self.after.values(), self.sums)
        found: dict[str, float] = {"stream/overtaking": float(len(self.after))}
        for name, (groups, episodes, turns, seconds) in (("used", used), ("started", self.sums)):
            if groups:
                found |= {f"stream/turns_{name}": turns / max(episodes, 1), f"time/group_{name}": seconds / groups}
        return found

    def state(self) -> Any:
        return {"first": self.first, "after": [[task, facts] for task, facts in self.after.items()], "sums": self.sums}

    @classmethod
    def of(cls, state: Any) -> "Ledger":
        return cls(state["first"], {task: list(facts) for task, facts in state["after"]}, list(state["sums"]))


def _added(a: Sequence[float], b: Sequence[float]) -> list[float]:
    return [x + y for x, y in zip(a, b)]


class StreamFeed:
    """Of several processes each streams its share of every step's tasks; what was used is known to all of them."""

    def __init__(self, config: Streaming, runtime: Runtime, experiment: Experiment, manager: DataManager, steps: int, fence: int) -> None:
        self._config, self._runtime, self._experiment, self._manager = copy.deepcopy(config), runtime, experiment, manager
        self._steps, self._fence, self._mine = steps, fence, runtime.hosts.mine(range(config.rollouts.tasks))
        self._tasks_of = functools.lru_cache(config.staleness + 2)(functools.partial(tasks_of, self._config.rollouts, experiment))
        self._ledger, self._first, self._again, self._then = Ledger(), 0, list[int](), 0
        self._stream: Stream | None = None
        self._idle = ExitStack()
        self._metrics: dict[str, float] = {}

    def load(self, state: Any) -> None:
        """What was started and not used is played anew, first of all."""
        if isinstance(self._runtime.loop, VirtualLoop):
            self._runtime.loop.now = state["time"]
        self._ledger = Ledger.of(state["ledger"])
        self._again, self._then = self._ledger.left()
        self._first = self._then - len(self._again)

    def state(self) -> Any:
        return {"ledger": self._ledger.state(), "time": self._runtime.loop.time()}

    def next(self, step: int) -> list[Group]:
        self._idle.close()  # of the trainer
        runtime, config = self._runtime, self._config
        if self._stream is None:
            self._stream = stream = Stream(len(self._mine), config.staleness, self._steps, self._play, step, self._fence)
            runtime.followers.append(lambda _, version, engine: runtime.soon(stream.renew, version) if engine == "policy" else None)
        stream = self._stream
        with runtime.at("the trainer", lambda: f"waiting for the groups of step {step} ({_spelled(stream)})"):
            flights = runtime.run(stream.take(step))
        groups = [self._used(flight, step) for flight in flights]
        for told in runtime.hosts.gather("groups used", [facts_of(f, self._task(f.number)) for f in flights]):
            for task, facts in told:
                self._ledger.use(task, facts)
        age = max(step - flight.version for flight in flights)
        self._metrics = {
            **self._ledger.metrics(),
            "stream/oldest": float(age),
            **{f"stream/{k}": float(v) for k, v in stream.state.items()},
        }
        if step + 1 < self._steps:
            self._idle.enter_context(runtime.at("the trainer", lambda: f"step {step} ({_spelled(stream)})"))
        return groups

    def metrics(self) -> dict[str, float]:
        """Of the last step."""
        return self._metrics

    def _task(self, number: int) -> int:
        """The task that this process starts as its n-th."""
        step, place = divmod(number, len(self._mine))
        place = step * self._config.rollouts.tasks + self._mine[place] - self._first  # among all that are not used yet
        return self._again[place] if place < len(self._again) else self._then + place - len(self._again)

    async def _play(self, number: int) -> Group:
        id = self._task(number)
        step, place = divmod(id, self._config.rollouts.tasks)
        task = self._tasks_of(step)[place]
        self._manager.put(News(id, task.name, task.seed, "started"))
        group = await self._runtime.group(self._config.rollouts.strategy, task, (self._experiment.seed, step, place))
        self._manager.put(News(id, task.name, task.seed, "finished", played=group.trajectories))
        return group

    def _used(self, flight: Flight, step: int) -> Group:
        id, group = self._task(flight.number), flight.group
        assert group is not None
        task = self._tasks_of(id // self._config.rollouts.tasks)[id % self._config.rollouts.tasks]
        self._manager.put(News(id, task.name, task.seed, "used", step, group.trajectories))
        return group


def tasks_of(rollouts: Rollouts, experiment: Experiment, step: int) -> list[Task]:
    """The tasks of a step; each is numbered among all of the run."""
    environment: EnvironmentConfig = experiment.environment
    seeds, _ = rollouts.drawn(experiment.seed, step)
    return [environment.task(seed, group=step * rollouts.tasks + i) for i, seed in enumerate(seeds)]


def facts_of(flight: Flight, task: int) -> tuple[int, list[float]]:
    """The task with its facts for the ledger."""
    members = flight.group.trajectories if flight.group else ()
    return task, [1.0, float(len(members)), float(sum(len(t.turns) for t in members)), float(flight.ended - flight.began)]


def _spelled(stream: Stream) -> str:
    return ", ".join(f"{count} groups {name.replace('_', ' ')}" for name, count in stream.state.items())
