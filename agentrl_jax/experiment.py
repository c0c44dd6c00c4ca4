"""`Experiment`: everything a run is made of, as one plain dataclass."""

import copy
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from agentrl_jax.actors import ClusterConfig
from agentrl_jax.algorithm import AlgorithmConfig
from agentrl_jax.context import ContextManager
from agentrl_jax.data import DemonstrationFeed
from agentrl_jax.deadlines import Deadlines
from agentrl_jax.delays import Delay
from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.local_engine import EngineConfig
from agentrl_jax.policy import Params, Policy
from agentrl_jax.rendering import Renderer, TextRenderer
from agentrl_jax.runtime import Runtime, Strategy
from agentrl_jax.sharding import MeshConfig
from agentrl_jax.speaking import Limits
from agentrl_jax.strategies import Independent, Joining, Remembering, Stateful, found
from agentrl_jax.trajectories import Group
from agentrl_jax.virtual_clock import VirtualClock
from agentrl_jax.workers import Task

if TYPE_CHECKING:
    from agentrl_jax.run import Run


@runtime_checkable
class PolicyConfig(Protocol):
    """A dataclass that describes a model."""

    def build(self, vocab_size: int) -> Policy: ...

    def start(self, policy: Any, key: Any, mesh: Any) -> Params:
        """The parameters that training starts from, of the policy it built: fresh ones, or a checkpoint's over the mesh."""
        ...


@dataclass
class EnvironmentConfig:
    name: str = "agentrl_jax.envs:agentrl/Wordle-v0"  # a Gymnasium id, with the module that registers it
    options: dict[str, Any] = field(default_factory=dict)  # of its constructor
    workers: int = 1  # processes (on a cluster, of each actor) or threads; 0: this process, without either
    threads: bool = False  # workers are threads of this process: for worlds that wait for something outside, one call each at a time
    interpreter: str = ""  # of worker processes: a python that has this package, JAX not needed; empty: this one
    memory_mb: int = 0  # that a worker process may address; 0: no bound
    reply_mb: int = 64  # the longest answer of a world
    cluster: ClusterConfig = field(default_factory=ClusterConfig)  # worker processes on the nodes of a Ray cluster; off unless set
    delay: Delay = field(default_factory=Delay)  # that its answers take more, for experiments with slow worlds; off unless set
    retries: int = 2  # fresh worlds for an episode whose world failed
    deadlines: Deadlines = field(default_factory=Deadlines)

    def task(self, seed: int, group: int = 0) -> Task:
        return Task(self.name, seed, self.options, group=group)


@dataclass
class AgentConfig:
    """How the policy speaks. `context` None: as the environment suggests."""

    renderer: Callable[[Any], Renderer] = TextRenderer
    context: ContextManager | None = None
    budget: int = 64  # tokens a call
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    limits: Limits = field(default_factory=Limits)  # of an episode; off unless set


@dataclass
class DemonstrationConfig:
    player: str = "mixture"  # of the environment
    episodes: int = 10_000
    path: str = ""  # an ArrayRecord file, or a data set's folder (docs/datasets.md); empty: a file is written into the run folder


@runtime_checkable
class Feed(Protocol):
    """Where a phase's experience comes from. Of several processes each has its own, and all are always in the same state."""

    def next(self, step: int) -> list[Group]:
        """This process's groups of the step."""
        ...

    def state(self) -> Any: ...

    def load(self, state: Any) -> None: ...


@runtime_checkable
class Telling(Protocol):
    """A feed with metrics of its own."""

    def metrics(self) -> dict[str, float]:
        """Of the last step."""
        ...


@runtime_checkable
class Source(Protocol):
    """A dataclass that opens its feed. `on_policy`: the engine must hold the newest weights before each step."""

    on_policy: bool

    def open(self, run: "Run") -> Feed: ...


@dataclass
class Demonstrations:
    """Shuffled batches of the experiment's demonstrations."""

    batch: int = 128
    best: float = 1.0  # the share of them that is drawn from, those of the highest returns (filtered behaviour cloning)
    won: bool = False  # only of those that succeeded
    on_policy: bool = field(default=False, init=False)

    def open(self, run: "Run") -> Feed:
        assert run.demonstrations is not None, "the experiment has no demonstrations"
        return DemonstrationFeed(run.demonstrations, run.agent, self.batch, seed_of(run.experiment.seed, 1), run.hosts, self.best, self.won)


