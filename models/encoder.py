"""A bidirectional text encoder of the RoBERTa kind: post-norm blocks, learned positions, biases, GELU."""

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from agentrl_jax.errors import UserError
from agentrl_jax.models.described import axis_names, unboxed
from agentrl_jax.models.layers import DTYPES, project, weight
from agentrl_jax.models.postnorm import INIT, KEPT, Block, LayerNorm
from agentrl_jax.policy import Params
from agentrl_jax.record import AnyArray

# (the network, which may declare weights; hidden states; where a token is real) -> one vector a row
Pool = Callable[[Any, Float[Array, "B T D"], Bool[Array, "B T"]], Float[Array, "B D"]]


def first_token(network: "Network", hidden: Float[Array, "B T D"], mask: Bool[Array, "B T"]) -> Float[Array, "B D"]:
    """The state of the first real token (`<s>`) as it is."""
    first = jnp.argmax(mask, axis=1)
    return jnp.take_along_axis(hidden, first[:, None, None], axis=1)[:, 0]


def pooled(network: "Network", hidden: Float[Array, "B T D"], mask: Bool[Array, "B T"]) -> Float[Array, "B D"]:
    """`tanh(W first + b)`: the pooler of BERT, which RoBERTa's pre-training leaves at its random start."""
    first, width = first_token(network, hidden, mask), hidden.shape[-1]
    return jnp.tanh(project(network, "pooler", first[:, None], {"hidden": width}, {"embed": width}, True, INIT))[:, 0]


def mean_tokens(network: "Network", hidden: Float[Array, "B T D"], mask: Bool[Array, "B T"]) -> Float[Array, "B D"]:
    """The mean over real tokens, in float32."""
    real = mask[:, :, None].astype(jnp.float32)
    mean = jnp.sum(hidden.astype(jnp.float32) * real, axis=1) / jnp.maximum(jnp.sum(real, axis=1), 1.0)
    return mean.astype(hidden.dtype)


def max_tokens(network: "Network", hidden: Float[Array, "B T D"], mask: Bool[Array, "B T"]) -> Float[Array, "B D"]:
    """The largest of each number over real tokens: what stands in one place of a long text is not thinned out."""
    least = jnp.finfo(hidden.dtype).min
    return jnp.where(jnp.any(mask, axis=1)[:, None], jnp.max(jnp.where(mask[:, :, None], hidden, least), axis=1), 0.0)


@dataclasses.dataclass
class EncoderConfig:
    """The shape of an encoder; the defaults are RoBERTa-base's (Liu et al. 2019, arXiv:1907.11692). There is no dropout."""

    layers: int = 12
    width: int = 768
    hidden: int = 3072  # inner width of the MLP
    heads: int = 12  # divides width
    positions: int = 514  # rows of the position table; the first pad_id + 1 are never a token's
    pad_id: int = 1  # the first token's position is pad_id + 1
    token_types: int = 1  # rows of their table; every token has type 0
    norm_eps: float = 1e-5
    pool: Pool = first_token  # or `pooled`, `mean_tokens`, `max_tokens`
    param_dtype: str = "float32"
    compute_dtype: str = "float32"  # of activations and matrix products; norms and softmax are float32
    remat: bool = False  # keep only the input of each block for the backward pass, recompute the rest

    def build(self, vocab_size: int) -> "TextEncoder":
        """The encoder over `vocab_size` tokens; a later change of this config does not reach it.

        Raises:
            UserError: a value makes no sense.
        """
        for name in ("layers", "width", "hidden", "heads", "token_types"):
            if getattr(self, name) < 1:
                raise UserError(f"The encoder's {name} must be at least 1, not {getattr(self, name)}.")
        if vocab_size < 1:
            raise UserError(f"An encoder needs a vocabulary of at least 1 token, not {vocab_size}.")
        if self.width % self.heads:
            raise UserError(f"The encoder's width ({self.width}) must be a multiple of its heads ({self.heads}).")
        if self.pad_id < 0 or self.positions < self.pad_id + 2:
            raise UserError(
                f"The encoder's positions ({self.positions}) must exceed its pad_id ({self.pad_id}), at least 0, by two or more."
            )
        if self.norm_eps <= 0:
            raise UserError(f"The encoder's norm_eps must be positive, not {self.norm_eps}.")
        for name in ("param_dtype", "compute_dtype"):
            if getattr(self, name) not in DTYPES:
                raise UserError(f"The encoder's {name} must be one of {', '.join(DTYPES)}, not {getattr(self, name)!r}.")
        return TextEncoder(dataclasses.replace(self), vocab_size)


