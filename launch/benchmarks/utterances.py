"""`utterances`: the time of ArCHer's critic and actor steps by the length of an utterance.

Generates the table of docs/archer.md.
"""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np

from agentrl_jax.algorithms.archer.actor_groups import replayed_call, single_turn_group
from agentrl_jax.algorithms.archer.replay_buffer import TokenizedText, Transition
from agentrl_jax.algorithms.methods import hierarchical
from agentrl_jax.compiler.compile_count import compile_count
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.distributed.sharding import MeshConfig, make_mesh
from agentrl_jax.errors import UserError
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.sampling import sample_all
from agentrl_jax.launch.benchmarks.shapes import EngineSetup, ModelShape, run_environment
from agentrl_jax.launch.benchmarks.tables.markdown import table_header, table_row
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.encoder import EncoderConfig
from agentrl_jax.models.tokenizers import ByteTokenizer
from agentrl_jax.models.utterance_critic import FreshEncoderConfig, UtteranceCriticConfig
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.workers.pool import InlinePool

PARTS = ("sampling", "critic", "advantage", "actor")


@dataclasses.dataclass
class Utterances(EngineSetup, ModelShape):
    """Times each part of a step on random texts of equal length, after one step to warm up.

    The defaults of the encoder are small; RoBERTa-base's are 12, 768, 3072 and 12.
    """

    encoder_layers: int = option(2, "Layers of the critic's encoder.", 1)
    encoder_width: int = option(64, "Width of the encoder.", 1)
    encoder_hidden: int = option(256, "Inner width of the encoder's MLP.", 1)
    encoder_heads: int = option(4, "Heads of the encoder.", 1)
    state: int = option(128, "Tokens of a state.", 2)
    utterance: tuple[str, ...] = option(
        ("8", "32", "128"), "Tokens of an utterance; may be repeated."
    )
    batch: int = option(32, "Transitions per critic step, and utterances per actor step.", 1)
    microbatch: int = option(16, "Transitions or utterances per gradient call.", 1)
    repeats: int = option(5, "Timed steps.", 1)
    page: str = option("", "The page whose table `steps` is replaced, docs/archer.md; empty: none.")

    def run(self) -> dict[str, Any]:
        """Measure, print the table and report. Raises UserError where a size is invalid."""
        self.config()
        if wrong := [
            length for length in self.utterance if not length.isdecimal() or int(length) < 1
        ]:
            raise UserError(f"--utterance={wrong[0]} is no number of tokens, 1 or more")
        measured = {int(length): self.measure(int(length)) for length in self.utterance}
        seconds = {length: times for length, (times, _) in measured.items()}
        table = steps_table(seconds)
        if self.page:
            doc_tables.replace_section(Path(self.page), "steps", table)
        print(table)
        return {
            "bench": "utterances",
            "sizes": dataclasses.asdict(self),
            "params": self.params,
            "seconds": seconds,
            "compilations": sum(compilations for _, compilations in measured.values()),
            **run_environment(),
        }

    def measure(self, length: int) -> tuple[dict[str, float], int]:
        """Median seconds of each part, and compilations during the timed steps."""
        runner = UtteranceRunner(self, length)
        try:
            repeats = [runner.repeat(step) for step in range(self.repeats + 1)][1:]
        finally:
            runner.close()
        seconds = {part: median(times[part] for times, _ in repeats) for part in PARTS}
        return seconds, sum(compilations for _, compilations in repeats)


class UtteranceRunner:
    """An engine, a critic and an actor for utterances of one length."""

    def __init__(self, sizes: Utterances, length: int) -> None:
        s = self._sizes = sizes
        self._length = length
        policy, params = s.build()
        mesh = make_mesh(MeshConfig(data=s.devices), jax.devices()[: s.devices])
        shape = EncoderConfig(
            s.encoder_layers,
            s.encoder_width,
            s.encoder_hidden,
            s.encoder_heads,
            s.state + length + 4,
        )
        self._critic = hierarchical.utterance_critic(
            UtteranceCriticConfig(),
            FreshEncoderConfig(shape, ByteTokenizer()),
            batch=s.batch,
            microbatch=s.microbatch,
            state_lengths=(s.state,),
            utterance_lengths=(length,),
        ).build(policy, mesh, 10**6)
        self._actor = hierarchical.reinforce_actor(
            optimizer=AdamWConfig(1e-5), bin_length=s.state + length, microbatch=s.microbatch
        ).build(policy, mesh, 10**6)
        self._engine = s.engine(policy, params, s.batch, s.state + length)
        self._critic_state = self._critic.init(jax.random.key(0), params)
        self._actor_state = self._actor.init(jax.random.key(1), params)
        self._runtime = Runtime({}, {}, InlinePool())

    def close(self) -> None:
        self._engine.close()
        self._runtime.close()

    def repeat(self, step: int) -> tuple[dict[str, float], int]:
        """Seconds of each part of one step, and compilations."""
        compiled, rng, seconds = compile_count(), np.random.default_rng(step), dict[str, float]()
        transitions = [self._random_transition(rng) for _ in range(self._sizes.batch)]
        states = [transition.state for transition in transitions]
        utterances = [transition.utterance for transition in transitions]

        def timed(part: str, function: Callable[..., Any], *args: Any) -> Any:
            began = time.perf_counter()
            result = jax.block_until_ready(function(*args))
            seconds[part] = time.perf_counter() - began
            return result

        prompts = np.stack([state.ids for state in states])
        timed("sampling", sample_all, self._engine, prompts, self._length, step)
        self._critic_state, _ = timed(
            "critic",
            self._critic.update,
            self._critic_state,
            transitions,
            utterances,
            ProcessGroup(),
        )
        advantages = timed(
            "advantage",
            self._critic.advantage,
            self._critic_state,
            states,
            utterances,
            ProcessGroup(),
        )
        groups = [
            single_turn_group(replayed_call(transition, "sampled"), float(advantage))
            for transition, advantage in zip(transitions, advantages)
        ]
        self._actor_state, _ = timed(
            "actor", self._actor.step, self._actor_state, groups, self._runtime
        )
        return seconds, compile_count() - compiled

    def _random_transition(self, rng: np.random.Generator) -> Transition:
        length = self._sizes.state
        state, next_state, utterance = (
            self._random_text(n, rng) for n in (length, length, self._length)
        )
        return Transition(state, utterance, -1.0, next_state, False, False, -1.0)

    def _random_text(self, length: int, rng: np.random.Generator) -> TokenizedText:
        """As many tokens for the policy as for the critic, whose tokens are characters."""
        return TokenizedText(
            rng.integers(0, self._sizes.vocab, length, np.int32),
            "".join(map(chr, rng.integers(97, 123, length))),
        )


def steps_table(part_seconds: dict[int, dict[str, float]]) -> str:
    """Milliseconds of each part, and steps per second.

    A critic step includes sampling the utterances for V, an actor step sampling its own.
    """
    lines = table_header(
        "tokens of an utterance",
        "sampling utterances",
        "critic",
        "advantage",
        "actor",
        "critic steps a second",
        "actor steps a second",
    )
    for length, seconds in part_seconds.items():
        sampling, critic, advantage, actor = (seconds[part] for part in PARTS)
        rates = 1 / (sampling + critic), 1 / (sampling + advantage + actor)
        lines.append(
            table_row(
                str(length),
                *(f"{1000 * part:,.0f} ms" for part in seconds.values()),
                *(f"{rate:.1f}" for rate in rates),
            )
        )
    return "\n".join(lines)
