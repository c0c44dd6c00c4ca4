"""`sampling`: one batch of prompts, all submitted at once, each sampled to exactly the same number of tokens."""

import dataclasses
import time
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.compilations import compilations
from agentrl_jax.launch.benches import play
from agentrl_jax.launch.benches.rivals import Against, Found, compared, interleaved
from agentrl_jax.launch.benches.shapes import Serving, Shape, surroundings
from agentrl_jax.launch.options import option
from agentrl_jax.local_engine import LocalEngine
from agentrl_jax.trajectories import Sampling as Knobs


@dataclasses.dataclass
class Sampling(Against, Serving, Shape):
    """Single-turn sampling beside Tunix's sampler or TRL's generation."""

    batch: int = option(32, "Prompts at once.", 1)
    prompt: int = option(24, "Tokens of a prompt.", 2)
    new: int = option(128, "Tokens sampled after each.", 1)
    scripts: ClassVar = {"tunix": ("tunix_single_turn.py",), "trl": ("trl_grpo.py", "--mode=plain")}

    def run(self) -> dict[str, Any]:
        """Measure and report."""
        sizes = {"tunix": [f"--batch={self.batch}"], "trl": ["--prompts=1", f"--group={self.batch}"]}
        self.config()
        with self.opened_rival([*self.flags(), f"--prompt={self.prompt}", f"--new={self.new}", *sizes.get(self.rival, [])]) as rival:
            engine = self.engine(*self.build(), self.batch, self.prompt + self.new)
            prompts = np.random.default_rng(0).integers(0, self.vocab, (self.batch, self.prompt), np.int32)
            steps = iter(range(10**9))
            try:
                ours, theirs = interleaved(lambda: sample_all(engine, prompts, self.new, next(steps)), rival, self.repeats)
            finally:
                engine.close()
        return {
            "bench": "sampling", "sizes": dataclasses.asdict(self), "params": self.params, **compared(ours, theirs),
            "compilations": sum(x["compilations"] for x in ours), "rival_says": rival and rival.ready, **surroundings(),
        }  # fmt: skip


def sample_all(engine: LocalEngine, prompts: np.ndarray, new: int, step: int) -> Found:
    """One repeat: every prompt at once, to the last token."""
    compiled, prefilled, busy, began = compilations(), play.prefilled(engine), play.busy(engine), time.perf_counter()
    futures = [engine.submit(prompt, Knobs(budget=new), (0, step, i)) for i, prompt in enumerate(prompts)]
    calls = [future.result() for future in futures]
    seconds = time.perf_counter() - began
    shares = {"device_busy": (play.busy(engine) - busy) / seconds}
    for call in calls:
        engine.release(call)
    return {
        "seconds": seconds, "sampled_tokens": sum(len(call.action) for call in calls),
        "prefill_tokens": play.prefilled(engine) - prefilled, "compilations": compilations() - compiled,
        **shares,
    }  # fmt: skip