@runtime_checkable
class Worlds(Protocol):
    """Which of a fixed number of worlds are played, and what became of them (`schedules.SuccessDriven`)."""

    def choose(self, worlds: int, count: int, rng: np.random.Generator) -> list[int]: ...

    def learn(self, worlds: Sequence[int], successes: Sequence[float]) -> None:
        """The share of each world's episodes that succeeded."""
        ...

    def state(self) -> Any: ...

    def load(self, state: Any) -> None: ...


@runtime_checkable
class Observing(Protocol):
    """A schedule that follows a number (`schedules.RaiseOnPlateau`: the mean length of episodes)."""

    def observe(self, number: float) -> None: ...


@dataclass
class Rollouts:
    """Fresh groups from the engine: `tasks` worlds a step, each played by the strategy."""

    tasks: int = 32
    strategy: Strategy = field(default_factory=Independent)
    worlds: int = 0  # different ones in all, drawn anew each step; 0: no world comes twice
    order: Worlds | None = None  # which of them are drawn; None: any, equally likely
    turns: Callable[[int], float] | None = None  # step -> turns after which an episode is cut (`schedules.Stepped`)
    keep: Callable[[Sequence[Group]], Sequence[Group]] | None = None  # asked of each group alone; what it drops is played for anew ...
    rounds: int = 1  # ... at most so often: DAPO's dynamic sampling (arXiv 2503.14476)
    on_policy: bool = field(default=True, init=False)

    def drawn(self, seed: int, step: int, rank: int = 0) -> tuple[list[int], list[int]]:
        """The seeds of a step's worlds, and which of a fixed number they are, if there is one."""
        seeds = [seed_of(seed, 2, *_ranked(step, rank), i) for i in range(self.tasks)]
        if not self.worlds:
            return seeds, []
        rng = np.random.default_rng(seeds)
        which = self.order.choose(self.worlds, self.tasks, rng) if self.order else rng.integers(self.worlds, size=self.tasks).tolist()
        return [seed_of(seed, 2, world) for world in which], which

    def open(self, run: "Run") -> Feed:
        if min(self.tasks, self.rounds) < 1 or (self.order and not self.worlds) or (self.keep is None and self.rounds > 1):
            raise UserError("rollouts need tasks and rounds >= 1, an order only with worlds, and further rounds only with a filter")
        feed = RolloutFeed(self, run.runtime, run.experiment)
        for piece in found(Joining, feed.strategy):
            piece.join(run)
        return feed


class RolloutFeed:
    """What it does follows from the run's seed and the step, but for what an order of worlds or a cap on turns has seen."""

    def __init__(self, config: Rollouts, runtime: Runtime, experiment: "Experiment") -> None:
        self._config, self._runtime, self._experiment = copy.deepcopy(config), runtime, experiment
        self.strategy = self._config.strategy

    def next(self, step: int) -> list[Group]:
        c, hosts = self._config, self._runtime.hosts
        before = dict(self._runtime.agents)
        if c.turns:
            for name, agent in before.items():
                limits = dataclasses.replace(agent.limits, turns=int(c.turns(step)))
                self._runtime.agents[name] = dataclasses.replace(agent, limits=limits)
        try:
            kept: list[Group] = []
            for rank in range(c.rounds):
                groups = self._played(step, rank)
                kept += [one for group in groups for one in c.keep([group])] if c.keep else groups
                if sum(hosts.gather("groups kept", len(kept))) >= c.tasks:
                    break
        finally:
            self._runtime.agents.update(before)
        if isinstance(c.turns, Observing):
            length = [[len(t.turns), 1] for group in kept for t in group.trajectories]
            turns, count = np.sum(hosts.gather("turns", np.sum(length or [[0, 0]], axis=0).tolist()), axis=0)
            c.turns.observe(turns / max(count, 1))
        if c.keep is None:
            return kept
        counts = hosts.gather("groups", len(kept))
        order = hosts.merged([[(p, i) for i in range(n)] for p, n in enumerate(counts)])[: c.tasks]
        return [kept[i] for p, i in order if p == hosts.index]

    def _played(self, step: int, rank: int) -> list[Group]:
        """One round of worlds."""
        c, hosts, seed, environment = self._config, self._runtime.hosts, self._experiment.seed, self._experiment.environment
        seeds, drawn = c.drawn(seed, step, rank)
        tasks = [environment.task(seed, group=i) for i, seed in enumerate(seeds)]
        groups = self._runtime.collect(c.strategy, tasks, (seed, *_ranked(step, rank)))
        for piece in found(Remembering, c.strategy):
            piece.learn(hosts.gather("what the strategy learns", piece.tell(groups)))
        if c.order:
            solved = [[bool(t.success) for t in group.trajectories] for group in groups]
            shares = hosts.merged(hosts.gather("successes", [float(np.mean(one)) if one else None for one in solved]))
            told = [(world, share) for world, share in zip(drawn, shares) if share is not None]
            c.order.learn([world for world, _ in told], [share for _, share in told])
        return groups

    def state(self) -> Any:
        """What an order, a cap on turns and a strategy remember."""
        pieces = {name: found(Stateful, getattr(self._config, name)) for name in ("order", "turns", "strategy")}
        return {name: [piece.state() for piece in some] for name, some in pieces.items() if some} or None

    def load(self, state: Any) -> None:
        for name, saved in (state or {}).items():
            for piece, one in zip(found(Stateful, getattr(self._config, name)), saved, strict=True):
                piece.load(one)


