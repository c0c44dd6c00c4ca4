"""`Run`: an experiment made real in its folder: demonstrations, tokenizer, policy, engine, workers."""

import asyncio
import contextlib
import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, get_args

import jax
import numpy as np
from jax.sharding import Mesh
from transformers import AutoTokenizer

from agentrl_jax import configfile, data, journal, records
from agentrl_jax.actors import Actors
from agentrl_jax.checkpoint import load_params
from agentrl_jax.delays import Delayed
from agentrl_jax.engine import Engine
from agentrl_jax.engine_pool import make_engine
from agentrl_jax.environment import make
from agentrl_jax.errors import UserError
from agentrl_jax.evaluation import flatten, play_all, strategy_of
from agentrl_jax.experiment import EnvironmentConfig, Experiment
from agentrl_jax.fitting import fitted, need_of
from agentrl_jax.hosts import Hosts
from agentrl_jax.policy import Params
from agentrl_jax.processes import Processes
from agentrl_jax.replacing import replacing
from agentrl_jax.reporting import Follower, Reporter
from agentrl_jax.rows import context_cost
from agentrl_jax.runtime import Runtime, Strategy
from agentrl_jax.sharding import first_of_each, make_mesh, slices_of
from agentrl_jax.shards import FIRST_WORLD
from agentrl_jax.speaking import Agent
from agentrl_jax.strategies import Scripted
from agentrl_jax.threads import Threads
from agentrl_jax.trajectories import Group, Sampling, StopReason, Trajectory
from agentrl_jax.workers import InProcess, Workers

LEAST_MEMORY_MB = 256


def make_workers(environment: EnvironmentConfig) -> Workers:
    """The pool that the config describes, not started yet. Raises UserError where its fields do not go together."""
    e, where = environment, "config.environment"
    if e.workers < 0 or e.reply_mb < 1 or e.retries < 0:
        raise UserError(f"{where}.workers and retries must be at least 0, and reply_mb at least 1")
    if e.memory_mb and e.memory_mb < LEAST_MEMORY_MB:
        raise UserError(f"{where}.memory_mb must be 0 (no bound) or at least {LEAST_MEMORY_MB}, so that a worker can start")
    if e.threads and not e.workers:
        raise UserError(f"{where}.threads needs {where}.workers, the number of threads, to be at least 1")
    if (e.threads or not e.workers) and (e.interpreter or e.memory_mb):
        raise UserError(f"{where}.interpreter and memory_mb are for worker processes: set workers to at least 1 and threads to False")
    if e.cluster.actors and (e.threads or not e.workers):
        raise UserError(f"{where}.cluster is for worker processes: set workers to at least 1 and threads to False")
    largest, memory = e.reply_mb * 2**20, e.memory_mb * 2**20
    if e.cluster.actors:
        pool: Workers = Actors(e.cluster, e.workers, e.interpreter, memory, largest)
    elif e.threads:
        pool = Threads(e.workers, largest)
    else:
        pool = Processes(e.workers, e.interpreter, memory, largest) if e.workers else InProcess(largest)
    return Delayed(pool, e.delay) if e.delay.seconds else pool


