"""What a model promises: `Policy`, and the records that go in and come out."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, Int, Key

from agentrl_jax.record import AnyArray, record, static

Params = Any  # a pytree of arrays


@record
class Inputs:
    """A batch of token rows. Segment 0 is padding; tokens attend within their own segment to earlier positions.

    Without a cache: tokens 5 6 7 | 8 9 | pad  ->  segment_ids 1 1 1 2 2 0, positions 0 1 2 0 1 0.
    With a cache: segment_ids is 1 where a token is real and 0 where not, and `positions` is where it goes in the cache.
    With branches: a row is a stem of `stem` columns, its tokens at the end of them, then branches of `branch` columns that go on
    from it; a branch sees the stem and itself. Stem 3, branch 2: . 5 6 | 7 8 | 9 . -> positions 0 0 1 2 3 2 0.
    """

    tokens: Int[AnyArray, "B T"]
    positions: Int[AnyArray, "B T"] | Int[AnyArray, "3 B T"]
    segment_ids: Int[AnyArray, "B T"]
    embeddings: Float[Array, "B T D"] | None = None  # stand in for a token's own where `embedded` is true
    embedded: Bool[Array, "B T"] | None = None
    stem: int = static(default=0)
    branch: int = static(default=0)  # 0: rows are not branched


@record
class Cache:
    """Keys and values per layer, `[B, K, S, H]`; attention reads the first `span` positions only (0: all of them)."""

    keys: tuple[Array, ...]
    values: tuple[Array, ...]
    span: int = static(default=0)


@record
class Output:
    hidden: Float[Array, "B T D"]
    cache: Cache | None = None
    aux: Float[Array, ""] | None = None  # losses of the forward pass itself (routers)


@runtime_checkable
class Policy(Protocol):
    """Pure functions of parameters. One block serves training (scanned over stacked layers) and decoding (unrolled).

    A policy whose `apply` takes rows with branches (`Inputs`) says so with an attribute `branches = True`.
    """

    @property
    def vocab_size(self) -> int: ...

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters, layers stacked."""
        ...

    def axes(self) -> Any:
        """The logical axis names of each weight: a tree like `init`'s with a tuple of names per array."""
        ...

    def trainable(self) -> Any:
        """Which weights an update may change: a tree like `init`'s of booleans."""
        ...

    def apply(self, params: Params, inputs: Inputs, cache: Cache | None = None, key: Key[Array, ""] | None = None) -> Output:
        """Final hidden states. With a cache, `params` are those of `unstack`, and the new keys and values are written."""
        ...

    def logits(self, params: Params, hidden: Float[Array, "*shape D"]) -> Float[Array, "*shape V"]:
        """Unnormalised log-probs in float32; takes stacked and unstacked parameters."""
        ...

    def init_cache(self, rows: int, positions: int) -> Cache:
        """An empty cache."""
        ...

    def unstack(self, params: Params) -> Params:
        """The same weights with one tree a layer: what an engine keeps for itself."""
        ...


@runtime_checkable
class Encoder(Protocol):
    """A bidirectional text encoder, or anything else that makes one vector of a text."""

    def init(self, key: Key[Array, ""]) -> Params: ...

    def axes(self) -> Any:
        """As `Policy.axes`."""
        ...

    def apply(self, params: Params, tokens: Int[AnyArray, "B T"], mask: Bool[AnyArray, "B T"]) -> Float[Array, "B D"]:
        """One pooled vector a row; the mask is true where a token is real."""
        ...


@runtime_checkable
class Critic(Protocol):
    """Predictions from hidden states, float32: `[B, T]` per token, `[B]` per pooled row.

    A critic of actions adds an axis for the vocabulary, `[B, T, V]`; copies of a critic add a leading one, `[k, B, T]`.
    """

    def init(self, key: Key[Array, ""]) -> Params: ...

    def axes(self) -> Any:
        """As `Policy.axes`."""
        ...

    def apply(self, params: Params, hidden: Float[Array, "*shape D"]) -> Float[Array, "..."]: ...
