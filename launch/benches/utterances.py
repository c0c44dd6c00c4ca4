"""`utterances`: ArCHer's critic and actor steps against the length of an utterance; generates the table of docs/archer.md."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np

from agentrl_jax.algorithms.archer import replayed, turn_of
from agentrl_jax.algorithms.methods import archer
from agentrl_jax.algorithms.turn_replay import Said, Transition
from agentrl_jax.compilations import compilations
from agentrl_jax.errors import UserError
from agentrl_jax.hosts import Hosts
from agentrl_jax.launch import pages
from agentrl_jax.launch.benches.sampling import sample_all
from agentrl_jax.launch.benches.shapes import Serving, Shape, surroundings
from agentrl_jax.launch.boards.markdown import head, line
from agentrl_jax.launch.options import option
from agentrl_jax.models.encoder import EncoderConfig
from agentrl_jax.models.tokenizers import Bytes
from agentrl_jax.models.utterance_critic import OwnEncoder, UtteranceCriticConfig
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.runtime import Runtime
from agentrl_jax.sharding import MeshConfig, make_mesh
from agentrl_jax.workers import InProcess

PARTS = ("sampling", "critic", "advantage", "actor")


@dataclasses.dataclass
class Utterances(Serving, Shape):
    """Random texts of one length each, a step of each part in turn; the first of each is not timed.

    The defaults of the encoder are small; RoBERTa-base's are 12, 768, 3072 and 12.
    """

    encoder_layers: int = option(2, "Layers of the critic's encoder.", 1)
    encoder_width: int = option(64, "Its width.", 1)
    encoder_hidden: int = option(256, "Inner width of its MLP.", 1)
    encoder_heads: int = option(4, "Its heads.", 1)
    state: int = option(128, "Tokens of a state.", 2)
    utterance: tuple[str, ...] = option(("8", "32", "128"), "Tokens of an utterance; may be repeated.")
    batch: int = option(32, "Exchanges of a critic step, and utterances of an actor step.", 1)
    microbatch: int = option(16, "Of these per gradient call.", 1)
    repeats: int = option(5, "Timed steps.", 1)
    page: str = option("", "The page whose table `steps` is replaced, docs/archer.md; empty: none.")

    def run(self) -> dict[str, Any]:
        """Measure, print the table and report. Raises UserError where a size makes no sense."""
        self.config()
        if wrong := [length for length in self.utterance if not length.isdecimal() or int(length) < 1]:
            raise UserError(f"--utterance={wrong[0]} is no number of tokens, 1 or more")
        found = {int(length): self.measured(int(length)) for length in self.utterance}
        seconds = {length: times for length, (times, _) in found.items()}
        table = steps_table(seconds)
        if self.page:
            pages.put(Path(self.page), "steps", table)
        print(table)
        return {
            "bench": "utterances", "sizes": dataclasses.asdict(self), "params": self.params, "seconds": seconds,
            "compilations": sum(late for _, late in found.values()), **surroundings(),
        }  # fmt: skip

    def measured(self, length: int) -> tuple[dict[str, float], int]:
        """Median seconds of each part, and the programs that were compiled while these were measured."""
        policy, params = self.build()
        mesh = make_mesh(MeshConfig(data=self.devices), jax.devices()[: self.devices])
        shape = EncoderConfig(self.encoder_layers, self.encoder_width, self.encoder_hidden, self.encoder_heads, self.state + length + 4)
        texts: dict[str, Any] = {"batch": self.batch, "microbatch": self.microbatch, "states": (self.state,), "utterances": (length,)}
        values = archer.values(UtteranceCriticConfig(), OwnEncoder(shape, Bytes()), **texts).build(policy, mesh, 10**6)
        low = archer.actor(optimizer=AdamWConfig(1e-5), bin_length=self.state + length, microbatch=self.microbatch)
        actor = low.build(policy, mesh, 10**6)
        engine = self.engine(policy, params, self.batch, self.state + length)
        critic, state = values.init(jax.random.key(0), params), actor.init(jax.random.key(1), params)
        runtime, seconds, late = Runtime({}, {}, InProcess()), {part: list[float]() for part in PARTS}, 0

        def timed(part: str, act: Callable[..., Any], *given: Any) -> Any:
            began = time.perf_counter()
            done = jax.block_until_ready(act(*given))
            seconds[part].append(time.perf_counter() - began)
            return done

        try:
            for step in range(self.repeats + 1):
                before, rng = compilations(), np.random.default_rng(step)
                drawn = [self._transition(length, rng) for _ in range(self.batch)]
                states, said = [one.state for one in drawn], [one.utterance for one in drawn]
                timed("sampling", sample_all, engine, np.stack([state.ids for state in states]), length, step)
                critic, _ = timed("critic", values.update, critic, drawn, said, Hosts())
                weights = timed("advantage", values.advantage, critic, states, said, Hosts())
                groups = [turn_of(replayed(one, "sampled"), float(weight)) for one, weight in zip(drawn, weights)]
                state, _ = timed("actor", actor.step, state, groups, runtime)
                late += compilations() - before if step else 0
        finally:
            engine.close()
            runtime.close()
        return {part: median(times[1:]) for part, times in seconds.items()}, late

    def _transition(self, length: int, rng: np.random.Generator) -> Transition:
        state, following, utterance = (self._said(n, rng) for n in (self.state, self.state, length))
        return Transition(state, utterance, -1.0, following, False, False, -1.0)

    def _said(self, length: int, rng: np.random.Generator) -> Said:
        """A character is a token of the critic's."""
        return Said(rng.integers(0, self.vocab, length, np.int32), "".join(map(chr, rng.integers(97, 123, length))))


def steps_table(found: dict[int, dict[str, float]]) -> str:
    """Milliseconds of each part, and steps a second: a critic's with the utterances that V is judged by, an actor's with its own."""
    lines = head(
        "tokens of an utterance", "drawing utterances", "critic", "advantage", "actor", "critic steps a second", "actor steps a second"
    )
    for length, seconds in found.items():
        drawing, critic, advantage, actor = (seconds[part] for part in PARTS)
        rates = 1 / (drawing + critic), 1 / (drawing + advantage + actor)
        lines.append(line(str(length), *(f"{1000 * one:,.0f} ms" for one in seconds.values()), *(f"{rate:.1f}" for rate in rates)))
    return "\n".join(lines)