class Network(nn.Module):
    """Every weight of the encoder, and its forward pass with the blocks scanned."""

    config: EncoderConfig
    vocab_size: int

    @property
    def param_dtype(self) -> str:
        return self.config.param_dtype

    @nn.compact
    def __call__(self, tokens: Int[Array, "B T"], mask: Bool[Array, "B T"]) -> Float[Array, "B D"]:
        c = self.config
        words = weight(self, "embedding", INIT, {"vocab": self.vocab_size, "embed": c.width}, c.param_dtype)
        places = weight(self, "positions", INIT, {"positions": c.positions, "embed": c.width}, c.param_dtype)
        types = weight(self, "token_types", INIT, {"types": c.token_types, "embed": c.width}, c.param_dtype)
        tokens = jnp.where(mask, tokens, 0)
        x = jnp.take(words, tokens, axis=0) + jnp.take(places, token_positions(mask, c.pad_id), axis=0) + types[None, :1]
        x = LayerNorm(c.norm_eps, c.param_dtype, name="embedding_norm")(x.astype(c.compute_dtype))
        blocks = nn.scan(
            nn.remat(Block, prevent_cse=False, policy=jax.checkpoint_policies.save_only_these_names(*(() if c.remat else KEPT))),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=(nn.broadcast,),  # type: ignore[arg-type]
            length=c.layers,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        x, _ = blocks(c.heads, c.hidden, c.norm_eps, c.param_dtype, name="layers")(x, mask)
        return c.pool(self, x, mask)


def token_positions(mask: Bool[Array, "B T"], pad_id: int) -> Int[Array, "B T"]:
    """RoBERTa's: `pad_id + 1 +` the index among real tokens; padding has `pad_id`.

    pad_id 1, mask 0 1 1 0 1  ->  1 2 3 1 4
    """
    real = mask.astype(jnp.int32)
    return pad_id + jnp.cumsum(real, axis=1) * real


@dataclasses.dataclass(frozen=True, eq=False)
class TextEncoder:
    """The `Encoder` of an `EncoderConfig`; made by its `build`. Blocks are stacked under `layers`, with a leading axis L."""

    config: EncoderConfig
    vocab_size: int

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters."""
        return unboxed(jax.jit(self._described)(key))

    def axes(self) -> Any:
        """The logical axis names of each weight: a tree like `init`'s with a tuple of names per array."""
        return axis_names(jax.eval_shape(self._described, jax.random.key(0)))

    def apply(self, params: Params, tokens: Int[AnyArray, "B T"], mask: Bool[AnyArray, "B T"]) -> Float[Array, "B D"]:
        """One pooled vector a row, of the compute dtype; where the mask is false, tokens do not matter.

        Raises:
            UserError: rows are longer than the position table.
        """
        limit = self.config.positions - self.config.pad_id - 1
        if tokens.shape[1] > limit:
            raise UserError(f"This encoder reads at most {limit} tokens, not {tokens.shape[1]}: cut the texts.")
        return Network(self.config, self.vocab_size).apply({"params": params}, jnp.asarray(tokens), jnp.asarray(mask))  # type: ignore[return-value]

    def _described(self, key: Key[Array, ""]) -> Any:
        """Fresh parameters in boxes that carry their logical axes."""
        return Network(self.config, self.vocab_size).init(key, jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1), bool))["params"]
