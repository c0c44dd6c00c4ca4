"""Small runs with asynchronous rollouts, with or without a learner, and an environment with
episodes of varied length.
"""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from support.fake_engines import FakeEngine
from support.fixtures import make_call

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.context import FullHistory
from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.environment import Environment
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.keys import seed_of
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.messages import assistant, user
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import CharacterTokenizer, byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.reporting.metric_names import METRIC_GROUPS, unknown_metrics
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.rollout.virtual_clock import VirtualClock
from agentrl_jax.storage import jsonl, trajectory_log
from agentrl_jax.storage.rollout_index import RolloutIndex
from agentrl_jax.training.agent_models import saved_models
from agentrl_jax.training.async_rollouts import AsyncRolloutIterator, AsyncRollouts
from agentrl_jax.training.builders import load_tokenizer
from agentrl_jax.training.config import (
    AgentConfig,
    DemonstrationConfig,
    EnvironmentConfig,
    EvaluationConfig,
    ExperienceIterator,
    Experiment,
    Phase,
    RunContext,
    Source,
)
from agentrl_jax.training.run_environments import make_environments
from agentrl_jax.training.sources import RolloutIterator, Rollouts
from agentrl_jax.trajectories import Call, Group, RandomKey, Sampling
from agentrl_jax.trajectory_record import TrajectoryRecord
from agentrl_jax.workers.latency import EnvLatency, WithLatency
from agentrl_jax.workers.pool import InlinePool, WorkerPool

RENDERER = TextRenderer(byte_tokenizer())
AGENT = Agent("policy", RENDERER, FullHistory(), Sampling(budget=4))


class VariedLengthEnvironment(Environment):
    """Episodes of 1 to 12 turns, depending on the seed."""

    rules = "Say anything."
    reward_bounds = (0.0, 1.0)
    scripted_policies = {name: lambda env, random: "a" for name in ("random", "expert")}  # noqa: RUF012

    def _reset(self, options: dict[str, Any]) -> Any:
        self.turns_left = int(self.np_random.integers(1, 13))
        return (user("go\n"),), {}

    def _step(self, text: str) -> Any:
        self.turns_left -= 1
        return (
            (user(f"{self.turns_left}\n"),),
            float(text == "a"),
            self.turns_left == 0,
            False,
            {"success": True} if self.turns_left == 0 else {},
        )


if "tests/Varied-v0" not in gymnasium.registry:
    gymnasium.register("tests/Varied-v0", "support.small_runs:VariedLengthEnvironment")


class KeyedEngine(FakeEngine):
    """An `Engine` that answers a or b at once, as a function of the key and the weight version."""

    def __init__(self, num_slots: int = 1000) -> None:
        self.num_slots, self.version, self.fault = num_slots, 0, None

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Any = (),
    ) -> "Future[Call]":
        future: Future[Call] = Future()
        action = RENDERER.action_ids(assistant("ab"[seed_of(*key, self.version) % 2]))
        call = make_call(ids, action, version=[self.version] * len(action))
        future.set_result(replace(call, sampling=sampling, key=key, parent=parent))
        return future

    def publish(self, params: Any, version: int, recompute: bool = False) -> None:
        self.version = version


def rollout_source(tasks: int = 3, group_size: int = 2) -> Rollouts:
    return Rollouts(tasks, IndependentEpisodes(group_size))


def async_source(
    staleness: int, tasks: int = 3, drain_at_checkpoints: bool = False
) -> AsyncRollouts:
    return AsyncRollouts(rollout_source(tasks), staleness, drain_at_checkpoints)


def small_experiment(
    source: Source, steps: int = 4, checkpoint_every: int = 100, **fields: Any
) -> Experiment:
    """The letter task with a learner on one device and a fresh policy."""
    algorithm = grpo(optimizer=AdamWConfig(1e-2), bin_length=32, microbatch=8)
    defaults: dict[str, Any] = {
        "environment": EnvironmentConfig("support.letter_task:tests/Letters-v0", workers=0),
        "engine": EngineConfig(
            rows=16, positions=32, prefill_chunk=4, min_decode_steps=3, batching_delay=0.01
        ),
        "mesh": MeshConfig(devices_per_process=1),
        "record_groups": 100,
    }
    return Experiment(
        name="letters",
        agent=AgentConfig(budget=3),
        tokenizer=CharacterTokenizer(),
        policy=DecoderConfig(layers=1, width=16, hidden=32, heads=2, kv_heads=1, head_size=8),
        demonstrations=DemonstrationConfig("random", episodes=8),
        phases={
            "rl": Phase("RL", source, algorithm, steps=steps, checkpoint_every=checkpoint_every)
        },
        evaluation=EvaluationConfig(episodes=2, players=()),
        **defaults | fields,
    )


