"""A decoder-only transformer described by a config: Llama, Mistral, Qwen and Gemma are values of one `DecoderConfig`."""

import dataclasses
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key

from agentrl_jax.errors import UserError
from agentrl_jax.models.attention import Attention, View, cache_slots
from agentrl_jax.models.described import axis_names, unboxed
from agentrl_jax.models.experts import Experts, ExpertsConfig
from agentrl_jax.models.kernels import ATTENDED
from agentrl_jax.models.layers import DTYPES, Activation, GatedMLP, RMSNorm, capped, fan_in, lookup, silu, weight
from agentrl_jax.models.rope import Rope, rotation, rotation_below
from agentrl_jax.policy import Cache, Inputs, Output, Params, Policy
from agentrl_jax.sharding import constrain, is_names, platform

# What a block keeps for its backward pass beside its input: the products that feed nonlinear functions. The rest is cheaper
# to recompute than to store and load (a fifth of the step on a CPU).
KEPT = ("query", "key", "value", ATTENDED, "gate", "up")

# The head of unstacked weights on a CPU, [D, V]: a product of few rows with a table [V, D] would turn the table anew at every step.
READOUT = "readout"


@dataclasses.dataclass
class DecoderConfig:
    """The shape of a decoder."""

    layers: int = 4
    width: int = 128
    hidden: int = 512  # inner width of the gated MLP
    heads: int = 4
    kv_heads: int = 2  # divides heads; equal to heads: plain multi-head attention
    head_size: int = 32
    rope: Rope = dataclasses.field(default_factory=Rope)
    norm_eps: float = 1e-6
    norm_offset: bool = False  # norm weights are stored as scale - 1 (Gemma)
    post_norms: bool = False  # norms of what attention and MLP return, before they are added (Gemma)
    qk_norm: bool = False  # RMSNorm of each query and key head (Qwen 3, Gemma 3)
    qkv_bias: bool = False  # biases on the three input projections (Qwen 2)
    out_bias: bool = False  # a bias on the attention's output projection
    mlp_bias: bool = False
    activation: Activation = silu
    embedding_scale: bool = False  # embeddings times sqrt(width) (Gemma)
    query_scale: float = 0.0  # factor on the attention scores; 0: 1 / sqrt(head_size)
    attention_cap: float = 0.0  # soft cap of the attention scores; 0: none (Gemma 2)
    logit_cap: float = 0.0  # soft cap of the logits; 0: none (Gemma 2)
    window: int = 0  # how many positions a windowed layer sees, its own included; 0: all
    windowed: tuple[bool, ...] = (True,)  # which layers are windowed, repeated over the depth
    window_rope: Rope | None = None  # of the windowed layers; None: as the others (Gemma 3)
    experts: ExpertsConfig | None = None
    tied_head: bool = True  # the embedding is the output head too
    max_positions: int = 32_768  # the longest row that the weights were made for
    param_dtype: str = "float32"
    compute_dtype: str = "float32"  # of activations, matrix products and the cache; norms, rotations and softmax are float32
    kept: tuple[str, ...] | None = KEPT  # of each block, beside its input, for the backward pass; None: all, nothing is recomputed

    def build(self, vocab_size: int) -> "Decoder":
        """The policy over `vocab_size` tokens; a later change of this config does not reach it.

        Raises:
            UserError: a value makes no sense.
        """
        check(self, vocab_size)
        return Decoder(dataclasses.replace(self), vocab_size)

    def start(self, policy: Policy, key: Key[Array, ""], mesh: Mesh) -> Params:
        """Fresh parameters."""
        return policy.init(key)


