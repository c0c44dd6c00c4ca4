"""`async`: asynchronous against synchronous rollouts, with slow environments."""

import dataclasses
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from agentrl_jax.algorithms.losses.importance import TruncatedIS
from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.compiler.compile_count import compile_count
from agentrl_jax.distributed.sharding import MeshConfig, make_mesh
from agentrl_jax.launch.benchmarks import harness
from agentrl_jax.launch.benchmarks.rivals import quartiles, round_significant
from agentrl_jax.launch.benchmarks.shapes import EngineSetup, ModelShape, run_environment
from agentrl_jax.launch.benchmarks.synthetic_envs import parse_delays
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.storage.rollout_index import RolloutIndex
from agentrl_jax.storage.trajectory_recorder import TrajectoryRecorder
from agentrl_jax.training.async_rollouts import AsyncRolloutIterator, AsyncRollouts
from agentrl_jax.training.config import EnvironmentConfig
from agentrl_jax.training.sources import Rollouts
from agentrl_jax.trajectory_record import TrajectoryRecord
from agentrl_jax.workers.latency import EnvLatency, WithLatency
from agentrl_jax.workers.pool import InlinePool


@dataclass(frozen=True)
class Timings:
    """Seconds of a number of training steps, and those in which each module was busy."""

    seconds: float
    environments: float  # that episodes waited for their environment, summed over slots
    engine: float
    data_manager: float
    trainer: float
    staleness: float  # a mean over tokens

    def utilization(self, slots: int) -> dict[str, float]:
        busy_seconds = {
            "environments": self.environments / slots,
            "engine": self.engine,
            "data_manager": self.data_manager,
        }
        return {
            name: round_significant(busy / self.seconds)
            for name, busy in (busy_seconds | {"trainer": self.trainer}).items()
        }


