"""`sampling`: a batch of prompts submitted at once, with equally many tokens sampled after each."""

import dataclasses
import time
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.compiler.compile_count import compile_count
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.launch.benchmarks import harness
from agentrl_jax.launch.benchmarks.bounds import ModelWork, measure_ceilings, median_or_none
from agentrl_jax.launch.benchmarks.rivals import (
    Measurement,
    RivalBench,
    compare_measurements,
    run_interleaved,
)
from agentrl_jax.launch.benchmarks.shapes import EngineSetup, ModelShape, run_environment
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.models.decoder import Decoder
from agentrl_jax.trajectories import Sampling as SamplingParams


@dataclasses.dataclass
class Sampling(RivalBench, EngineSetup, ModelShape):
    """Single-turn sampling against Tunix's sampler or TRL's generation."""

    batch: int = option(32, "Prompts at once.", 1)
    prompt: int = option(24, "Tokens of a prompt.", 2)
    new: int = option(128, "Tokens sampled after each.", 1)
    scripts: ClassVar = {"tunix": ("tunix_single_turn.py",), "trl": ("trl_grpo.py", "--mode=plain")}

    def run(self) -> dict[str, Any]:
        """Measure and report."""
        sizes = {
            "tunix": [f"--batch={self.batch}"],
            "trl": ["--prompts=1", f"--group={self.batch}"],
        }
        self.config()
        with self.open_rival(
            [
                *self.flags(),
                f"--prompt={self.prompt}",
                f"--new={self.new}",
                *sizes.get(self.rival, []),
            ]
        ) as rival:
            policy, params = self.build()
            engine = self.engine(policy, params, self.batch, self.prompt + self.new)
            prompts = np.random.default_rng(0).integers(
                0, self.vocab, (self.batch, self.prompt), np.int32
            )
            steps = iter(range(10**9))
            try:
                ours, theirs = run_interleaved(
                    lambda: sample_all(engine, prompts, self.new, next(steps)), rival, self.repeats
                )
            finally:
                engine.close()
        bound = self._bound(policy, [x["seconds"] for x in ours])
        return {
            "bench": "sampling",
            "sizes": dataclasses.asdict(self),
            "params": self.params,
            **compare_measurements(ours, theirs),
            "bound": bound,
            "compilations": sum(x["compilations"] for x in ours),
            "rival_says": rival and rival.ready_message,
            **run_environment(),
        }

    def _bound(self, policy: Decoder, seconds: list[float]) -> dict[str, float | None]:
        """The least time of the prompts' forward pass and of the steps that follow."""
        work, ceilings = ModelWork.of(policy), measure_ceilings(policy.config.compute_dtype)
        prompts = work.forward_flops([self.prompt] * self.batch) / ceilings.flops_per_second
        steps = work.decode_seconds(ceilings, self.batch, self.prompt, self.new)
        bound = prompts / self.devices + steps
        return {
            "bound_seconds": bound,
            "fraction_of_bound": median_or_none([bound / x for x in seconds]),
            "gigabytes_per_second_of_a_copy": ceilings.bytes_per_second / 1e9,
        }


def sample_all(engine: LocalEngine, prompts: np.ndarray, new: int, step: int) -> Measurement:
    """One repeat: submit every prompt and wait for all completions."""
    compiled, prefilled, busy, began = (
        compile_count(),
        harness.prefill_tokens(engine),
        harness.busy_seconds(engine),
        time.perf_counter(),
    )
    sampling = SamplingParams(budget=new)
    futures = [engine.submit(prompt, sampling, (0, step, i)) for i, prompt in enumerate(prompts)]
    calls = [future.result() for future in futures]
    seconds = time.perf_counter() - began
    device_busy = (harness.busy_seconds(engine) - busy) / seconds
    for call in calls:
        engine.release(call)
    return {
        "seconds": seconds,
        "sampled_tokens": sum(len(call.action) for call in calls),
        "prefill_tokens": harness.prefill_tokens(engine) - prefilled,
        "compilations": compile_count() - compiled,
        "device_busy": device_busy,
    }
