"""What every attention kernel over whole rows takes: arrays, score options and the mask."""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from agentrl_jax.pytree import pytree_dataclass

# The name, for rematerialization, of the attention output and of the log-sum-exp of each row of
# scores: stored, attention need not be recomputed.
ATTENTION_OUTPUT = "attended"
MASK_VALUE = -1e30  # finite: a query that may attend to nothing gets a uniform average, never NaN

Query = Float[Array, "B T K M H"]
KeyValue = Float[Array, "B T K H"]  # keys and values: M query heads share a key head
QueryIds = Int[Array, "B T"]


@pytree_dataclass
class KernelInputs:
    """Queries, keys and values, with the position and segment of each."""

    query: Query
    key: Float[Array, "B S K H"]
    value: Float[Array, "B S K H"]
    positions: QueryIds
    segment_ids: QueryIds
    key_positions: Int[Array, "B S"]
    key_segment_ids: Int[Array, "B S"]
    visible_until: QueryIds | None = None  # the last position to attend to; None: the query's own

    @classmethod
    def of_rows(
        cls,
        query: Query,
        key: KeyValue,
        value: KeyValue,
        positions: QueryIds,
        segment_ids: QueryIds,
        visible_until: QueryIds | None = None,
    ) -> "KernelInputs":
        """Self-attention: the keys are those of the rows themselves."""
        return cls(
            query=query,
            key=key,
            value=value,
            positions=positions,
            segment_ids=segment_ids,
            key_positions=positions,
            key_segment_ids=segment_ids,
            visible_until=visible_until,
        )


@dataclass(frozen=True)
class ScoreOptions:
    """`cap tanh(scale q k / cap)` over keys less than `window` positions away; 0: no cap, no
    window. If not `causal`, over all keys of the segment, which is no longer than the window if
    that is not 0.
    """

    scale: float
    window: int = 0
    cap: float = 0.0
    causal: bool = True


def attention_mask(inputs: KernelInputs, options: ScoreOptions) -> Bool[Array, "B T S"]:
    """True where a query may attend to a key: the same segment, a position up to the query's own or
    `visible_until`, less than `window` before it if not 0.

    segment_ids 1 1 2 0, positions 0 1 0 0  ->  1000 1100 0010 0001
    """
    same = inputs.segment_ids[:, :, None] == inputs.key_segment_ids[:, None, :]
    if not options.causal:
        return same
    distance = inputs.positions[:, :, None] - inputs.key_positions[:, None, :]
    ahead = 0
    if inputs.visible_until is not None:
        ahead = jnp.maximum(inputs.visible_until - inputs.positions, 0)[:, :, None]
    visible = same & (distance >= -ahead)
    return visible & (distance < options.window) if options.window else visible
