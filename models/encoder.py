"""A bidirectional text encoder of the BERT and RoBERTa kind: post-norm blocks, learned positions,
biases, GELU.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int, Key

from agentrl_jax.config_tree import OMITTED_AT_DEFAULT
from agentrl_jax.errors import UserError
from agentrl_jax.models.kernel_inputs import MASK_VALUE
from agentrl_jax.models.layers import DTYPES, LayerNorm, gelu_exact, project
from agentrl_jax.models.parameters import (
    Module,
    apply,
    compact,
    init_params,
    logical_axes,
    normal,
    rematerialize,
    scan_layers,
    weight_with_adapter,
)
from agentrl_jax.policy import Params
from agentrl_jax.pytree import AnyArray

# What a block stores for its backward pass in addition to its input.
ENCODER_SAVED_ACTIVATIONS = ("query", "key", "value", "inner")
WEIGHT_INIT = normal(0.02)  # of every matrix (BERT's)

# (the network, which may declare weights; hidden states; where a token is real) -> one vector a row
PoolingFn = Callable[[Any, Float[Array, "B T D"], Bool[Array, "B T"]], Float[Array, "B D"]]


def first_token_pooling(
    network: "EncoderNetwork", hidden: Float[Array, "B T D"], mask: Bool[Array, "B T"]
) -> Float[Array, "B D"]:
    """The state of the first real token (`<s>`) as it is."""
    first = jnp.argmax(mask, axis=1)
    return jnp.take_along_axis(hidden, first[:, None, None], axis=1)[:, 0]


def bert_pooling(
    network: "EncoderNetwork", hidden: Float[Array, "B T D"], mask: Bool[Array, "B T"]
) -> Float[Array, "B D"]:
    """`tanh(W first + b)`: the pooler of BERT, which RoBERTa's pre-training leaves at its random
    start.
    """
    first = first_token_pooling(network, hidden, mask)[:, None]
    inner, outer = {"hidden": hidden.shape[-1]}, {"embed": hidden.shape[-1]}
    return jnp.tanh(project(network, "pooler", first, inner, outer, True, WEIGHT_INIT))[:, 0]


def mean_pooling(
    network: "EncoderNetwork", hidden: Float[Array, "B T D"], mask: Bool[Array, "B T"]
) -> Float[Array, "B D"]:
    """The mean over real tokens, in float32."""
    real = mask[:, :, None].astype(jnp.float32)
    total = jnp.sum(hidden.astype(jnp.float32) * real, axis=1)
    return (total / jnp.maximum(jnp.sum(real, axis=1), 1.0)).astype(hidden.dtype)


def max_pooling(
    network: "EncoderNetwork", hidden: Float[Array, "B T D"], mask: Bool[Array, "B T"]
) -> Float[Array, "B D"]:
    """The maximum of each component over real tokens: a feature of a single token is not averaged
    away in a long text.
    """
    least = jnp.finfo(hidden.dtype).min
    most = jnp.max(jnp.where(mask[:, :, None], hidden, least), axis=1)
    return jnp.where(jnp.any(mask, axis=1)[:, None], most, 0.0)


@dataclasses.dataclass
class EncoderConfig:
    """The shape of an encoder; the defaults are RoBERTa-base's (Liu et al. 2019, arXiv:1907.11692).
    There is no dropout.
    """

    layers: int = 12
    width: int = 768
    hidden: int = 3072  # inner width of the MLP
    heads: int = 12  # divides width
    positions: int = 514  # rows of the position table
    pad_id: int = 1  # no token's position in RoBERTa
    # of a text's first token; None: pad_id + 1 (RoBERTa's; BERT's is 0)
    first_position: int | None = dataclasses.field(default=None, metadata=OMITTED_AT_DEFAULT)
    token_types: int = 1  # rows of their table; every token has type 0
    norm_eps: float = 1e-5
    pooling: PoolingFn = first_token_pooling  # or `bert_pooling`, `mean_pooling`, `max_pooling`
    param_dtype: str = "float32"
    # of activations and matrix products; norms and softmax are float32
    compute_dtype: str = "float32"
    # store only the input of each block for the backward pass and recompute the rest
    remat: bool = False

    @property
    def position_of_first(self) -> int:
        """The row of the position table that a text's first token has."""
        return self.pad_id + 1 if self.first_position is None else self.first_position

    def build(self, vocab_size: int) -> "TextEncoder":
        """The encoder over `vocab_size` tokens; a later change of this config does not reach it.

        Raises:
            UserError: a value makes no sense.
        """
        check_encoder_config(self, vocab_size)
        return TextEncoder(dataclasses.replace(self), vocab_size)


def check_encoder_config(config: EncoderConfig, vocab_size: int) -> None:
    """Raise `UserError` for the first value that makes no sense."""
    c = config
    for name in ("layers", "width", "hidden", "heads", "token_types"):
        if getattr(c, name) < 1:
            raise UserError(f"The encoder's {name} must be at least 1, not {getattr(c, name)}.")
    if vocab_size < 1:
        raise UserError(f"An encoder needs a vocabulary of at least 1 token, not {vocab_size}.")
    if c.width % c.heads:
        raise UserError(
            f"The encoder's width ({c.width}) must be a multiple of its heads ({c.heads})."
        )
    if not 0 <= c.position_of_first < c.positions:
        raise UserError(
            f"The encoder's positions ({c.positions}) must exceed that of the first token "
            f"({c.position_of_first}), at least 0."
        )
    if c.norm_eps <= 0:
        raise UserError(f"The encoder's norm_eps must be positive, not {c.norm_eps}.")
    for name in ("param_dtype", "compute_dtype"):
        if getattr(c, name) not in DTYPES:
            raise UserError(
                f"The encoder's {name} must be one of {', '.join(DTYPES)}, "
                f"not {getattr(c, name)!r}."
            )


