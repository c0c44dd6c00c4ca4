"""A small run that streams, with a real learner or without any, and worlds whose episodes are short or long by their seed."""

import sys
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from hand_made import make_call

from agentrl_jax import journal
from agentrl_jax.algorithms.grpo import grpo
from agentrl_jax.context import FullHistory
from agentrl_jax.data_manager import DataManager
from agentrl_jax.delays import Delay, Delayed
from agentrl_jax.environment import Environment
from agentrl_jax.episodes import Agent
from agentrl_jax.experiment import (
    AgentConfig,
    DemonstrationConfig,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Feed,
    Phase,
    RolloutFeed,
    Rollouts,
    Source,
)
from agentrl_jax.keys import seed_of
from agentrl_jax.local_engine import EngineConfig
from agentrl_jax.messages import assistant, user
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import Characters, byte_tokenizer
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.rendering import TextRenderer
from agentrl_jax.runtime import Runtime
from agentrl_jax.strategies import Independent
from agentrl_jax.streaming import StreamFeed, Streaming
from agentrl_jax.trajectories import Call, Group, Key, Sampling
from agentrl_jax.virtual_clock import VirtualClock
from agentrl_jax.workers import InProcess, Workers

sys.path.insert(0, str(Path(__file__).parent))
RENDERER = TextRenderer(byte_tokenizer())
AGENT = Agent("policy", RENDERER, FullHistory(), Sampling(budget=4))


class Varied(Environment):
    """From 1 to 12 turns, by the seed."""

    rules = "Say anything."
    reward_bounds = (0.0, 1.0)
    players = {name: lambda env, random: "a" for name in ("random", "expert")}  # noqa: RUF012

    def _reset(self, options: dict[str, Any]) -> Any:
        self.left = int(self.np_random.integers(1, 13))
        return (user("go\n"),), {}

    def _step(self, text: str) -> Any:
        self.left -= 1
        return (user(f"{self.left}\n"),), float(text == "a"), self.left == 0, False, {"success": True} if self.left == 0 else {}


if "tests/Varied-v0" not in gymnasium.registry:
    gymnasium.register("tests/Varied-v0", "small_runs:Varied")


class Keyed:
    """Implements `Engine`: says a or b, as the key and the version of the weights have it, at once."""

    def __init__(self, places: int = 1000) -> None:
        self.places, self.version, self.fault = places, 0, None

    def submit(self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None = None, images: Any = ()) -> "Future[Call]":
        future: Future[Call] = Future()
        action = RENDERER.action_ids(assistant("ab"[seed_of(*key, self.version) % 2]))
        call = make_call(ids, action, version=[self.version] * len(action))
        future.set_result(replace(call, sampling=sampling, key=key, parent=parent))
        return future

    def release(self, call: Call) -> None: ...

    def publish(self, params: Any, version: int, recompute: bool = False) -> None:
        self.version = version

    def close(self) -> None: ...


def rollouts(tasks: int = 3, group_size: int = 2) -> Rollouts:
    return Rollouts(tasks, Independent(group_size))


def streaming(staleness: int, tasks: int = 3, quiet: bool = False) -> Streaming:
    return Streaming(rollouts(tasks), staleness, quiet)


def small_run(source: Source, steps: int = 4, checkpoint_every: int = 100, **fields: Any) -> Experiment:
    """Letters with a real learner on one device, the policy fresh."""
    algorithm = grpo(optimizer=AdamWConfig(1e-2), bin_length=32, microbatch=8)
    filled: dict[str, Any] = {
        "environment": EnvironmentConfig("letters:tests/Letters-v0", workers=0),
        "engine": EngineConfig(rows=16, positions=32, chunk=4, burst=3, patience=0.01),
        "record_groups": 100,
    }
    return Experiment(
        name="letters",
        agent=AgentConfig(budget=3),
        tokenizer=Characters(),
        policy=DecoderConfig(layers=1, width=16, hidden=32, heads=2, kv_heads=1, head_size=8),
        demonstrations=DemonstrationConfig("random", episodes=8),
        rl=Phase("RL", source, algorithm, steps=steps, checkpoint_every=checkpoint_every),
        evaluation=EvaluationConfig(episodes=2, players=()),
        **filled | fields,
    )


def metrics_of(run_dir: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what depends on the clock."""
    lines = (line for _, line in journal.lines_of(run_dir / "metrics.jsonl"))
    return [{name: x for name, x in line.items() if not name.startswith("time/")} for line in lines]


@dataclass
class Bare:
    """A run without a policy: what the feed hands out is written down, and `train` is the trainer's step."""

    folder: Path
    source: Streaming | Rollouts
    steps: int = 6
    clock: VirtualClock | None = field(default_factory=VirtualClock)
    environment: EnvironmentConfig = field(default_factory=lambda: EnvironmentConfig("small_runs:tests/Varied-v0"))
    delay: Delay = field(default_factory=Delay)
    workers: Workers | None = None
    fence: int = 0
    record: bool = True
    train: Callable[[int], None] = lambda step: None
    say: Callable[[str], None] | None = None
    engine: Any = field(default_factory=Keyed)
    used: list[tuple[int, list[Group]]] = field(default_factory=list)
    metrics: list[dict[str, float]] = field(default_factory=list)
    states: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.runtime = Runtime(
            {}, {}, self.workers or Delayed(InProcess(), self.delay), 2, self.environment.deadlines, self.say,
            loop=self.clock.loop() if self.clock else None,
        )  # fmt: skip
        engine = self.clock.paced(self.engine, self.runtime.run) if self.clock else self.engine
        self.runtime.add("policy", AGENT, engine)
        self.manager = DataManager(self.folder / "rollouts.sqlite", self.journal, "rl", self.say or print, self.runtime.at)

    @property
    def journal(self) -> Path:
        return self.folder / "trajectories.jsonl"

    @property
    def versions(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """Of each group that was used: the step, the task, and the versions in it."""
        return [
            (step, group.trajectories[0].group, tuple(sorted({int(v) for t in group.trajectories for c in t.calls for v in c.version})))
            for step, groups in self.used
            for group in groups
        ]

    @property
    def tasks(self) -> list[int]:
        return [task for _, task, _ in self.versions]

    def feed(self) -> Feed:
        experiment = small_run(self.source, self.steps, environment=self.environment, clock=self.clock)
        if isinstance(self.source, Rollouts):
            return RolloutFeed(self.source, self.runtime, experiment)
        if self.clock is None:
            self.runtime.serve()
        return StreamFeed(self.source, self.runtime, experiment, self.manager, self.steps, self.fence)

    def go(self, done: int = 0, state: Any = None, until: int | None = None) -> "Bare":
        """Train from step `done` on; closes everything in the end."""
        try:
            self.runtime.publish(None, done)
            feed = self.feed()
            if state is not None:
                feed.load(state)
            for step in range(done, self.steps if until is None else until):
                groups = feed.next(step)
                self.used.append((step, groups))
                self.train(step)
                self.runtime.publish(None, step + 1)
                if self.record:
                    journal.write(self.journal, [t for group in groups for t in group.trajectories], step, "rl")
                if isinstance(feed, StreamFeed):
                    self.metrics.append(feed.metrics())
                self.states.append(feed.state())
        finally:
            self.close()
        return self

    def close(self) -> None:
        self.runtime.close()
        self.manager.close()