def check(config: DecoderConfig, vocab_size: int) -> None:
    """Raise `UserError` for the first value that makes no sense."""
    for name in ("layers", "width", "hidden", "heads", "kv_heads", "head_size", "max_positions"):
        if getattr(config, name) < 1:
            raise UserError(f"The decoder's {name} must be at least 1, not {getattr(config, name)}.")
    if vocab_size < 1:
        raise UserError(f"A decoder needs a vocabulary of at least 1 token, not {vocab_size}.")
    if config.heads % config.kv_heads:
        raise UserError(f"The decoder's heads ({config.heads}) must be a multiple of its kv_heads ({config.kv_heads}).")
    if config.head_size % 2:
        raise UserError(f"The decoder's head_size must be even for rotary positions, not {config.head_size}.")
    if config.norm_eps <= 0:
        raise UserError(f"The decoder's norm_eps must be positive, not {config.norm_eps}.")
    for name in ("query_scale", "attention_cap", "logit_cap", "window"):
        if getattr(config, name) < 0:
            raise UserError(f"The decoder's {name} must not be negative, not {getattr(config, name)}.")
    if not config.windowed:
        raise UserError("The decoder's windowed must name at least one layer.")
    for rope in (config.rope, config.window_rope or config.rope):
        rope.frequencies(config.head_size)
    e = config.experts
    if e is not None and not (1 <= e.per_token <= e.count and e.hidden >= 1 and e.balance >= 0):
        raise UserError(f"The decoder's experts need hidden >= 1, balance >= 0 and 1 <= per_token <= count: {e}.")
    unknown = set(config.kept or ()) - set(KEPT)
    if unknown:
        raise UserError(f"A block can keep {', '.join(KEPT)} for its backward pass, not {', '.join(sorted(unknown))}.")
    for name in ("param_dtype", "compute_dtype"):
        if getattr(config, name) not in DTYPES:
            raise UserError(f"The decoder's {name} must be one of {', '.join(DTYPES)}, not {getattr(config, name)!r}.")


def tiny() -> DecoderConfig:
    """About a million parameters with a small vocabulary: trains on a laptop."""
    return DecoderConfig()


def parameter_count(config: DecoderConfig, vocab_size: int) -> int:
    """How many numbers `init` makes; nothing is allocated."""
    shapes = jax.eval_shape(config.build(vocab_size).init, jax.random.key(0))
    return sum(math.prod(x.shape) for x in jax.tree.leaves(shapes))


@dataclasses.dataclass(frozen=True)
class Run:
    """Neighbouring layers with weights of one shape: they are stacked in one tree and scanned."""

    name: str  # of that tree
    start: int
    layers: int
    sparse: bool


def runs(config: DecoderConfig) -> list[Run]:
    """The decoder's layers from first to last; a single run, `layers`, unless dense and sparse layers are mixed."""
    e = config.experts
    sparse = [e is not None and i not in e.dense for i in range(config.layers)]
    starts = [i for i in range(config.layers) if i == 0 or sparse[i] != sparse[i - 1]]
    stops = [*starts[1:], config.layers]
    return [Run(f"layers_{n}" if n else "layers", i, j - i, sparse[i]) for n, (i, j) in enumerate(zip(starts, stops))]


def kinds(config: DecoderConfig) -> tuple[list[tuple[int, Rope]], list[int]]:
    """The different (window, rope) among the layers, and which of them each layer has."""
    each = []
    for layer in range(config.layers):
        near = config.window > 0 and config.windowed[layer % len(config.windowed)]
        each.append((config.window, config.window_rope or config.rope) if near else (0, config.rope))
    different = [kind for i, kind in enumerate(each) if kind not in each[:i]]
    return different, [different.index(kind) for kind in each]


