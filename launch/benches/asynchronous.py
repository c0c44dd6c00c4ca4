"""`async`: training while rollouts go on, beside training in turns with them, with worlds that take their time."""

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

from agentrl_jax import journal
from agentrl_jax.algorithms.grpo import grpo
from agentrl_jax.algorithms.mismatch import Clipped
from agentrl_jax.compilations import compilations
from agentrl_jax.data_manager import DataManager
from agentrl_jax.delays import Delay, Delayed
from agentrl_jax.experiment import EnvironmentConfig, Rollouts
from agentrl_jax.launch.benches import play
from agentrl_jax.launch.benches.rivals import quartiles, significant
from agentrl_jax.launch.benches.shapes import Serving, Shape, surroundings
from agentrl_jax.launch.benches.worlds import means_of
from agentrl_jax.launch.options import option
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.runtime import Runtime
from agentrl_jax.sharding import MeshConfig, make_mesh
from agentrl_jax.strategies import Independent
from agentrl_jax.streaming import StreamFeed, Streaming
from agentrl_jax.workers import InProcess


@dataclass(frozen=True)
class Measured:
    """What a number of steps took, and the seconds that each module was at work in them."""

    seconds: float
    environments: float  # that episodes waited for their world, added up over the places of the engine
    engine: float
    data_manager: float
    trainer: float
    staleness: float  # a mean over tokens

    def utilisation(self, places: int) -> dict[str, float]:
        worked = {"environments": self.environments / places, "engine": self.engine, "data_manager": self.data_manager}
        return {name: significant(busy / self.seconds) for name, busy in (worked | {"trainer": self.trainer}).items()}


@dataclass
class Asynchronous(Serving, Shape):
    """GRPO on one engine and one learner. Both ways play the same tasks and train on equally many episodes a step."""

    prompts: int = option(4, "Tasks a step.", 1)
    group: int = option(8, "Episodes of each.", 2)
    turns: int = option(3, "Of an episode.", 1)
    prompt: int = option(16, "Tokens before the first turn.", 2)
    new: int = option(16, "Tokens sampled a turn.", 1)
    observation: int = option(8, "Tokens between two turns.", 1)
    staleness: int = option(2, "Versions that a token may be behind.", 1)
    delays: str = option("0,0.2,1", "Mean delays of a world's answer, in seconds.")
    spread: float = option(1.0, "Standard deviation of the delays' logarithm.", 0.0)
    steps: int = option(8, "Of each measurement.", 1)
    warmup: int = option(3, "Steps before the clock runs, of each measurement.", 1)
    repeats: int = option(3, "Of each delay; the two ways take turns.", 1)

    def run(self) -> dict[str, Any]:
        """Measure and report: a line for each delay on the way. Raises UserError where the delays are no numbers."""
        delays = means_of(self.delays)
        trainer = Trainer(self)
        try:
            trainer.measure(0.0, self.staleness)  # compiles everything
            found = {f"{delay:g}s": self.compared(trainer, delay) for delay in delays}
        finally:
            trainer.engine.close()
        return {
            "bench": "async", "sizes": dataclasses.asdict(self), "places": self.places, "params": self.params, "delays": found,
            **surroundings(),
        }  # fmt: skip

    def compared(self, trainer: "Trainer", delay: float) -> dict[str, Any]:
        """Both ways in turn, at one delay."""
        compiled, pairs = compilations(), []
        for repeat in range(self.repeats):
            order = (0, self.staleness) if repeat % 2 else (self.staleness, 0)
            taken = {staleness: trainer.measure(delay, staleness) for staleness in order}
            pairs.append((taken[0], taken[self.staleness]))
        report = {**self.summary(pairs), "compilations": compilations() - compiled}
        print(json.dumps({"bench": "async", "delay": delay, **report}), flush=True)
        return report

    @property
    def places(self) -> int:
        """Episodes that may be in flight when streaming."""
        return self.prompts * self.group * (self.staleness + 1)

    def summary(self, pairs: Sequence[tuple[Measured, Measured]]) -> dict[str, Any]:
        """One delay: the median run of either way, and quartiles of the paired ratios of their times."""
        report: dict[str, Any] = {}
        for name, side in (("synchronous", [a for a, _ in pairs]), ("asynchronous", [b for _, b in pairs])):
            middle = sorted(side, key=lambda x: x.seconds)[len(side) // 2]
            report[name] = {
                "seconds_per_step": quartiles([x.seconds / self.steps for x in side]), "staleness": significant(middle.staleness),
                "utilisation": middle.utilisation(self.places),
            }  # fmt: skip
        return {**report, "ratio": quartiles([a.seconds / b.seconds for a, b in pairs])}


class Trainer:
    """One engine and one learner for all measurements."""

    def __init__(self, sizes: Asynchronous) -> None:
        self._sizes = s = sizes
        policy, self._params = s.build()
        self._agent, length = play.make_agent(s.new, s.vocab), play.positions(s.turns, s.prompt, s.new, s.observation)
        mesh = make_mesh(MeshConfig(data=s.devices), jax.devices()[: s.devices])
        settings: dict[str, Any] = {"optimizer": AdamWConfig(1e-5), "bin_length": length, "rescore": True, "mismatch": Clipped(high=1.0)}
        self._algorithm = grpo(**settings).build(policy, mesh, 10**6)
        rows = s.prompts * s.group
        self.engine = s.engine(policy, self._params, rows, length, parked=s.places - rows)

    def measure(self, delay: float, staleness: int) -> Measured:
        """Some steps of training, from the start; with `staleness` 0 the trainer and the rollouts wait for each other."""
        s, engine, algorithm = self._sizes, self.engine, self._algorithm
        options = play.make_task(s.turns, s.prompt, s.observation, 0).options
        experiment: Any = SimpleNamespace(seed=0, environment=EnvironmentConfig(play.RELAY, options, workers=0))
        workers = Delayed(InProcess(), Delay(delay, s.spread))
        state = algorithm.init(jax.random.key(1), self._params)
        algorithm.load_host_state({"steps": 0, "pieces": []})
        engine.publish(self._params, 0)
        last, trained, stale, before = s.warmup + s.steps, 0.0, list[float](), [0.0] * 4
        with tempfile.TemporaryDirectory() as folder, Runtime({"policy": engine}, {"policy": self._agent}, workers) as runtime:
            record = Path(folder) / "trajectories.jsonl"
            manager = DataManager(Path(folder) / "rollouts.sqlite", record, "rl")
            source = Streaming(Rollouts(s.prompts, Independent(s.group)), staleness)
            runtime.serve()
            feed = StreamFeed(source, runtime, experiment, manager, last + staleness, 0)  # tasks go on to come until the end
            for step in range(last):
                if step == s.warmup:
                    trained, stale, before = 0.0, [], [time.perf_counter(), workers.busy, engine.busy, manager.busy]
                groups = feed.next(step)
                began = time.perf_counter()
                state, metrics = algorithm.step(state, groups, runtime)
                jax.block_until_ready(state.params)
                runtime.publish(state.params, step + 1)
                trained += time.perf_counter() - began
                journal.write(record, [t for group in groups for t in group.trajectories], step, "rl")
                stale.append(float(metrics["staleness"]))
            spent = [now - then for now, then in zip((time.perf_counter(), workers.busy, engine.busy, manager.busy), before)]
            runtime.engines = {}  # the engine goes on to the next measurement
            runtime.close()
            manager.close()
        return Measured(*spent, trainer=trained, staleness=float(np.mean(stale)))
