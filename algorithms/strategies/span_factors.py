"""`SpanFactors`: factors of spans of a text as factors of its tokens."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.advantages.info_fields import info_field
from agentrl_jax.algorithms.strategies.wrapper import StrategyWrapper
from agentrl_jax.errors import UserError
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, RandomKey, Trajectory, Turn
from agentrl_jax.workers.pool import Task

Decode = Callable[[tuple[int, ...]], str]


@dataclass
class SpanFactors(StrategyWrapper):
    """The strategy's episodes with `info["token_factors"]`, for `SpanModulated`.

    The environment gives `info["span_factors"]`: [start, end, factor] in characters of the action's
    text. A token of which a character is in a span has its factor, the last one's where they
    overlap; all others have 1. The text is that of a turn's last call.

    Raises:
        UserError: a turn's info has no `span_factors`, or some that are no spans.
    """

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        group = await self.strategy.collect(task, runtime, key)

        def marked(trajectory: Trajectory) -> Trajectory:
            decode = runtime.agents[trajectory.agent].renderer.codec.decode
            turns = tuple(with_token_factors(turn, decode) for turn in trajectory.turns)
            return trajectory.replace(turns=turns)

        return dataclasses.replace(group, trajectories=tuple(map(marked, group.trajectories)))


def with_token_factors(turn: Turn, decode: Decode) -> Turn:
    """The turn with a factor for each token that the policy wrote."""
    if not turn.calls:
        return turn
    factors = [np.ones(len(call.action)) for call in turn.calls]
    ends = token_ends(decode, tuple(turn.calls[-1].action.tolist()))
    begins = np.concatenate([[0], ends])[:-1]
    for start, end, factor in _spans(turn):
        factors[-1][(begins < end) & (ends > start)] = factor
    sampled = [f[len(call.sampling.forced) :] for f, call in zip(factors, turn.calls)]
    token_factors = np.concatenate(sampled).tolist()
    return dataclasses.replace(turn, info={**turn.info, "token_factors": token_factors})


def _spans(turn: Turn) -> list[tuple[int, int, float]]:
    """The spans of a turn. Raises UserError where they are something else."""
    value = info_field(turn, "span_factors")
    try:
        spans = [(int(start), int(end), float(factor)) for start, end, factor in value]
        if not all(0 <= start <= end and np.isfinite(factor) for start, end, factor in spans):
            raise ValueError("a span ends before it starts, or its factor is not finite")
    except (TypeError, ValueError) as error:
        raise UserError(
            f"a turn's info['span_factors'] must hold [start, end, factor] ({error!s:.80})"
        ) from error
    return spans


def token_ends(decode: Decode, ids: tuple[int, ...]) -> np.ndarray:
    """Where each token ends in the decoded text, in characters, int [tokens].

    A token that completes no character ends where the one before it does.
    """
    pieces = [decode((token,)) for token in ids]
    if "".join(pieces) == decode(ids):
        return np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    # An incomplete character at the end decodes as U+FFFD.
    lengths = [len(decode(ids[: n + 1]).rstrip("\ufffd")) for n in range(len(ids))]
    return np.maximum.accumulate(np.asarray(lengths, np.int64))
