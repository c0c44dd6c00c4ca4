"""Conversations of several turns with an engine, fixed by a seed, and checks of their calls."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from support.fixtures import tiny_policy, unpacked_logp

from agentrl_jax.engine import Engine
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.learner.sequences import TrainingSequence
from agentrl_jax.trajectories import Call, Sampling

VOCAB_SIZE = 20
POSITIONS = 64
POLICY = tiny_policy(VOCAB_SIZE)
PARAMS = POLICY.init(jax.random.key(0))
OTHER_PARAMS = POLICY.init(jax.random.key(1))


def decode_text(ids: Sequence[int]) -> str:
    return "".join(chr(ord("a") + i) for i in ids)


def start_engine(**fields: Any) -> LocalEngine:
    config = EngineConfig(
        **{
            "rows": 4,
            "positions": POSITIONS,
            "prefill_chunk": 4,
            "min_decode_steps": 3,
            "max_decode_steps": 5,
            "spans": 2,
            "batching_delay": 0.0,
            **fields,
        }
    )
    return LocalEngine(POLICY, config, PARAMS, detokenize=decode_text)


def environment_tokens(seed: int, turn: int) -> np.ndarray:
    """The environment's tokens before a turn of conversation `seed`."""
    rng = np.random.default_rng([seed, turn])
    return rng.integers(0, VOCAB_SIZE, int(rng.integers(1, 7)), np.int32)


def sampling_for(seed: int, turn: int) -> Sampling:
    """Ragged budgets, temperatures and filters, by conversation and turn."""
    rng = np.random.default_rng([seed, turn, 1])
    return Sampling(
        budget=int(rng.integers(1, 9)),
        temperature=float(rng.choice([0.0, 0.5, 1.0, 1.3])),
        top_k=int(rng.choice([0, 0, 5])),
        top_p=float(rng.choice([1.0, 1.0, 0.9])),
        min_p=float(rng.choice([0.0, 0.0, 0.02])),
        stop_ids=tuple(rng.integers(0, VOCAB_SIZE, int(rng.integers(0, 3))).tolist()),
    )


class Conversation:
    """A conversation of several turns; the environment's tokens and the keys depend on the seed."""

    def __init__(
        self,
        engine: Engine,
        seed: int,
        sampling: Sampling | Callable[[int, int], Sampling],
        passes_parent: bool = True,
    ) -> None:
        self.engine, self.seed, self.sampling = engine, seed, sampling
        self.passes_parent = passes_parent
        self.calls: list[Call] = []

    def submit(self) -> Any:
        turn = len(self.calls)
        previous = self.calls[-1] if self.calls else None
        context = np.zeros(0, np.int32) if previous is None else previous.ids
        ids = np.concatenate([context, environment_tokens(self.seed, turn)])
        sampling = self.sampling(self.seed, turn) if callable(self.sampling) else self.sampling
        parent = previous if self.passes_parent else None
        return self.engine.submit(ids, sampling, (self.seed, turn), parent)

    def play_turn(self) -> None:
        self.calls.append(self.submit().result(timeout=60))

    def play(self, turns: int) -> list[Call]:
        for _ in range(turns):
            self.play_turn()
        self.engine.release(self.calls[-1])
        return self.calls


def play_concurrently(conversations: Sequence[Conversation], turns: int) -> None:
    """Run the conversations concurrently."""
    for _ in range(turns):
        for conversation, future in [(c, c.submit()) for c in conversations]:
            conversation.calls.append(future.result(timeout=60))
    for conversation in conversations:
        conversation.engine.release(conversation.calls[-1])


def action_tokens(calls: Sequence[Call]) -> list[list[int]]:
    return [call.action.tolist() for call in calls]


def call_contents(calls: Sequence[Call]) -> list:
    """Every recorded field of the calls, bit by bit."""
    return [
        (
            c.prompt.tolist(),
            c.action.tolist(),
            c.sampler_logp.tolist(),
            [] if c.entropy is None else c.entropy.tolist(),
            c.version.tolist(),
            c.finish_reason,
        )
        for c in calls
    ]


def prompt_tokens_computed(engine: LocalEngine, before: dict[str, int]) -> int:
    """Prompt tokens computed since `before`, a copy of the engine's counts."""
    return sum(engine.counts[name] - before[name] for name in ("prefill_tokens", "fed_tokens"))


def check_sampler_logp(sequence: TrainingSequence, params: Any = PARAMS) -> None:
    """The sampler's log-probs equal those of the sequence alone."""
    expected = unpacked_logp(POLICY, params, sequence, POSITIONS)
    np.testing.assert_allclose(
        sequence.sampler_logp[sequence.action_mask], expected[sequence.action_mask], atol=1e-5
    )
