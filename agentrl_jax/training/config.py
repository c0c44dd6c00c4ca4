"""`Experiment`: the complete description of a run as one plain dataclass."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from jax.sharding import Mesh

from agentrl_jax.config_tree import OMITTED_AT_DEFAULT
from agentrl_jax.context import ContextManager
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.external import external
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.policy import Params, Policy
from agentrl_jax.renderer import Renderer, TextRenderer
from agentrl_jax.rollout.agent import Agent, Limits
from agentrl_jax.rollout.named_models import ModelConfig
from agentrl_jax.rollout.runtime import Runtime, Strategy
from agentrl_jax.rollout.virtual_clock import VirtualClock
from agentrl_jax.sandbox.worker_confinement import WorkerSandbox
from agentrl_jax.timeouts import Timeouts
from agentrl_jax.training.algorithm import AlgorithmConfig, OtherModelConfig, PerAgent
from agentrl_jax.training.best_checkpoint import BestCheckpointConfig
from agentrl_jax.training.task_source import EnvironmentSpec, TaskSource
from agentrl_jax.trajectories import Group
from agentrl_jax.trajectory_record import TrajectoryRecord
from agentrl_jax.workers.latency import EnvLatency
from agentrl_jax.workers.ray_pool import ClusterConfig


@runtime_checkable
class PolicyConfig(Protocol):
    """A dataclass that describes a model."""

    def build(self, vocab_size: int) -> Policy: ...

    def initial_params(self, policy: Any, key: Any, mesh: Any) -> Params:
        """The initial parameters of the policy, on the mesh: random, or a checkpoint's."""
        ...


@dataclass
class EnvironmentConfig(EnvironmentSpec):
    """The environment, and the workers that run it and those that task sources name."""

    # A Gymnasium id, with the module that registers it; empty: there is no environment, phases
    # train on files alone, and nothing is evaluated.
    name: str = "agentrl_jax.envs:agentrl/Wordle-v0"
    workers: int = 1  # processes (per node of a cluster) or threads; 0: inline, in this process
    # Workers are threads, each with one call at a time: for environments that wait for I/O.
    threads: bool = False
    # Python of the worker processes, with this package but not necessarily JAX; empty: this one.
    interpreter: str = field(default="", metadata=external("program"))
    # By an environment's name, where its packages conflict; each has `workers` processes.
    interpreters: dict[str, str] = field(
        default_factory=dict, metadata={**OMITTED_AT_DEFAULT, **external("program")}
    )
    # Resident memory of a worker process with all that it started, on Linux: one that has more is
    # replaced, and its episode has failed. 0: DEFAULT_MEMORY_MB, -1: unlimited.
    memory_mb: int = 0
    # Environment variables of worker processes beyond those of `workers.variables`.
    pass_variables: tuple[str, ...] = field(default=(), metadata=OMITTED_AT_DEFAULT)
    # Worker processes read and write little, and have no network; off unless enabled.
    sandbox: WorkerSandbox = field(default_factory=WorkerSandbox, metadata=OMITTED_AT_DEFAULT)
    reply_mb: int = 64  # maximal size of an environment's reply
    # Text of a turn at most; a longer one fails the episode or is cut (`truncate_observations`).
    observation_kb: int = field(default=1024, metadata=OMITTED_AT_DEFAULT)
    truncate_observations: bool = field(default=False, metadata=OMITTED_AT_DEFAULT)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)  # Ray nodes; off unless set
    delay: EnvLatency = field(default_factory=EnvLatency)  # added to each reply, for experiments
    retries: int = 2  # fresh environment instances for an episode whose environment failed
    timeouts: Timeouts = field(default_factory=Timeouts)


@dataclass
class AgentConfig:
    """How an agent acts: its prompts, its sampling and its weights."""

    renderer: Callable[[Any], Renderer] = TextRenderer
    context: ContextManager | None = None  # None: the environment's default
    budget: int = 64  # tokens per call
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    limits: Limits = field(default_factory=Limits)  # of an episode; off unless set
    # The two below are for `Experiment.agents`. The agent with whose weights it plays; empty:
    # weights of its own.
    shares: str = ""
    policy: PolicyConfig | None = None  # its model; None: the experiment's


@dataclass
class DemonstrationConfig:
    """Episodes of a scripted policy, or a file of them."""

    player: str = "mixture"  # a scripted policy of the environment
    episodes: int = 10_000
    # An ArrayRecord file, a dataset folder (docs/datasets.md), or a file, folder or dataset of
    # another program (docs/data_formats.md); empty: a file is written into the run folder.
    path: str = ""
    # Whose tasks are demonstrated (a `Mixture`'s in equal numbers); None: the environment's.
    task_source: TaskSource | None = None


class ExperienceIterator:
    """The groups of a phase, step by step.

    Each process of a run has an iterator of its own; the states of all are equal at all times.
    """

    @property
    def labels(self) -> Sequence[str]:
        """Of the environments in a mixture; each has metrics of its own."""
        return ()

    @property
    def max_staleness(self) -> int:
        """Steps by which the weights that sampled a step's tokens may lag behind its own, beyond
        those since the last publication.
        """
        return 0

    def next(self, step: int) -> list[Group]:
        """This process's groups of the step."""
        raise NotImplementedError

    def metrics(self) -> dict[str, float]:
        """Metrics of the last step."""
        return {}

    def state(self) -> Any:
        """Plain JSON data for a checkpoint."""
        return None

    def load(self, state: Any) -> None:
        """Restore what `state` returned."""


@runtime_checkable
class Source(Protocol):
    """A dataclass that describes where a phase's experience comes from."""

    on_policy: bool  # the engine must hold the newest weights before each step

    def open(self, run: "RunContext") -> ExperienceIterator: ...


