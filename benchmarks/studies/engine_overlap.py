"""How busy an engine and a runtime keep a device that is emulated: its programs only take time.

    python benchmarks/studies/engine_overlap.py --rows=256 --step_ms=5

A decode step takes `--step_ms`, however many rows are live; a prefill program takes as long as
`--prefill_steps` decode steps. Calls end after `--shortest` to `--longest` tokens. A line of JSON:
the fraction of the time in which a program ran, and that of the rows' steps which sampled a token.
"""

import argparse
import itertools
import json
import time
from typing import Any
from unittest import mock

import jax
import numpy as np

from agentrl_jax.inference import device_state
from agentrl_jax.inference.decode_program import DecodeChunk
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.inference.programs import Programs
from agentrl_jax.launch.benchmarks import harness
from agentrl_jax.launch.benchmarks.synthetic_envs import DelayedInlinePool
from agentrl_jax.launch.garbage_collection import collect_seldom
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes

STOP_ID = 0


class Device:
    """Runs one program after another, each for some seconds; nothing of it needs a thread."""

    def __init__(self) -> None:
        self.busy_seconds = 0.0
        self._end = 0.0

    def start(self, seconds: float) -> float:
        """Queue a program; when it will have run."""
        self._end = max(self._end, time.perf_counter()) + seconds
        self.busy_seconds += seconds
        return self._end


class LaterChunk:
    """What a decode program returns before it has run."""

    def __init__(self, chunk: DecodeChunk, end: float) -> None:
        self.chunk, self.end = chunk, end


class EmulatedPrograms:
    """`Programs` whose decode program samples random lengths, on an emulated device."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.device, self._a = Device(), arguments
        self.live_steps, self.steps = 0, 0
        self._lengths = np.random.default_rng(0)
        self._rest = np.zeros(arguments.rows, np.int64)  # tokens that each row's call still samples

    def state(self, engine: LocalEngine) -> np.ndarray:
        """Time, CPU time, busy seconds, tokens, decode steps, prefill and decode programs."""
        counts = engine.counts["prefills"], engine.counts["decodes"]
        now = time.perf_counter(), time.process_time(), self.device.busy_seconds
        return np.array([*now, self.live_steps, self.steps, *counts])

    def programs(self) -> Programs:
        return Programs(self._prefill, self._decode, lambda *caches: caches[:2])  # type: ignore

    def _prefill(self, _: Any, cache: Any, *__: Any) -> Any:
        self.device.start(self._a.prefill_steps * self._a.step_ms / 1e3)
        return cache, np.zeros(1)

    def _decode(self, _: Any, cache: Any, ints: Any, floats: Any, low: Any, high: Any) -> Any:
        remaining, written, pending = ints[:, 2], ints[:, 3], ints[:, 4]
        lengths = self._lengths.integers(self._a.shortest, self._a.longest + 1, len(ints))
        self._rest = np.where(written == 0, lengths, self._rest)
        live = remaining > 0
        rest = np.where(live, np.minimum(self._rest, remaining), 0)
        ends = (pending + rest)[live]
        steps = int(min(high, max(low, ends.min()), ends.max()))
        fed = np.where(live, np.minimum(pending, steps), 0).astype(np.int32)
        wrote = np.minimum(rest, steps - fed).astype(np.int32)
        self._rest -= wrote
        tokens = np.full((len(ints), int(high)), 97, np.int32)
        ended = np.flatnonzero(live & (self._rest == 0))
        tokens[ended, fed[ended] + wrote[ended] - 1] = STOP_ID
        self.live_steps, self.steps = self.live_steps + int(wrote.sum()), self.steps + steps
        zeros = np.zeros(tokens.shape, np.float32)
        empty = np.zeros((*tokens.shape, 0), np.float32)
        chunk = DecodeChunk(
            tokens=tokens, logp=zeros, entropy=zeros, num_fed=fed, num_written=wrote,
            alternatives=empty.astype(np.int32), alternative_logp=empty,
        )  # fmt: skip
        return cache, LaterChunk(chunk, self.device.start(steps * self._a.step_ms / 1e3))


def measure(arguments: argparse.Namespace, multiple: float, delay: float) -> dict[str, float]:
    """Play all episodes, whose environments answer after `delay` seconds on average."""
    a, emulated = arguments, EmulatedPrograms(arguments)
    slots = a.slots or round(a.rows * (1 + multiple))
    policy = DecoderConfig(1, 8, 8, 1, 1, 8).build(512)
    agent = harness.make_agent(a.longest, 512)
    sampling = agent.sampling.__class__(budget=a.longest + 1, stop_ids=(STOP_ID,))
    agent = Agent("policy", agent.renderer, agent.context, sampling)
    get = jax.device_get

    def device_get(tree: Any) -> Any:
        if not isinstance(tree, LaterChunk):
            return get(tree)
        time.sleep(max(0.0, tree.end - time.perf_counter()))
        return tree.chunk

    positions = harness.episode_length(a.turns, 16, a.longest + 1, 8)
    config = EngineConfig(
        rows=a.rows,
        parked_slots=max(0, slots - a.rows),
        positions=positions,
        prefill_chunk=32,
        prefill_tokens=32 * a.rows,  # as on an accelerator
    )
    with (
        mock.patch.object(device_state, "compile_programs", lambda *_: emulated.programs()),
        mock.patch.object(device_state.DeviceState, "warm_up", lambda *_: None),
        mock.patch.object(jax, "device_get", device_get),
    ):
        engine = LocalEngine(policy, config, policy.init(jax.random.key(0)))
        workers = DelayedInlinePool(delay, a.spread)
        tasks = [harness.make_task(a.turns, 16, 8, i, i) for i in range(a.waves * slots)]
        starts, states = itertools.count(1), []

        def on_reset() -> None:
            if next(starts) in (2 * slots, len(tasks)):
                states.append(emulated.state(engine))

        workers.on_reset = on_reset
        with Runtime({"policy": engine}, {"policy": agent}, workers) as runtime:
            runtime.collect(IndependentEpisodes(1), tasks, (0, 0))
    # From the second time that all slots were full to the last episode's start.
    seconds, cpu_seconds, busy, tokens, steps, prefills, decodes = states[1] - states[0]
    calls = tokens * 2 / (a.shortest + a.longest)
    return {
        "slots": slots,
        "delay": delay,
        "seconds": round(seconds, 3),
        "busy": round(busy / seconds, 4),
        "occupied": round(tokens / (steps * a.rows), 4),
        "tokens_per_second": round(tokens / seconds),
        "host_ms_per_call": round(1e3 * cpu_seconds / calls, 3),
        "prefills": int(prefills),
        "decodes": int(decodes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (
        ("rows", 256),
        ("slots", 0),
        ("waves", 4),
        ("turns", 2),
        ("shortest", 19),
        ("longest", 64),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--spread", type=float, default=1.0, help="Of the delays' logarithm.")
    parser.add_argument("--step_ms", type=float, default=5.0)
    parser.add_argument("--prefill_steps", type=float, default=2.0)
    parser.add_argument("--delays", default="0", help="In mean times of a turn's tokens.")
    arguments = parser.parse_args()
    collect_seldom()
    turn = (arguments.shortest + arguments.longest) / 2 * arguments.step_ms / 1e3
    for multiple in map(float, arguments.delays.split(",")):
        print(
            json.dumps({"multiple": multiple} | measure(arguments, multiple, multiple * turn)),
            flush=True,
        )


if __name__ == "__main__":
    main()