class Block(nn.Module):
    """`x + attention(norm(x))`, then `x + mlp(norm(x))`."""

    config: DecoderConfig
    sparse: bool = False

    def norm(self, name: str, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        c = self.config
        return RMSNorm("norm", c.norm_eps, c.param_dtype, c.norm_offset, name=name)(x)

    @nn.compact
    def __call__(
        self, x: Float[Array, "B T D"], kind: int | Int[Array, ""], views: tuple[View, ...], cache: tuple[Array, Array] | None = None
    ) -> tuple[Float[Array, "B T D"], tuple[tuple[Array, Array] | None, Float[Array, ""]]]:
        """The next hidden states, this layer's cache, and the loss of its router."""
        c = self.config
        out_scale = (2 * c.layers) ** -0.5  # keeps the residual stream's variance from growing with depth
        attention = Attention(
            c.heads, c.kv_heads, c.head_size, c.qk_norm, c.qkv_bias, c.out_bias, c.norm_eps, c.norm_offset,
            c.query_scale or c.head_size**-0.5, c.attention_cap, out_scale, c.param_dtype, name="attention",
        )  # fmt: skip
        y, cache = attention(self.norm("attention_norm", x), views, kind, cache)
        x = x + (self.norm("attention_post_norm", y) if c.post_norms else y)
        y, aux = self.norm("mlp_norm", x), jnp.float32(0)
        if self.sparse:
            assert c.experts is not None
            y, aux = Experts(c.experts, c.activation, out_scale, c.param_dtype, name="mlp")(y, views[0].segment_ids != 0)
        else:
            y = GatedMLP(c.hidden, c.activation, c.mlp_bias, out_scale, c.param_dtype, name="mlp")(y)
        x = x + (self.norm("mlp_post_norm", y) if c.post_norms else y)
        return constrain(x, "rows", None, None), (cache, aux)


class Network(nn.Module):
    """Every weight of the decoder, and its forward pass over whole rows with the blocks scanned."""

    config: DecoderConfig
    vocab_size: int

    @nn.compact
    def __call__(self, inputs: Inputs) -> tuple[Float[Array, "B T D"], Float[Array, ""]]:
        """Final hidden states, normed, and the mean loss of the routers."""
        c = self.config
        table = {"vocab": self.vocab_size, "embed": c.width}
        embedding = weight(self, "embedding", fan_in(c.width), table, c.param_dtype)
        if not c.tied_head:
            weight(self, "head", fan_in(c.width), table, c.param_dtype)  # used by `Decoder.logits` alone
        block = Block
        if c.kept is not None:
            block = nn.remat(Block, prevent_cse=False, policy=jax.checkpoint_policies.save_only_these_names(*c.kept))
        different, kind_of = kinds(c)
        views = tuple(look(c, inputs, window, rope) for window, rope in different)
        x, losses = embed(c, embedding, inputs), []
        for run in runs(c):
            blocks = nn.scan(
                block,
                variable_axes={"params": 0, "adapters": 0},
                split_rngs={"params": True, "dropout": True},
                in_axes=(0, nn.broadcast),  # type: ignore[arg-type]
                length=run.layers,
                metadata_params={nn.PARTITION_NAME: "layers"},
            )
            mine = jnp.asarray(kind_of[run.start : run.start + run.layers], jnp.int32)
            x, (_, aux) = blocks(c, run.sparse, name=run.name)(x, mine, views)
            losses.append(aux)
        norm = RMSNorm("norm", c.norm_eps, c.param_dtype, c.norm_offset, name="final_norm")
        return norm(x), jnp.mean(jnp.concatenate(losses))


def look(config: DecoderConfig, inputs: Inputs, window: int, rope: Rope) -> View:
    """What layers with that window and rope see of whole rows."""
    positions = jnp.asarray(inputs.positions)
    cos, sin = rotation(positions, config.head_size, rope)
    return View(
        cos=cos, sin=sin, positions=positions, segment_ids=jnp.asarray(inputs.segment_ids), window=window,
        stem=inputs.stem, branch=inputs.branch,
    )  # fmt: skip


def cached_look(config: DecoderConfig, inputs: Inputs, size: int, window: int, rope: Rope, slots: Int[Array, "B T"], span: int) -> View:
    """What such layers see of a cache of `size` slots, of which the tokens take `slots` and the first `span` may be seen."""
    cos, sin = rotation_below(size, jnp.asarray(inputs.positions), config.head_size, rope)
    return dataclasses.replace(look(config, inputs, window, rope), cos=cos, sin=sin, slots=slots, span=span)


def embed(config: DecoderConfig, table: Float[Array, "V D"], inputs: Inputs) -> Float[Array, "B T D"]:
    """Token embeddings, with those that came from elsewhere (images) in their place."""
    x = lookup(table, jnp.asarray(inputs.tokens)).astype(config.compute_dtype)
    if config.embedding_scale:
        x = x * jnp.asarray(config.width**0.5, config.compute_dtype)
    if inputs.embeddings is not None and inputs.embedded is not None:
        x = jnp.where(inputs.embedded[:, :, None], inputs.embeddings.astype(config.compute_dtype), x)
    return constrain(x, "rows", None, None)


@dataclasses.dataclass(frozen=True)
class Origin:
    """What a Hugging Face folder held beside the weights that were loaded from it, to be written back."""

    config: dict[str, Any]
    files: dict[str, bytes]  # tokenizer, chat template, generation defaults


@dataclasses.dataclass(frozen=True, eq=False)
class Decoder:
    """The `Policy` of a `DecoderConfig`; made by its `build`.

    Stacked parameters hold one tree a run of like layers (`layers`, see `runs`) whose arrays have a leading axis L; unstacked
    ones a tuple of all layers' trees under `layers`.
    """

    config: DecoderConfig
    vocab_size: int
    origin: Origin | None = None  # the folder that the weights came from, if any
    branches = True  # see `Policy`

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters, layers stacked."""
        return unboxed(jax.jit(self._described)(key))  # one program: op by op it takes seconds

    def axes(self) -> Any:
        """The logical axis names of each weight: a tree like `init`'s with a tuple of names per array."""
        return axis_names(jax.eval_shape(self._described, jax.random.key(0)))

    def trainable(self) -> Any:
        """True for every weight."""
        return jax.tree.map(lambda _: True, self.axes(), is_leaf=is_names)

    def apply(
        self, params: Params, inputs: Inputs, cache: Cache | None = None, key: Key[Array, ""] | None = None, adapters: Any = None
    ) -> Output:
        """Final hidden states, normed. With a cache, `params` are those of `unstack`, and the new keys and values are written.

        `adapters` is a tree of the shape of `params` with low-rank additions for some of the weights; `key` drops some of
        their inputs.

        Raises:
            UserError: `positions` has several axes.
        """
        if inputs.positions.ndim != 2:
            raise UserError("multi-axis rope is not supported by this decoder")
        if cache is not None:
            return self._apply_cached(params, inputs, cache, adapters)
        variables = {"params": params} | ({"adapters": adapters} if adapters else {})
        rngs = {"dropout": key} if key is not None and adapters else None
        found: Any = Network(self.config, self.vocab_size).apply(variables, inputs, rngs=rngs)  # type: ignore[arg-type]
        hidden, aux = found
        balanced = self.config.experts is not None and self.config.experts.balance > 0
        return Output(hidden=hidden, aux=aux if balanced else None)

    def logits(self, params: Params, hidden: Float[Array, "*shape D"]) -> Float[Array, "*shape V"]:
        """Unnormalised log-probs in float32; takes stacked and unstacked parameters."""
        if READOUT in params:
            logits = jnp.einsum("...D,DV->...V", hidden, params[READOUT].astype(hidden.dtype), preferred_element_type=jnp.float32)
        else:
            table = params["embedding" if self.config.tied_head else "head"].astype(hidden.dtype)
            logits = jnp.einsum("...D,VD->...V", hidden, table, preferred_element_type=jnp.float32)
        return capped(logits, self.config.logit_cap)

    def init_cache(self, rows: int, positions: int) -> Cache:
        """An empty cache of the compute dtype. Raises UserError where the model was not made for so many positions."""
        c = self.config
        if positions > c.max_positions:
            raise UserError(f"a cache of {positions} positions is longer than the {c.max_positions} that the model was made for")
        shape, dtype = (rows, c.kv_heads, positions, c.head_size), jnp.dtype(c.compute_dtype)
        keys, values = (tuple(jnp.zeros(shape, dtype) for _ in range(c.layers)) for _ in range(2))
        return Cache(keys=keys, values=values)

    def unstack(self, params: Params) -> Params:
        """The same weights with one tree a layer: what an engine keeps for itself. On a CPU with the head turned, see `READOUT`."""
        parts = runs(self.config)
        layers = tuple(jax.tree.map(lambda x, i=i: x[i], params[run.name]) for run in parts for i in range(run.layers))
        rest = {name: x for name, x in params.items() if name not in {run.name for run in parts}}
        head = "embedding" if self.config.tied_head else "head"
        if platform() == "cpu" and head in rest:  # else these are adapters of the layers
            rest[READOUT] = (rest[head] if self.config.tied_head else rest.pop(head)).T
        return rest | {"layers": layers}

    def _described(self, key: Key[Array, ""]) -> Any:
        """Fresh parameters in boxes that carry their logical axes."""
        token = jnp.zeros((1, 1), jnp.int32)
        inputs = Inputs(tokens=token, positions=token, segment_ids=token + 1)
        return Network(self.config, self.vocab_size).init(key, inputs)["params"]

    def _apply_cached(self, params: Params, inputs: Inputs, cache: Cache, adapters: Any) -> Output:
        c = self.config
        size = cache.keys[0].shape[2]
        slots = cache_slots(jnp.asarray(inputs.positions), jnp.asarray(inputs.segment_ids), size)
        different, kind_of = kinds(c)
        views = tuple(cached_look(c, inputs, size, *kind, slots, cache.span or size) for kind in different)
        sparse = [run.sparse for run in runs(c) for _ in range(run.layers)]
        x, written = embed(c, params["embedding"], inputs), []
        for i, (layer, *old) in enumerate(zip(params["layers"], cache.keys, cache.values)):
            variables = {"params": layer} | ({"adapters": adapters["layers"][i]} if adapters else {})
            x, (new, _) = Block(c, sparse[i]).apply(variables, x, kind_of[i], views, tuple(old))  # type: ignore[misc]
            written.append(new)
        x = RMSNorm("norm", c.norm_eps, c.param_dtype, c.norm_offset).apply({"params": params["final_norm"]}, x)
        keys, values = zip(*written)
        return Output(hidden=x, cache=Cache(keys=keys, values=values, span=cache.span))  # type: ignore[arg-type]
