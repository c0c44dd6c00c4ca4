"""Conversations with an engine: worlds whose words follow from a seed, and what is recorded of the calls."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from hand_made import logp_alone, minute_policy

from agentrl_jax.engine import Engine
from agentrl_jax.local_engine import EngineConfig, LocalEngine
from agentrl_jax.rows import Row
from agentrl_jax.trajectories import Call, Sampling

VOCABULARY = 20
POSITIONS = 64
POLICY = minute_policy(VOCABULARY)
PARAMS = POLICY.init(jax.random.key(0))
OTHERS = POLICY.init(jax.random.key(1))


def text(ids: Sequence[int]) -> str:
    return "".join(chr(ord("a") + i) for i in ids)


def start(**fields: Any) -> LocalEngine:
    config = EngineConfig(
        **{"rows": 4, "positions": POSITIONS, "chunk": 4, "burst": 3, "longest": 5, "spans": 2, "patience": 0.0, **fields}
    )
    return LocalEngine(POLICY, config, PARAMS, text=text)


def said(seed: int, turn: int) -> np.ndarray:
    """What the world says before a turn of conversation `seed`."""
    rng = np.random.default_rng([seed, turn])
    return rng.integers(0, VOCABULARY, int(rng.integers(1, 7)), np.int32)


def settings_of(seed: int, turn: int) -> Sampling:
    """Ragged budgets, temperatures and filters, by conversation and turn."""
    rng = np.random.default_rng([seed, turn, 1])
    return Sampling(
        budget=int(rng.integers(1, 9)),
        temperature=float(rng.choice([0.0, 0.5, 1.0, 1.3])),
        top_k=int(rng.choice([0, 0, 5])),
        top_p=float(rng.choice([1.0, 1.0, 0.9])),
        min_p=float(rng.choice([0.0, 0.0, 0.02])),
        stop_ids=tuple(rng.integers(0, VOCABULARY, int(rng.integers(0, 3))).tolist()),
    )


class Conversation:
    """A conversation of several turns; its world's words and its keys follow from the seed alone."""

    def __init__(self, engine: Engine, seed: int, sampling: Sampling | Callable[[int, int], Sampling], hint: bool = True) -> None:
        self.engine, self.seed, self.sampling, self.hint = engine, seed, sampling, hint
        self.calls: list[Call] = []

    def submit(self) -> Any:
        turn = len(self.calls)
        before = self.calls[-1] if self.calls else None
        ids = np.concatenate([np.zeros(0, np.int32) if before is None else before.ids, said(self.seed, turn)])
        sampling = self.sampling(self.seed, turn) if callable(self.sampling) else self.sampling
        return self.engine.submit(ids, sampling, (self.seed, turn), before if self.hint else None)

    def turn(self) -> None:
        self.calls.append(self.submit().result(timeout=60))

    def play(self, turns: int) -> list[Call]:
        for _ in range(turns):
            self.turn()
        self.engine.release(self.calls[-1])
        return self.calls


def together(conversations: Sequence[Conversation], turns: int) -> None:
    """Play them side by side, all in flight at once."""
    for _ in range(turns):
        for conversation, future in [(c, c.submit()) for c in conversations]:
            conversation.calls.append(future.result(timeout=60))
    for conversation in conversations:
        conversation.engine.release(conversation.calls[-1])


def tokens(calls: Sequence[Call]) -> list[list[int]]:
    return [call.action.tolist() for call in calls]


def recorded(calls: Sequence[Call]) -> list:
    """All that a record says of calls, to the bit."""
    return [
        (
            c.prompt.tolist(), c.action.tolist(), c.sampler_logp.tolist(), [] if c.entropy is None else c.entropy.tolist(),
            c.version.tolist(), c.finish_reason,
        )
        for c in calls
    ]  # fmt: skip


def taken_in(engine: LocalEngine, before: dict[str, int]) -> int:
    """Tokens of prompts that were computed since."""
    return sum(engine.counts[name] - before[name] for name in ("prefill_tokens", "fed_tokens"))


def check_row(row: Row, params: Any = PARAMS) -> None:
    """The sampler's log-probs are those of the row alone."""
    expected = logp_alone(POLICY, params, row, POSITIONS)
    np.testing.assert_allclose(row.sampler_logp[row.action_mask], expected[row.action_mask], atol=1e-5)
