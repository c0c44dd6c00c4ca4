"""Audit: sample the calls of a trajectory log again and compare (docs/engine.md)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.engine import Engine, PromptImage
from agentrl_jax.hashed_bits import column_bits
from agentrl_jax.inference.sampling import exponential
from agentrl_jax.keys import key_data
from agentrl_jax.trajectories import Call, Trajectory

ImagesOfCall = Callable[[Call], tuple[PromptImage, ...]]


@dataclass(frozen=True)
class ReplayMismatch:
    """The first token of a call that differs; a token is None where its call had ended."""

    call: int
    position: int  # in the action
    recorded: int | None
    replayed: int | None
    # By how much the replayed token won the draw over the recorded one, in nats: see `draw_margin`.
    margin: float | None


@dataclass(frozen=True)
class ReplayReport:
    """How much of a trajectory log an engine reproduces, token by token."""

    calls: int
    tokens: int
    matching_tokens: int  # tokens before the first of their call that differs
    max_logp_gap: float  # the largest difference of log-probs among those
    # Near-ties, if the weights are those of the log.
    mismatches: tuple[ReplayMismatch, ...]


def no_images(call: Call) -> tuple[PromptImage, ...]:
    """Those of a call of a policy that sees nothing.

    Raises:
        ValueError: it has some.
    """
    if call.images:
        raise ValueError("calls with images are replayed with `ImagePrompter.recorded_images`")
    return ()


def check_replay(
    trajectories: Sequence[Trajectory], engine: Engine, images: ImagesOfCall = no_images
) -> ReplayReport:
    """Sample every sampled call of a log again: `replay_calls`."""
    calls = [call for t in trajectories for call in t.calls if call.source == "sampled"]
    return replay_calls(calls, engine, images)


def replay_calls(
    calls: Sequence[Call], engine: Engine, images: ImagesOfCall = no_images
) -> ReplayReport:
    """Sample calls again, each from its prompt, key and sampling parameters.

    Each call starts from its recorded prompt, so a difference ends with its call. With the weights
    that sampled it and an engine of the same shape, everything is the same; programs of another
    shape sum in another order, and a near-tie may fall differently.

    Args:
        calls: of one log.
        engine: an engine with the weights of the log.
        images: of a call's prompt.
    """
    futures = [
        engine.submit(call.prompt, call.sampling, call.key, images=images(call)) for call in calls
    ]
    matching_tokens, max_gap, mismatches = 0, 0.0, list[ReplayMismatch]()
    for i, (call, future) in enumerate(zip(calls, futures)):
        replayed = future.result()
        engine.release(replayed)
        n = num_equal(call.action, replayed.action)
        if n < max(len(call.action), len(replayed.action)):
            mismatches.append(_mismatch(i, n, call, replayed))
        matching_tokens += n
        gap = np.abs(call.sampler_logp[:n] - replayed.sampler_logp[:n]).max(initial=0.0)
        max_gap = max(max_gap, float(gap))
    num_tokens = sum(len(call.action) for call in calls)
    return ReplayReport(len(calls), num_tokens, matching_tokens, max_gap, tuple(mismatches))


def num_equal(a: np.ndarray, b: np.ndarray) -> int:
    """How many tokens two sequences have in common from their start on: 5 6 7 and 5 6 8 -> 2."""
    shorter = min(len(a), len(b))
    different = np.flatnonzero(a[:shorter] != b[:shorter])
    return int(different[0]) if len(different) else shorter


def _mismatch(i: int, position: int, call: Call, replayed: Call) -> ReplayMismatch:
    recorded, other = (
        int(c.action[position]) if position < len(c.action) else None for c in (call, replayed)
    )
    margin = None
    if recorded is not None and other is not None and call.sampling.temperature > 0:
        margin = draw_margin(call, replayed, position)
    return ReplayMismatch(i, position, recorded, other, margin)


def draw_margin(call: Call, replayed: Call, position: int) -> float:
    """By how much the replayed token won the draw over the recorded one, in nats.

    A token is drawn as argmax(log p + noise), and the key and the position determine the noise:

        margin = (log p + noise)(replayed) - (log p + noise)(recorded)

    with each token's own log p, that of the log or of the replay. It is about 0 at a near-tie.

    Args:
        call: recorded, sampled with a temperature above 0.
        replayed: the same, sampled again.
        position: of an action token that both have.
    """
    tokens = np.asarray([call.action[position], replayed.action[position]])
    logp = np.asarray([call.sampler_logp[position], replayed.sampler_logp[position]])
    key, counter = key_data(call.key)[None], np.asarray([position])
    noise = np.asarray(exponential(column_bits(key, counter, tokens.astype(np.uint32)[None])))[0]
    recorded, other = logp - np.log(noise)
    return float(other - recorded)