@dataclass
class Asynchronous(EngineSetup, ModelShape):
    """GRPO on one engine and one learner; both modes have the same tasks and episodes per step."""

    prompts: int = option(4, "Tasks per step.", 1)
    group: int = option(8, "Episodes of each task.", 2)
    turns: int = option(3, "Turns of an episode.", 1)
    prompt: int = option(16, "Tokens before the first turn.", 2)
    new: int = option(16, "Tokens sampled per turn.", 1)
    observation: int = option(8, "Tokens between two turns.", 1)
    staleness: int = option(2, "Largest staleness of a token, in versions.", 1)
    delays: str = option("0,0.2,1", "Mean latencies of an environment step, in seconds.")
    spread: float = option(1.0, "Standard deviation of the delays' logarithm.", 0.0)
    steps: int = option(8, "Steps of each measurement.", 1)
    warmup: int = option(3, "Untimed steps before each measurement.", 1)
    repeats: int = option(3, "Repeats of each delay; the two modes alternate.", 1)

    def run(self) -> dict[str, Any]:
        """Measure, printing a line after each delay, and report.

        Raises:
            UserError: a delay is not a number.
        """
        delays = parse_delays(self.delays)
        trainer = Trainer(self)
        try:
            trainer.measure(0.0, self.staleness)  # compiles everything
            measured = {f"{delay:g}s": self.compare_modes(trainer, delay) for delay in delays}
        finally:
            trainer.engine.close()
        return {
            "bench": "async",
            "sizes": dataclasses.asdict(self),
            "places": self.num_slots,
            "params": self.params,
            "delays": measured,
            **run_environment(),
        }

    def compare_modes(self, trainer: "Trainer", delay: float) -> dict[str, Any]:
        """Both modes at one delay, alternating."""
        compiled, pairs = compile_count(), []
        for repeat in range(self.repeats):
            order = (0, self.staleness) if repeat % 2 else (self.staleness, 0)
            taken = {staleness: trainer.measure(delay, staleness) for staleness in order}
            pairs.append((taken[0], taken[self.staleness]))
        report = {**self.summary(pairs), "compilations": compile_count() - compiled}
        print(json.dumps({"bench": "async", "delay": delay, **report}), flush=True)
        return report

    @property
    def num_slots(self) -> int:
        """Episodes that may be in flight with asynchronous rollouts."""
        return self.prompts * self.group * (self.staleness + 1)

    def summary(self, pairs: Sequence[tuple[Timings, Timings]]) -> dict[str, Any]:
        """One delay: the median run of each mode, and quartiles of the paired ratios of times."""
        report: dict[str, Any] = {}
        for name, side in (
            ("synchronous", [a for a, _ in pairs]),
            ("asynchronous", [b for _, b in pairs]),
        ):
            median_run = sorted(side, key=lambda x: x.seconds)[len(side) // 2]
            report[name] = {
                "seconds_per_step": quartiles([x.seconds / self.steps for x in side]),
                "staleness": round_significant(median_run.staleness),
                "utilisation": median_run.utilization(self.num_slots),
            }
        return {**report, "ratio": quartiles([a.seconds / b.seconds for a, b in pairs])}


class Trainer:
    """One engine and one learner for all measurements."""

    def __init__(self, sizes: Asynchronous) -> None:
        self._sizes = s = sizes
        policy, self._params = s.build()
        self._agent, length = (
            harness.make_agent(s.new, s.vocab),
            harness.episode_length(s.turns, s.prompt, s.new, s.observation),
        )
        mesh = make_mesh(MeshConfig(data=s.devices), jax.devices()[: s.devices])
        settings: dict[str, Any] = {
            "optimizer": AdamWConfig(1e-5),
            "bin_length": length,
            "rescore": True,
            "mismatch": TruncatedIS(high=1.0),
        }
        self._algorithm = grpo(**settings).build(policy, mesh, 10**6)
        rows = s.prompts * s.group
        self.engine = s.engine(policy, self._params, rows, length, parked=s.num_slots - rows)

    def measure(self, delay: float, staleness: int) -> Timings:
        """Train for some steps from the initial weights; `staleness` 0 is synchronous."""
        s, engine = self._sizes, self.engine
        workers = WithLatency(InlinePool(), EnvLatency(delay, s.spread))
        state = self._algorithm.init(jax.random.key(1), self._params)
        self._algorithm.load_host_state({"steps": 0, "pieces": []})
        engine.publish(self._params, 0)
        with (
            tempfile.TemporaryDirectory() as folder,
            Runtime({"policy": engine}, {"policy": self._agent}, workers) as runtime,
        ):
            recorder = TrajectoryRecorder(Path(folder), 0, 2**30, print)
            rollout_index = RolloutIndex(Path(folder) / "rollouts.sqlite", recorder.read, "rl")
            feed = self._open_feed(runtime, rollout_index, staleness)

            def clocks() -> tuple[float, ...]:
                return (
                    time.perf_counter(),
                    workers.env_wait_seconds,
                    engine.busy_seconds,
                    rollout_index.busy_seconds,
                )

            trained, stale, before = 0.0, list[float](), clocks()
            for step in range(s.warmup + s.steps):
                if step == s.warmup:
                    trained, stale, before = 0.0, [], clocks()
                groups = feed.next(step)
                began = time.perf_counter()
                state, metrics = self._algorithm.step(state, groups, runtime)
                jax.block_until_ready(state.params)
                runtime.publish(state.params, step + 1)
                trained += time.perf_counter() - began
                recorder.put(
                    [
                        TrajectoryRecord("rl", step, trajectory)
                        for group in groups
                        for trajectory in group.trajectories
                    ]
                )
                stale.append(float(metrics["staleness"]))
            elapsed = [now - then for now, then in zip(clocks(), before)]
            runtime.engines = {}  # the next measurement reuses the engine
            runtime.close()
            rollout_index.close()
            recorder.close()
        return Timings(*elapsed, trainer=trained, staleness=float(np.mean(stale)))

    def _open_feed(
        self, runtime: Runtime, rollout_index: RolloutIndex, staleness: int
    ) -> AsyncRolloutIterator:
        """Start asynchronous rollouts, with further tasks so that the last steps are busy too."""
        s = self._sizes
        options = harness.make_task(s.turns, s.prompt, s.observation, 0).options
        experiment: Any = SimpleNamespace(
            seed=0, environment=EnvironmentConfig(harness.RELAY_ID, options, workers=0)
        )
        source = AsyncRollouts(Rollouts(s.prompts, IndependentEpisodes(s.group)), staleness)
        runtime.start_loop_thread()
        num_steps = s.warmup + s.steps + staleness
        return AsyncRolloutIterator(source, runtime, experiment, rollout_index, num_steps, 0)
