"""The inputs of pairwise losses on the device, and the log-ratio of a pair."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from agentrl_jax.algorithms.losses.segment_ops import segment_sum
from agentrl_jax.algorithms.pairwise.pairs import ReplyTokens
from agentrl_jax.learner.packing import Batch, PackedLayout
from agentrl_jax.pytree import AnyArray, pytree_dataclass


@pytree_dataclass
class PairwiseBatch:
    """The inputs of the loss; both sequences of a pair are in one packed row."""

    batch: Batch  # the weight of a pair is on the first token of its first reply
    pair_ids: Int[AnyArray, "B T"]  # segments of pairs, in [0, T)
    # 1 for tokens of the first reply, -1 for those of the second, 0 elsewhere
    sign: Float[AnyArray, "B T"]
    reward_diff: Float[AnyArray, "B T"]  # r - r', at each token of the pair
    anchor_logp: Float[AnyArray, "B T"]  # under pi_t
    is_on_policy: Float[AnyArray, "B"]  # 1 where pi is still pi_t


def log_ratio(logp: Float[Array, "B T"], batch: PairwiseBatch) -> Float[Array, "B T"]:
    """d = sum over y_h of (logp - anchor) - the same sum over y'_h, at every token of the pair.

    Where pi is still pi_t the anchor is the log-prob itself, so that d is exactly 0: the scoring
    program's log-probs of the same weights may differ in rounding.
    """
    sign, on_policy = jnp.asarray(batch.sign), jnp.asarray(batch.is_on_policy)[:, None] > 0
    anchor = jnp.where(on_policy, jax.lax.stop_gradient(logp), batch.anchor_logp)
    signed_ratio = jnp.where(sign != 0, sign * (logp - anchor), 0.0)
    return segment_sum(jnp.asarray(batch.pair_ids), signed_ratio)


def make_pairwise_batch(
    layout: PackedLayout,
    tokens: ReplyTokens,
    reward_diffs: np.ndarray,
    anchor_logp: np.ndarray,
    num_pairs: int,
) -> PairwiseBatch:
    """This process's part, the pairs of `tokens`, of a batch of `num_pairs` pairs of all
    processes.
    """

    def packed(values: np.ndarray) -> np.ndarray:
        return layout.scatter(values, tokens.sequence, tokens.position)

    starts = tokens.first_tokens
    columns = layout.packed_coordinates(tokens.sequence, tokens.position)[1]
    weight = np.zeros(len(tokens.sequence))
    weight[starts] = 1.0 / num_pairs
    return PairwiseBatch(
        batch=layout.to_batch(packed(weight)),
        pair_ids=packed(columns[starts][tokens.pair]).astype(np.int32),
        sign=packed(tokens.sign),
        reward_diff=packed(reward_diffs[tokens.pair]),
        anchor_logp=anchor_logp,
        is_on_policy=np.zeros(layout.num_bins, np.float32),
    )
