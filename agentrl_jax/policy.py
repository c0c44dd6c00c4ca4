"""`Policy`: the protocol of a model, with its inputs and outputs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, Int, Key

from agentrl_jax.image_format import EncodedImages, ImageFormat, PackedImages
from agentrl_jax.pytree import AnyArray, pytree_dataclass, static_field

Params = Any  # a pytree of arrays


@pytree_dataclass
class PolicyInputs:
    """A batch of token rows.

    Segment 0 is padding; a token attends to earlier positions of its own segment.

    Without a cache: tokens 5 6 7 | 8 9 | pad  ->  segment_ids 1 1 1 2 2 0, positions 0 1 2 0 1 0.
    With a cache: `segment_ids` is 1 for a token and 0 for padding, and `positions` are cache
    positions. With branches: a row is a shared prefix of `prefix_length` columns, its tokens at
    their end, then branches of `branch_length` columns that continue it; a branch attends to the
    prefix and to itself. Prefix 3, branch 2: . 5 6 | 7 8 | 9 .  ->  positions 0 0 1 2 3 2 0.

    With `inner_branches` the prefix holds packed sequences, and a branch continues that of its
    segment from its own first position on: it attends to the sequence's tokens before that, and to
    itself. 5 6 7 | 8 9 | 4 .  ->  positions 0 1 2 1 2 3 0: 5 8 9 and 5 6 7 4.

    A policy that sees takes the features of its images' tokens in one of two ways: `embeddings`,
    aligned to the tokens, or `images`, which `apply` encodes, or finishes to (`EncodedImages`). Of
    the `feature_width` numbers of a token (`ImageFormat`) the first D replace its embedding; each
    further D are added to its hidden state after one of the first layers.
    """

    tokens: Int[AnyArray, "B T"]
    positions: Int[AnyArray, "B T"]
    segment_ids: Int[AnyArray, "B T"]
    # Replace the token embeddings where `embedding_mask` is true.
    embeddings: Float[AnyArray, "B T E"] | None = None
    embedding_mask: Bool[AnyArray, "B T"] | None = None
    # as many rows of images as rows of tokens
    images: PackedImages | EncodedImages | None = None
    # Which token of its row's images a token is; -1: none.
    image_index: Int[AnyArray, "B T"] | None = None
    # Rotary positions: time, row and column (M-RoPE); None: `positions` on all axes.
    rope_positions: Int[AnyArray, "3 B T"] | None = None
    # The last position of its segment that a token attends to; None: its own.
    visible_until: Int[AnyArray, "B T"] | None = None
    prefix_length: int = static_field(default=0)
    branch_length: int = static_field(default=0)  # 0: rows are not branched
    inner_branches: bool = static_field(default=False)


@pytree_dataclass
class KVCache:
    """Keys and values per layer, `[B, K, S, H]`.

    Attention reads the first `attention_length` positions only (0: all of them).
    """

    keys: tuple[Array, ...]
    values: tuple[Array, ...]
    attention_length: int = static_field(default=0)


@pytree_dataclass
class PolicyOutput:
    hidden: Float[Array, "B T D"]
    cache: KVCache | None = None
    aux: Float[Array, ""] | None = None  # auxiliary losses of the forward pass (routers)


@runtime_checkable
class Policy(Protocol):
    """A language model as pure functions of its parameters.

    The same layers serve training (a scan over stacked layers) and decoding (unrolled).
    """

    @property
    def vocab_size(self) -> int: ...

    @property
    def supports_branches(self) -> bool:
        """Whether `apply` takes rows that are a shared prefix with branches: `PolicyInputs`."""
        ...

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters, layers stacked."""
        ...

    def axes(self) -> Any:
        """The logical axes of each weight: a tree like that of `init`, one tuple per array."""
        ...

    def trainable(self) -> Any:
        """Which weights an update may change: a tree of booleans like that of `init`."""
        ...

    def apply(
        self,
        params: Params,
        inputs: PolicyInputs,
        cache: KVCache | None = None,
        key: Key[Array, ""] | None = None,
    ) -> PolicyOutput:
        """Final hidden states.

        Args:
            params: stacked weights without a cache, those of `unstack` with one.
            inputs: the token rows.
            cache: if given, the new keys and values are written to it.
            key: of dropout; None: no dropout.
        """
        ...

    def logits(self, params: Params, hidden: Float[Array, "*shape D"]) -> Float[Array, "*shape V"]:
        """Unnormalized log-probs in float32; takes stacked and unstacked parameters."""
        ...

    def init_cache(self, rows: int, positions: int) -> KVCache:
        """An empty cache."""
        ...

    def unstack(self, params: Params) -> Params:
        """The same weights with one tree per layer, as an engine holds them."""
        ...


@dataclass(frozen=True, eq=False)
class FrozenTower:
    """The part of a vision tower, from the patches on, that updates do not change.

    `apply` takes its outputs, in `EncodedImages`, in place of patches.
    """

    width: int  # numbers of a token, of `dtype`
    dtype: str
    projected: bool  # see `EncodedImages`
    weights: Callable[[Params], Params]  # of the policy's parameters, those that it has
    # from these weights and rows of patches to states [R, M, width]
    encode: Callable[[Params, PackedImages], Array]


@runtime_checkable
class VisionPolicy(Policy, Protocol):
    """A policy that may see images."""

    @property
    def image_format(self) -> ImageFormat | None:
        """How it takes images; None: it sees none."""
        ...

    def encode_images(self, params: Params, images: PackedImages) -> Float[Array, "R M E"]:
        """The features of the images' tokens, E = `feature_width` numbers each; takes stacked and
        unstacked parameters.
        """
        ...

    def frozen_tower(self) -> FrozenTower | None:
        """What updates do not change of its tower; None: they change all."""
        ...


def image_format(policy: Policy) -> ImageFormat | None:
    """How a policy takes images; None: it sees none."""
    return policy.image_format if isinstance(policy, VisionPolicy) else None


@runtime_checkable
class Encoder(Protocol):
    """A model of one vector per text, such as a bidirectional encoder."""

    def init(self, key: Key[Array, ""]) -> Params: ...

    def axes(self) -> Any:
        """As `Policy.axes`."""
        ...

    def apply(
        self, params: Params, tokens: Int[AnyArray, "B T"], mask: Bool[AnyArray, "B T"]
    ) -> Float[Array, "B D"]:
        """One pooled vector per row; the mask is false at padding."""
        ...


@runtime_checkable
class TokenCritic(Protocol):
    """Predictions from hidden states, float32: `[B, T]` per token, `[B]` per pooled row.

    An action-value critic adds a vocabulary axis, `[B, T, V]`; an ensemble of critics a leading
    one, `[k, B, T]`.
    """

    def init(self, key: Key[Array, ""]) -> Params: ...

    def axes(self) -> Any:
        """As `Policy.axes`."""
        ...

    def apply(self, params: Params, hidden: Float[Array, "*shape D"]) -> Float[Array, "..."]: ...