def _ranked(step: int, rank: int) -> tuple[int, ...]:
    """A step's part of a key; its later rounds have one of their own."""
    return (step, rank) if rank else (step,)


@dataclass
class Mixed:
    """Rollouts with some demonstrations beside them, for an algorithm that imitates these (`auxiliary.Imitation`)."""

    rollouts: Rollouts = field(default_factory=Rollouts)
    demonstrations: Demonstrations = field(default_factory=Demonstrations)
    on_policy: bool = field(default=True, init=False)

    def open(self, run: "Run") -> Feed:
        return MixedFeed(self.rollouts.open(run), self.demonstrations.open(run))


@dataclass(frozen=True)
class MixedFeed:
    """The groups of both, the rollouts first."""

    rollouts: Feed
    demonstrations: Feed

    def next(self, step: int) -> list[Group]:
        return [*self.rollouts.next(step), *self.demonstrations.next(step)]

    def state(self) -> Any:
        return {"rollouts": self.rollouts.state(), "demonstrations": self.demonstrations.state()}

    def load(self, state: Any) -> None:
        self.rollouts.load(state["rollouts"])
        self.demonstrations.load(state["demonstrations"])


@dataclass
class Phase:
    """So many steps of an algorithm on a source."""

    label: str  # how the table calls what it trained
    source: Source
    algorithm: AlgorithmConfig
    steps: int = 100
    checkpoint_every: int = 50
    publish_every: int = 1  # steps after which the engine gets the newest weights; more: it samples with older ones
    evaluation: Strategy | None = None  # how what it trained plays where it is judged; None: by the best that its rollouts learned


@dataclass
class EvaluationConfig:
    """The same worlds for everybody: seeds `seed`, `seed` + 1, ..."""

    episodes: int = 512
    seed: int = 1_000_000_000
    players: tuple[str, ...] = ("random", "mixture", "expert")
    temperature: float = 1.0


@dataclass
class Experiment:
    """Demonstrations -> supervised fine-tuning -> reinforcement learning -> evaluation; a part that is None is left out."""

    name: str
    policy: PolicyConfig
    tokenizer: Callable[[Sequence[str]], Any]  # from the demonstrations' texts
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    demonstrations: DemonstrationConfig | None = field(default_factory=DemonstrationConfig)
    sft: Phase | None = None
    rl: Phase | None = None
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    seed: int = 0
    record_groups: int = 2  # groups a step that go into trajectories.jsonl
    clock: VirtualClock | None = None  # time is declared and not measured, so that an asynchronous run can be repeated

    @property
    def phases(self) -> dict[str, Phase]:
        """The phases there are, in order."""
        return {name: phase for name, phase in (("sft", self.sft), ("rl", self.rl)) if phase is not None}

    @property
    def default_run_dir(self) -> Path:
        return Path("runs") / self.name
