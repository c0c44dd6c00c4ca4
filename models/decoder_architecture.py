"""What a decoder is made of: its sizes and options, and the kinds of layers that they describe."""

import dataclasses

from agentrl_jax.errors import UserError
from agentrl_jax.models.kernel_inputs import ATTENTION_OUTPUT
from agentrl_jax.models.layers import DTYPES, Activation, silu
from agentrl_jax.models.moe import ExpertsConfig
from agentrl_jax.models.rope import Rope

# What a block stores for its backward pass in addition to its input: the products that feed
# nonlinear functions. The rest is cheaper to recompute than to store and load (a fifth of the step
# on a CPU).
SAVED_ACTIVATIONS = ("query", "key", "value", ATTENTION_OUTPUT, "gate", "up")


@dataclasses.dataclass
class DecoderArchitecture:
    """The sizes and options of a decoder-only transformer."""

    layers: int = 4
    width: int = 128
    hidden: int = 512  # inner width of the gated MLP
    heads: int = 4
    kv_heads: int = 2  # divides heads; equal to heads: plain multi-head attention
    head_size: int = 32
    rope: Rope = dataclasses.field(default_factory=Rope)
    norm_eps: float = 1e-6
    norm_offset: bool = False  # norm weights are stored as scale - 1 (Gemma)
    # norms of what attention and MLP return, before they are added (Gemma)
    post_norms: bool = False
    qk_norm: bool = False  # RMSNorm of each query and key head (Qwen 3, Gemma 3)
    qkv_bias: bool = False  # biases on the three input projections (Qwen 2)
    out_bias: bool = False  # a bias on the attention's output projection
    mlp_bias: bool = False
    activation: Activation = silu
    embedding_scale: bool = False  # embeddings times sqrt(width) (Gemma)
    query_scale: float = 0.0  # factor on the attention scores; 0: 1 / sqrt(head_size)
    attention_cap: float = 0.0  # soft cap of the attention scores; 0: none (Gemma 2)
    logit_cap: float = 0.0  # soft cap of the logits; 0: none (Gemma 2)
    window: int = 0  # positions that a windowed layer attends to, its own included; 0: all
    windowed: tuple[bool, ...] = (True,)  # which layers are windowed, repeated over the depth
    window_rope: Rope | None = None  # of the windowed layers (Gemma 3); None: `rope`
    experts: ExpertsConfig | None = None
    tied_head: bool = True  # the embedding is also the output head
    max_positions: int = 32_768  # the longest row that the weights were trained for
    param_dtype: str = "float32"
    # of activations, matrix products and the cache; norms, rotations and softmax are float32
    compute_dtype: str = "float32"
    # of each block, in addition to its input, for the backward pass; None: all, nothing is
    # recomputed
    saved_activations: tuple[str, ...] | None = SAVED_ACTIVATIONS


def check_config(config: DecoderArchitecture, vocab_size: int) -> None:
    """Raise `UserError` for the first value that makes no sense."""
    for name in ("layers", "width", "hidden", "heads", "kv_heads", "head_size", "max_positions"):
        if getattr(config, name) < 1:
            raise UserError(
                f"The decoder's {name} must be at least 1, not {getattr(config, name)}."
            )
    if vocab_size < 1:
        raise UserError(f"A decoder needs a vocabulary of at least 1 token, not {vocab_size}.")
    if config.heads % config.kv_heads:
        raise UserError(
            f"The decoder's heads ({config.heads}) must be a multiple of its kv_heads "
            f"({config.kv_heads})."
        )
    if config.head_size % 2:
        raise UserError(
            f"The decoder's head_size must be even for rotary positions, not {config.head_size}."
        )
    if config.norm_eps <= 0:
        raise UserError(f"The decoder's norm_eps must be positive, not {config.norm_eps}.")
    for name in ("query_scale", "attention_cap", "logit_cap", "window"):
        if getattr(config, name) < 0:
            raise UserError(
                f"The decoder's {name} must not be negative, not {getattr(config, name)}."
            )
    if not config.windowed:
        raise UserError("The decoder's windowed must name at least one layer.")
    for rope in (config.rope, config.window_rope or config.rope):
        rope.frequencies(config.head_size)
    e = config.experts
    if e is not None and not (1 <= e.per_token <= e.count and e.hidden >= 1 and e.balance >= 0):
        raise UserError(
            "The decoder's experts need hidden >= 1, balance >= 0 and "
            f"1 <= per_token <= count: {e}."
        )
    unknown = set(config.saved_activations or ()) - set(SAVED_ACTIVATIONS)
    if unknown:
        raise UserError(
            f"A block can keep {', '.join(SAVED_ACTIVATIONS)} for its backward pass, "
            f"not {', '.join(sorted(unknown))}."
        )
    for name in ("param_dtype", "compute_dtype"):
        if getattr(config, name) not in DTYPES:
            raise UserError(
                f"The decoder's {name} must be one of {', '.join(DTYPES)}, "
                f"not {getattr(config, name)!r}."
            )


@dataclasses.dataclass(frozen=True)
class LayerStack:
    """Consecutive layers whose weights have the same shapes: stacked in one tree and scanned."""

    name: str  # of that tree
    start: int  # index of its first layer
    layers: int
    sparse: bool


def layer_stacks(config: DecoderArchitecture) -> list[LayerStack]:
    """The decoder's layers from first to last; a single stack, `layers`, unless dense and sparse
    layers are mixed.
    """
    e = config.experts
    sparse = [e is not None and i not in e.dense_layers for i in range(config.layers)]
    starts = [i for i in range(config.layers) if i == 0 or sparse[i] != sparse[i - 1]]
    stops = [*starts[1:], config.layers]
    return [
        LayerStack(f"layers_{n}" if n else "layers", i, j - i, sparse[i])
        for n, (i, j) in enumerate(zip(starts, stops))
    ]


def attention_kinds(config: DecoderArchitecture) -> tuple[list[tuple[int, Rope]], list[int]]:
    """The distinct (window, rope) among the layers, and the index of each layer's."""
    local, full = (config.window, config.window_rope or config.rope), (0, config.rope)
    kinds = []
    for layer in range(config.layers):
        windowed = config.window > 0 and config.windowed[layer % len(config.windowed)]
        kinds.append(local if windowed else full)
    distinct = [kind for i, kind in enumerate(kinds) if kind not in kinds[:i]]
    return distinct, [distinct.index(kind) for kind in kinds]
