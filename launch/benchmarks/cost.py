"""`cost`: the cost of an episode as its turns double, with equal tokens per turn."""

import dataclasses
import time
from typing import Any

import numpy as np

from agentrl_jax.compiler.compile_count import compile_count
from agentrl_jax.launch.benchmarks import harness
from agentrl_jax.launch.benchmarks.rivals import quartiles, round_significant
from agentrl_jax.launch.benchmarks.shapes import EngineSetup, ModelShape, run_environment
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.workers.pool import InlinePool


@dataclasses.dataclass
class Cost(EngineSetup, ModelShape):
    """One engine for all lengths, so that only the number of turns differs."""

    episodes: int = option(16, "Episodes at once.", 1)
    max_turns: int = option(32, "Turns are 1, 2, 4 and so on up to this.", 2)
    prompt: int = option(16, "Tokens before the first turn.", 2)
    new: int = option(16, "Tokens sampled per turn.", 1)
    observation: int = option(8, "Tokens between two turns.", 1)
    repeats: int = option(5, "Timed repeats of each number of turns; one more warms up.", 1)

    def run(self) -> dict[str, Any]:
        """Measure and report."""
        policy, params = self.build()
        agent = harness.make_agent(self.new, self.vocab)
        turns = [2**i for i in range(self.max_turns.bit_length()) if 2**i <= self.max_turns]
        length = harness.episode_length(turns[-1], self.prompt, self.new, self.observation)
        engine = self.engine(policy, params, self.episodes, length)
        seconds: dict[int, list[float]] = {n: [] for n in turns}
        prefill: dict[int, int] = {}
        with Runtime({"policy": engine}, {"policy": agent}, InlinePool()) as runtime:
            compiled, sampled = compile_count(), 0
            for repeat in range(self.repeats + 1):
                if repeat == 1:
                    compiled, sampled = compile_count(), engine.counts["sampled_tokens"]
                for n in turns:
                    tasks = [
                        harness.make_task(
                            n, self.prompt, self.observation, 10**6 * n + 1000 * repeat + i, i
                        )
                        for i in range(self.episodes)
                    ]
                    before, began = harness.prefill_tokens(engine), time.perf_counter()
                    runtime.collect(IndependentEpisodes(1), tasks, (n, repeat))
                    if repeat:
                        seconds[n].append(time.perf_counter() - began)
                        prefill[n] = harness.prefill_tokens(engine) - before
            compiled, sampled = (
                compile_count() - compiled,
                engine.counts["sampled_tokens"] - sampled,
            )
        medians = {n: float(np.median(seconds[n])) for n in turns}
        return {
            "bench": "cost",
            "sizes": dataclasses.asdict(self),
            "params": self.params,
            "turns": turns,
            "seconds": {n: quartiles(seconds[n]) for n in turns},
            "seconds_per_turn": {n: round_significant(medians[n] / n) for n in turns},
            "prefill_tokens_per_turn": {
                n: round_significant(prefill[n] / n / self.episodes) for n in turns
            },
            # The cost of a further turn at the last doubling over that at the first: 1 where time
            # and tokens are linear in turns.
            "seconds_slope_ratio": round_significant(slope_ratio(medians)),
            "prefill_slope_ratio": round_significant(slope_ratio(prefill)),
            "compilations": compiled,
            "sampled_tokens": sampled,
            "prefill_tokens": sum(prefill.values()),
            **run_environment(),
        }


def slope_ratio(values: dict[int, float] | dict[int, int]) -> float:
    """(f(2n) - f(n)) / n at the largest n, over the same at the smallest."""
    turns = sorted(values)
    first = (values[turns[1]] - values[turns[0]]) / (turns[1] - turns[0])
    return (values[turns[-1]] - values[turns[-2]]) / (turns[-1] - turns[-2]) / first