def partial_context(**fields: Any) -> RunContext:
    """A `RunContext` with some of its fields, for sources that need no others."""
    context = object.__new__(RunContext)
    vars(context).update({"phase": "rl", **fields})
    return context


def agent_weights(experiment: Experiment, run_dir: Path, phase: str, agent: str) -> Any:
    """An agent's weights after a phase of a run, read without building its engines."""
    with contextlib.closing(make_environments(experiment)) as environments:
        tokenizer = load_tokenizer(run_dir / "tokenizer")
        models = saved_models(experiment, run_dir, tokenizer, environments.context, phase)
    return models[agent].params


def logged_metrics(run_dir: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without the metrics that depend on the clock; every name is one of
    docs/metrics.md.
    """
    lines = [line for _, line in jsonl.read_lines(run_dir / "metrics.jsonl")]
    names = {name for line in lines for name in line} - {"phase", "step"}
    unknown = unknown_metrics(names, METRIC_GROUPS)
    assert not unknown, f"add {unknown} to agentrl_jax/reporting/metric_names.py"
    return [{name: x for name, x in line.items() if not name.startswith("time/")} for line in lines]


@dataclass
class LearnerlessRun:
    """A run without a learner: it collects the groups of each step, and `train_step` replaces the
    update.
    """

    folder: Path
    source: AsyncRollouts | Rollouts
    steps: int = 6
    clock: VirtualClock | None = field(default_factory=VirtualClock)
    environment: EnvironmentConfig = field(
        default_factory=lambda: EnvironmentConfig("support.small_runs:tests/Varied-v0")
    )
    latency: EnvLatency = field(default_factory=EnvLatency)
    workers: WorkerPool | None = None
    drain_every: int = 0
    writes_log: bool = True
    train_step: Callable[[int], None] = lambda step: None
    log: Callable[[str], None] | None = None
    engine: Any = field(default_factory=KeyedEngine)
    consumed_groups: list[tuple[int, list[Group]]] = field(default_factory=list)
    metrics: list[dict[str, float]] = field(default_factory=list)
    iterator_states: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.runtime = Runtime(
            {},
            {},
            self.workers or WithLatency(InlinePool(), self.latency),
            2,
            self.environment.timeouts,
            self.log,
            loop=self.clock.make_loop() if self.clock else None,
        )
        engine = (
            self.clock.wrap_engine(self.engine, self.runtime.run) if self.clock else self.engine
        )
        self.runtime.add_agent("policy", AGENT, engine)
        self.rollout_index = RolloutIndex(
            self.folder / "rollouts.sqlite",
            self.read_log,
            "rl",
            self.log or print,
            self.runtime.track_work,
        )

    @property
    def trajectory_log_path(self) -> Path:
        return self.folder / "trajectories.jsonl"

    def read_log(self) -> Iterator[TrajectoryRecord]:
        path = self.trajectory_log_path
        return trajectory_log.read_files([path] if path.exists() else [])

    @property
    def versions(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """The step, task and token versions of each used group."""
        return [
            (
                step,
                group.trajectories[0].group,
                tuple(
                    sorted({int(v) for t in group.trajectories for c in t.calls for v in c.version})
                ),
            )
            for step, groups in self.consumed_groups
            for group in groups
        ]

    @property
    def tasks(self) -> list[int]:
        return [task for _, task, _ in self.versions]

    def make_iterator(self) -> ExperienceIterator:
        experiment = small_experiment(
            self.source, self.steps, environment=self.environment, clock=self.clock
        )
        if isinstance(self.source, Rollouts):
            return RolloutIterator(self.source, self.runtime, experiment)
        if self.clock is None:
            self.runtime.start_loop_thread()
        return AsyncRolloutIterator(
            self.source, self.runtime, experiment, self.rollout_index, self.steps, self.drain_every
        )

    def run(
        self, start_step: int = 0, iterator_state: Any = None, end_step: int | None = None
    ) -> "LearnerlessRun":
        """Train from `start_step` on, and close the run."""
        try:
            self.runtime.publish(None, start_step)
            iterator = self.make_iterator()
            if iterator_state is not None:
                iterator.load(iterator_state)
            for step in range(start_step, self.steps if end_step is None else end_step):
                groups = iterator.next(step)
                self.consumed_groups.append((step, groups))
                self.train_step(step)
                self.runtime.publish(None, step + 1)
                if self.writes_log:
                    trajectory_log.write(
                        self.trajectory_log_path,
                        [t for group in groups for t in group.trajectories],
                        step,
                        "rl",
                    )
                if isinstance(iterator, AsyncRolloutIterator):
                    self.metrics.append(iterator.metrics())
                self.iterator_states.append(iterator.state())
        finally:
            self.close()
        return self

    def close(self) -> None:
        self.runtime.close()
        self.rollout_index.close()