def make_runtime(
    environment: EnvironmentConfig,
    engines: Mapping[str, Engine] | None = None,
    agents: Mapping[str, Agent] | None = None,
    say: Callable[[str], None] | None = None,
    hosts: Hosts | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> Runtime:
    """A runtime with the config's workers, retries and deadlines."""
    return Runtime(engines or {}, agents or {}, make_workers(environment), environment.retries, environment.deadlines, say, hosts, loop)


class Run:
    """Builds what an experiment names; everything it makes is in the run folder, and is found there the next time.

    Of several hosts, which share the folder, the first makes what is made once.
    """

    def __init__(self, experiment: Experiment, run_dir: Path, quiet: bool = False, hosts: Hosts | None = None) -> None:
        self.experiment, self.run_dir, self.hosts = experiment, run_dir, hosts or Hosts()
        self.world = make(experiment.environment.name, experiment.environment.options)  # fails early, and knows its players
        self._check()
        with self.hosts.leader_first("the run folder"):
            if not self.hosts.leads and not (run_dir / "config.json").exists():
                raise UserError(f"{run_dir} is not there for process {self.hosts.index}: name a folder that all processes share")
            configfile.claim(run_dir, experiment)
        self.reporter = Reporter(run_dir, quiet) if self.hosts.leads else Follower(run_dir, quiet, self.hosts.index)
        clock = experiment.clock
        self.beside = contextlib.ExitStack()  # what sources keep open
        loop = clock.loop() if clock else None
        self.runtime = make_runtime(experiment.environment, say=self.reporter.warn, hosts=self.hosts, loop=loop)
        try:
            with self.hosts.leader_first("demonstrations"):
                self.demonstrations = self._find_demonstrations()
                self.tokenizer = self._find_tokenizer()
            self.agent = make_agent(experiment, self.tokenizer, self.world.context)
            self.policy = experiment.policy.build(len(self.tokenizer))
            self.mesh = self._make_mesh()
            self.params: Params = experiment.policy.start(self.policy, jax.random.key(experiment.seed), self.mesh)
            text = self.tokenizer.decode
            engine = make_engine(self.policy, experiment.engine, self.params, text)
            self.runtime.add("policy", self.agent, clock.paced(engine, self.runtime.run) if clock else engine)
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        """What can be known to be wrong before anything is made."""
        experiment = self.experiment
        named = [("evaluation.players", player) for player in experiment.evaluation.players]
        if experiment.demonstrations is not None and not experiment.demonstrations.path:
            named.append(("demonstrations.player", experiment.demonstrations.player))
        for where, player in named:
            if player not in self.world.players:
                raise UserError(
                    f"config.{where}: {type(self.world).__name__} has no player {player!r}, only {', '.join(self.world.players)}"
                )
        experiment.environment.deadlines.check()
        if experiment.clock and experiment.environment.workers:
            raise UserError("config.clock needs worlds of this process: set environment.workers to 0")
        make_workers(experiment.environment)
        experiment.agent.limits.check()
        experiment.policy.build(1)
        if not experiment.mesh.memory_gb:
            self._make_mesh()
        for name, phase in experiment.phases.items():
            if phase.steps < 1 or phase.checkpoint_every < 1:
                raise UserError(f"config.{name}.steps and checkpoint_every must be at least 1")

    def _make_mesh(self) -> Mesh:
        """The learner's mesh, as the config says or as the policy needs it."""
        config, engine = self.experiment.mesh, self.experiment.engine
        if not config.memory_gb:
            return make_mesh(config)
        devices = first_of_each(config.each, jax.devices()) if config.each else jax.devices()
        apart = 0 < config.each <= engine.first_device
        need = need_of(self.policy, 0 if apart else max(engine.mesh.expert, 1) * max(engine.mesh.tensor, 1))
        return make_mesh(fitted(config, need, len(devices), len(slices_of(devices))))

    def _find_demonstrations(self) -> Path | None:
        """The demonstration file; has scripted players write it where there is none."""
        config = self.experiment.demonstrations
        if config is None:
            return None
        if config.path:
            data.open_source(Path(config.path))
            return Path(config.path)
        path = self.run_dir / "demonstrations.array_record"
        if not path.exists():
            if config.episodes < 1:
                raise UserError("config.demonstrations.episodes must be at least 1")
            self.reporter.say(f"writing {config.episodes:,} demonstrations by the player {config.player!r}")
            tasks = [self.experiment.environment.task(FIRST_WORLD + i) for i in range(config.episodes)]
            groups = self.runtime.collect(Scripted(config.player), tasks, (self.experiment.seed, -1), hosts=Hosts())
            trajectories = flatten([group.trajectories for group in groups])
            records.write(path, map(records.encode, trajectories))
            returns = data.returns(trajectories)
            self.reporter.say(f"demonstrations: mean return {returns.mean():.2f}, std {returns.std():.2f}")
        return path

    def _find_tokenizer(self) -> Any:
        """The run's tokenizer; made from the demonstrations' texts where there is none."""
        folder = self.run_dir / "tokenizer"
        if not folder.exists():
            some = [] if self.demonstrations is None else data.read(self.demonstrations, limit=2000)
            tokenizer = self.experiment.tokenizer(sorted(set(data.texts(some))))
            tokenizer.save_pretrained(folder)
        return load_tokenizer(folder)

    def evaluate_phase(self, name: str, params: Params) -> None:
        """`evaluate` what a phase trained."""
        label = self.experiment.phases[name].label
        kept = self._evaluation(label).exists()
        self.evaluate(label, how=None if kept else strategy_of(self.experiment, self.run_dir, name, self.runtime, self.policy, params))

    def evaluate(self, name: str, player: str | None = None, how: Strategy | None = None) -> None:
        """Play the evaluation's worlds once and keep the trajectories; does nothing where they are kept already."""
        path = self._evaluation(name)
        if self.hosts.gather(f"whether {name} is evaluated", path.exists())[0]:
            return
        config = self.experiment.evaluation
        self.reporter.say(f"evaluating {name} on {config.episodes} worlds")
        trajectories = play_all(self.runtime, self.experiment.environment, config.episodes, config.seed, player, config.temperature, how)
        path.parent.mkdir(exist_ok=True)
        parts = [path.with_suffix(f".{p}.unfinished") for p in range(self.hosts.count)]
        parts[self.hosts.index].unlink(missing_ok=True)
        journal.write(parts[self.hosts.index], trajectories, 0, f"evaluation of {name}")
        played = sum(self.hosts.gather(f"evaluation of {name}", len(trajectories)))
        if played < config.episodes:
            self.reporter.say(f"{config.episodes - played} of these worlds failed at every attempt: {name} is judged by the others")
        with self.hosts.leader_first(f"trajectories of {name}"):
            if self.hosts.leads:
                journal.merge(parts, path, lambda line: line["seed"])

    def evaluated(self, name: str) -> list[Trajectory]:
        """The kept trajectories of an evaluation."""
        return [trajectory for _, trajectory in journal.read(self._evaluation(name))]

    def forget_evaluation(self, name: str) -> None:
        self._evaluation(name).unlink(missing_ok=True)

    def _evaluation(self, name: str) -> Path:
        return self.run_dir / "evaluations" / f"{name}.jsonl"

    def close(self) -> None:
        self.runtime.close()
        self.beside.close()
        self.reporter.close()
        self.world.close()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def make_agent(experiment: Experiment, tokenizer: Any, context: Any) -> Agent:
    """The policy's seat as the config describes it."""
    a = experiment.agent
    try:
        sampling = Sampling(a.budget, a.temperature, a.top_k, a.top_p, a.min_p)
    except ValueError as error:
        raise UserError(f"config.agent: {error}") from error
    return Agent("policy", a.renderer(tokenizer), a.context or context, sampling, limits=a.limits)


def load_tokenizer(folder: Path) -> Any:
    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} holds no tokenizer: is this the folder of a run that has started?") from error