class EncoderBlock(Module):
    """`x = norm(x + attention(x))`, then `x = norm(x + mlp(x))`: norms after the sums, biases
    everywhere.
    """

    heads: int
    hidden: int
    norm_eps: float
    param_dtype: str

    @compact
    def __call__(
        self, x: Float[Array, "B T D"], mask: Bool[Array, "B T"]
    ) -> tuple[Float[Array, "B T D"], None]:
        """The next hidden states; every token attends to the real ones."""
        width, hidden = {"embed": x.shape[-1]}, {"hidden": self.hidden}
        heads = {"heads": self.heads, "head_size": x.shape[-1] // self.heads}
        query, key, value = (
            checkpoint_name(project(self, name, x, width, heads, True, WEIGHT_INIT), name)
            for name in ("query", "key", "value")
        )
        query = query * query.shape[-1] ** -0.5
        scores = jnp.einsum("BTNH,BSNH->BNTS", query, key, preferred_element_type=jnp.float32)
        mask_bias = jnp.where(mask, 0.0, MASK_VALUE)[:, None, None, :]
        weights = jax.nn.softmax(scores + mask_bias, axis=-1)
        y = jnp.einsum("BNTS,BSNH->BTNH", weights.astype(x.dtype), value)
        y = project(self, "out", y, heads, width, True, WEIGHT_INIT)
        x = LayerNorm(self.norm_eps, self.param_dtype, name="attention_norm")(x + y)
        inner = checkpoint_name(project(self, "up", x, width, hidden, True, WEIGHT_INIT), "inner")
        y = project(self, "down", gelu_exact(inner), hidden, width, True, WEIGHT_INIT)
        return LayerNorm(self.norm_eps, self.param_dtype, name="mlp_norm")(x + y), None


class EncoderNetwork(Module):
    """Every weight of the encoder, and its forward pass with the blocks scanned."""

    config: EncoderConfig
    vocab_size: int

    @property
    def param_dtype(self) -> str:
        return self.config.param_dtype

    @compact
    def __call__(self, tokens: Int[Array, "B T"], mask: Bool[Array, "B T"]) -> Float[Array, "B D"]:
        c = self.config
        sizes = {
            "embedding": {"vocab": self.vocab_size},
            "positions": {"positions": c.positions},
            "token_types": {"types": c.token_types},
        }
        words, positions, types = (
            weight_with_adapter(self, name, WEIGHT_INIT, rows | {"embed": c.width}, c.param_dtype)
            for name, rows in sizes.items()
        )
        x = jnp.take(words, jnp.where(mask, tokens, 0), axis=0)
        position = token_positions(mask, c.position_of_first)
        x = x + jnp.take(positions, position, axis=0) + types[None, :1]
        x = LayerNorm(c.norm_eps, c.param_dtype, name="embedding_norm")(x.astype(c.compute_dtype))
        block = rematerialize(EncoderBlock, () if c.remat else ENCODER_SAVED_ACTIVATIONS)
        stack = scan_layers(block, c.layers, scanned=(False,))
        x, _ = stack(c.heads, c.hidden, c.norm_eps, c.param_dtype, name="layers")(x, mask)
        return c.pooling(self, x, mask)


def token_positions(mask: Bool[Array, "B T"], first: int) -> Int[Array, "B T"]:
    """`first +` the index among real tokens; padding has 0.

    first 2, mask 0 1 1 0 1  ->  0 2 3 0 4
    """
    index = jnp.cumsum(mask.astype(jnp.int32), axis=1) - 1
    return jnp.where(mask, first + index, 0)


@dataclasses.dataclass(frozen=True, eq=False)
class TextEncoder:
    """The `Encoder` of an `EncoderConfig`; made by its `build`. Blocks are stacked under `layers`,
    with a leading axis L.
    """

    config: EncoderConfig
    vocab_size: int

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters."""
        return init_params(self._network, key, *_example_inputs())

    def axes(self) -> Any:
        """The logical axis names of each weight: a tree like `init`'s with a tuple of names per
        array.
        """
        return logical_axes(self._network, *_example_inputs())

    def apply(
        self, params: Params, tokens: Int[AnyArray, "B T"], mask: Bool[AnyArray, "B T"]
    ) -> Float[Array, "B D"]:
        """One pooled vector a row, of the compute dtype; where the mask is false, tokens do not
        matter.

        Raises:
            UserError: rows are longer than the position table.
        """
        limit = self.config.positions - self.config.position_of_first
        if tokens.shape[1] > limit:
            raise UserError(
                f"This encoder reads at most {limit} tokens, not {tokens.shape[1]}: cut the texts."
            )
        return apply(self._network, params, jnp.asarray(tokens), jnp.asarray(mask))

    @property
    def _network(self) -> EncoderNetwork:
        return EncoderNetwork(self.config, self.vocab_size)


def _example_inputs() -> tuple[np.ndarray, np.ndarray]:
    """A text of one token."""
    return np.zeros((1, 1), np.int32), np.ones((1, 1), bool)
