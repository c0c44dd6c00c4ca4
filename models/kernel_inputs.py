"""What every attention kernel over whole rows takes: arrays, score options and the mask."""

from dataclasses import dataclass

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

    @classmethod
    def of_rows(
        cls,
        query: Query,
        key: KeyValue,
        value: KeyValue,
        positions: QueryIds,
        segment_ids: QueryIds,
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
        )


@dataclass(frozen=True)
class ScoreOptions:
    """`cap tanh(scale q k / cap)` over keys less than `window` positions away; 0: no cap, no
    window.
    """

    scale: float
    window: int = 0
    cap: float = 0.0


def attention_mask(
    positions: QueryIds,
    key_positions: Int[Array, "B S"],
    segment_ids: QueryIds,
    key_segment_ids: Int[Array, "B S"],
    window: int,
) -> Bool[Array, "B T S"]:
    """True where a query may attend to a key: the same segment, an earlier or equal position, less
    than `window` away if not 0.

    segment_ids 1 1 2 0, positions 0 1 0 0  ->  1000 1100 0010 0001
    """
    distance = positions[:, :, None] - key_positions[:, None, :]
    visible = (segment_ids[:, :, None] == key_segment_ids[:, None, :]) & (distance >= 0)
    return visible & (distance < window) if window else visible