def load_policy(run_dir: Path, phase: str | None = None) -> tuple[Experiment, Any, Any, Params]:
    """The experiment, tokenizer, policy and newest parameters of a run folder. Raises UserError where a part is missing."""
    experiment = configfile.load(run_dir)
    tokenizer = load_tokenizer(run_dir / "tokenizer")
    policy = experiment.policy.build(len(tokenizer))
    name = trained_phase(experiment, run_dir, phase)
    like = jax.eval_shape(policy.init, jax.random.key(0))
    return experiment, tokenizer, policy, load_params(run_dir / "checkpoints" / name, like)


def trained_phase(experiment: Experiment, run_dir: Path, phase: str | None = None) -> str:
    """The named phase, or the last that has a checkpoint. Raises UserError where there is none."""
    saved = [name for name in reversed(list(experiment.phases)) if (run_dir / "checkpoints" / name).is_dir()]
    if phase is not None and phase not in experiment.phases:
        raise UserError(f"{run_dir} has no phase {phase!r}, only {', '.join(experiment.phases)}")
    if not saved:
        raise UserError(f"there is no checkpoint in {run_dir}: train first")
    return phase or saved[0]


def rollout_facts(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """What the metrics of a step need to know of each group that was played; plain data, for other processes."""
    return [
        {
            "dropped": group.dropped,
            "turns_played": group.played,
            "played": [
                (float(t.total_reward), len(t.turns), len(t.calls[-1].ids) if t.calls else None, t.stop_reason, t.success, context_cost(t))
                for t in group.trajectories
            ],
        }
        for group in groups
        if {t.agent for t in group.trajectories} != {records.DEMONSTRATION}  # `Mixed` gives these beside the rollouts
    ]


def describe_rollouts(facts: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Means over the trajectories of a step, from the `rollout_facts` of all its groups."""
    dropped = {f"rollout/{name}": float(sum(group[name] for group in facts)) for name in ("dropped", "turns_played")}
    played = [trajectory for group in facts for trajectory in group["played"]]
    if not played:
        return dropped
    returns, turns, lengths, reasons, successes, costs = zip(*played)
    rows, recomputed = np.mean(costs, axis=0).tolist()
    stopped = Counter(reasons)
    wins = [success for success in successes if success is not None]
    return {
        "rollout/return": float(np.mean(returns)),
        "rollout/turns": float(np.mean(turns)),
        "rollout/length": float(np.mean([length for length in lengths if length is not None] or [0])),
        "rollout/rows": rows,
        "rollout/recomputed": recomputed,
        **dropped,
        **{f"rollout/stopped/{reason}": stopped[reason] / len(played) for reason in get_args(StopReason)},
        **({"rollout/success": float(np.mean(wins))} if wins else {}),
    }


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file that is whole or not there; numbers that JSON lacks become null."""
    with replacing(path) as unfinished:
        unfinished.write_text(json.dumps(_finite(content), indent=1) + "\n")


def _finite(x: Any) -> Any:
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        x = dataclasses.asdict(x)
    if isinstance(x, dict):
        return {key: _finite(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [_finite(value) for value in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x
