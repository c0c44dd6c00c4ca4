"""`cost`: what an episode costs as its turns double, with equal tokens a turn."""

import dataclasses
import time
from typing import Any

import numpy as np

from agentrl_jax.compilations import compilations
from agentrl_jax.launch.benches import play
from agentrl_jax.launch.benches.rivals import quartiles, significant
from agentrl_jax.launch.benches.shapes import Serving, Shape, surroundings
from agentrl_jax.launch.options import option
from agentrl_jax.runtime import Runtime
from agentrl_jax.strategies import Independent
from agentrl_jax.workers import InProcess


@dataclasses.dataclass
class Cost(Serving, Shape):
    """One engine for all lengths, so that only the number of turns differs."""

    episodes: int = option(16, "At once.", 1)
    longest: int = option(32, "Turns are 1, 2, 4 and so on up to this.", 2)
    prompt: int = option(16, "Tokens before the first turn.", 2)
    new: int = option(16, "Tokens sampled a turn.", 1)
    observation: int = option(8, "Tokens between two turns.", 1)
    repeats: int = option(5, "Timed repeats of each number of turns; one more warms up.", 1)

    def run(self) -> dict[str, Any]:
        """Measure and report."""
        policy, params = self.build()
        agent = play.make_agent(self.new, self.vocab)
        turns = [2**i for i in range(self.longest.bit_length()) if 2**i <= self.longest]
        length = play.positions(turns[-1], self.prompt, self.new, self.observation)
        engine = self.engine(policy, params, self.episodes, length)
        seconds: dict[int, list[float]] = {n: [] for n in turns}
        prefill: dict[int, int] = {}
        with Runtime({"policy": engine}, {"policy": agent}, InProcess()) as runtime:
            compiled, sampled = compilations(), 0
            for repeat in range(self.repeats + 1):
                if repeat == 1:
                    compiled, sampled = compilations(), engine.counts["sampled_tokens"]
                for n in turns:
                    tasks = [
                        play.make_task(n, self.prompt, self.observation, 10**6 * n + 1000 * repeat + i, i) for i in range(self.episodes)
                    ]
                    before, began = play.prefilled(engine), time.perf_counter()
                    runtime.collect(Independent(1), tasks, (n, repeat))
                    if repeat:
                        seconds[n].append(time.perf_counter() - began)
                        prefill[n] = play.prefilled(engine) - before
            compiled, sampled = compilations() - compiled, engine.counts["sampled_tokens"] - sampled
        medians = {n: float(np.median(seconds[n])) for n in turns}
        return {
            "bench": "cost", "sizes": dataclasses.asdict(self), "params": self.params, "turns": turns,
            "seconds": {n: quartiles(seconds[n]) for n in turns},
            "seconds_per_turn": {n: significant(medians[n] / n) for n in turns},
            "prefill_tokens_per_turn": {n: significant(prefill[n] / n / self.episodes) for n in turns},
            # A turn's price at the last doubling over that at the first: 1 where time and tokens are linear in turns.
            "seconds_slope_ratio": significant(slopes(medians)), "prefill_slope_ratio": significant(slopes(prefill)),
            "compilations": compiled, "sampled_tokens": sampled, "prefill_tokens": sum(prefill.values()), **surroundings(),
        }  # fmt: skip


def slopes(found: dict[int, float] | dict[int, int]) -> float:
    """(f(2n) - f(n)) / n at the largest n, over the same at the smallest."""
    turns = sorted(found)
    first = (found[turns[1]] - found[turns[0]]) / (turns[1] - turns[0])
    return (found[turns[-1]] - found[turns[-2]]) / (turns[-1] - turns[-2]) / first