@runtime_checkable
class Start(Protocol):
    """A dataclass that computes the weights with which a phase starts, from those of phases
    (`models.weight_averaging.Interpolation`).
    """

    def phases(self) -> Sequence[str]:
        """The names of the phases whose weights it takes."""
        ...

    def params(self, load: Callable[[str], Params]) -> Params:
        """The weights; `load` gives those at the end of a named phase."""
        ...


@dataclass
class Phase:
    """A number of steps of an algorithm on a source.

    Its checkpoints are in the folder `checkpoints/<its name>` of the run folder.
    """

    label: str  # the name of the trained policy in tables
    source: Source
    algorithm: AlgorithmConfig | PerAgent
    steps: int = 100
    checkpoint_every: int = 50
    # Steps between publications of the weights to the engine; above 1 it samples with older ones.
    publish_every: int = 1
    # How the trained policy plays in its evaluation; None: with the best strategy that its rollouts
    # learned, or else independent episodes.
    evaluation_strategy: Strategy | None = None
    # The earlier phase with whose weights it starts; empty: the newest weights of its agent.
    start: str | Start = ""
    agent: str = "policy"  # whose weights it trains, where `algorithm` is a single one
    # Steps between evaluations of the current weights while training; 0: none. The last step is
    # evaluated too. See `EvaluationConfig.training_episodes`.
    evaluate_every: int = field(default=0, metadata=OMITTED_AT_DEFAULT)
    best: BestCheckpointConfig = field(
        default_factory=BestCheckpointConfig, metadata=OMITTED_AT_DEFAULT
    )

    @property
    def trained_agents(self) -> tuple[str, ...]:
        """The agents whose weights it trains; none where it trains another model."""
        if isinstance(self.algorithm, PerAgent):
            return tuple(self.algorithm.algorithms)
        return () if isinstance(self.algorithm, OtherModelConfig) else (self.agent,)

    def source_agent(self, agent: str) -> str | None:
        """The agent with whose weights after this phase `agent` may start: itself, or the only one
        that the phase trains; None: there is none.
        """
        agents = self.trained_agents
        if agent in agents:
            return agent
        return agents[0] if len(agents) == 1 else None

    def rows(self) -> dict[str, str]:
        """The labels of its rows in the evaluation table, and the agent that each evaluates: one
        row, or one for each of several agents that have no common evaluation strategy.
        """
        agents = self.trained_agents
        if len(agents) > 1 and self.evaluation_strategy is None:
            return {f"{self.label} ({agent})": agent for agent in agents}
        return {self.label: agents[0]} if agents else {}

    @property
    def start_phases(self) -> Sequence[str]:
        """The phases whose weights it starts with."""
        if isinstance(self.start, str):
            return [self.start] if self.start else []
        return self.start.phases()


@dataclass
class EvaluationConfig:
    """The environment seeds, the same for every player: `seed`, `seed` + 1, ..."""

    # In each environment; 0: nothing is evaluated.
    episodes: int = 512
    seed: int = 1_000_000_000
    players: tuple[str, ...] = ("random", "mixture", "expert")  # scripted policies
    temperature: float = 1.0
    # Where the players are evaluated, by label; empty: the experiment's environment.
    environments: Mapping[str, TaskSource] = field(default_factory=dict)
    # Of each evaluation while training (`Phase.evaluate_every`), in each environment.
    training_episodes: int = field(default=64, metadata=OMITTED_AT_DEFAULT)
    # Their first environment seed: above those of training (below 2 ** 31), of the evaluation after
    # a phase (`seed`) and of demonstrations (from 2,000,000,000 on).
    training_seed: int = field(default=3_000_000_000, metadata=OMITTED_AT_DEFAULT)


@dataclass
class Experiment:
    """Demonstrations, then phases in their order, each followed by an evaluation."""

    name: str
    policy: PolicyConfig
    tokenizer: Callable[[Sequence[str]], Any]  # from the texts of the demonstrations
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)  # the one called "policy"
    agents: dict[str, AgentConfig] = field(default_factory=dict)  # all others
    models: dict[str, ModelConfig] = field(default_factory=dict)  # that may be asked, by name
    # None: a phase that reads them cannot be opened
    demonstrations: DemonstrationConfig | None = field(default_factory=DemonstrationConfig)
    phases: dict[str, Phase] = field(default_factory=dict)  # in the order in which they are trained
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    seed: int = 0
    record_groups: int = 2  # groups of each step that are recorded in the folder trajectories/
    # Of a process's recorded trajectories; beyond it the oldest are deleted.
    record_mib: int = field(default=2048, metadata=OMITTED_AT_DEFAULT)
    # Time is simulated instead of measured, so that an asynchronous run is reproducible.
    clock: VirtualClock | None = None

    @property
    def agent_configs(self) -> dict[str, AgentConfig]:
        """All agents by name."""
        return {"policy": self.agent, **self.agents}

    @property
    def default_run_dir(self) -> Path:
        return Path("runs") / self.name


@dataclass(frozen=True)
class RunContext:
    """What a source, and the pieces of its strategy, may use of the run that opens it."""

    experiment: Experiment
    run_dir: Path
    phase: str  # the name of the phase whose source is opened
    runtime: Runtime
    agent: Agent  # that the phase trains, the first of several
    policy: Policy  # of that agent
    params: Params  # and its initial parameters
    tokenizer: Any
    mesh: Mesh  # the learner's
    demonstrations: Path | None  # a file or a dataset folder
    warn: Callable[[str], None]  # reports a failure in this process
    # What this process has recorded in the trajectory log.
    read_trajectories: Callable[[], Iterator[TrajectoryRecord]]
    exit_stack: contextlib.ExitStack  # closed with the phase

    @property
    def process_group(self) -> ProcessGroup:
        return self.runtime.process_group
