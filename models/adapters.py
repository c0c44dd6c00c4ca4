"""Low-rank adapters over any set of a decoder's matrices: LoRA (Hu et al. 2021, arXiv:2106.09685).

The adapted weights may be quantized: QLoRA (Dettmers et al. 2023, arXiv:2305.14314).
"""

import dataclasses
import functools
import math
import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key

from agentrl_jax.distributed.sharding import is_logical_axes
from agentrl_jax.errors import UserError
from agentrl_jax.image_format import ImageFormat, PackedImages
from agentrl_jax.models.adapter_targets import (
    count_axes,
    matrix_shapes_and_axes,
    target_name,
)
from agentrl_jax.models.decoder import Decoder, DecoderConfig
from agentrl_jax.models.hf.pretrained import PretrainedDecoder
from agentrl_jax.models.parameters import low_rank_product
from agentrl_jax.models.quantized import QuantizedWeight, is_quantized
from agentrl_jax.models.vision.policy import VISION, VisionLanguageModel, is_projector
from agentrl_jax.policy import (
    FrozenTower,
    KVCache,
    Params,
    PolicyInputs,
    PolicyOutput,
    image_format,
)

EMBEDDING_TABLES = ("embedding", "head")
PROJECTIONS = ("query", "key", "value", "out", "gate", "up", "down")


@dataclasses.dataclass
class LoraConfig:
    """A policy with frozen matrices W that computes `x W + alpha / rank * dropout(x) down up`."""

    policy: DecoderConfig | PretrainedDecoder  # the policy that it adapts
    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0  # of the adapters' inputs, in training
    # names of weights: these, `router`, `embedding`, `head`, and of a vision tower `vision.out`,
    # `vision.qkv`, ...
    targets: tuple[str, ...] = PROJECTIONS
    # engines sample from merged, dense weights; False: they add the adapters at every step
    merge_for_sampling: bool = True
    # format of the layers' frozen matrices: `nf4` or `int8`; None: dense
    quantize: Callable[[Array], QuantizedWeight | Array] | None = None

    def build(self, vocab_size: int) -> "LoraPolicy":
        """The adapted policy.

        Raises:
            UserError: a value makes no sense.
        """
        return LoraPolicy(self.policy.build(vocab_size), dataclasses.replace(self))

    def initial_params(self, policy: "LoraPolicy", key: Key[Array, ""], mesh: Mesh) -> Params:
        """The initial parameters of the adapted policy, and fresh adapters."""
        base = policy.quantize_base(self.policy.initial_params(policy.base, key, mesh))
        return {"base": base, "adapters": policy.init_adapters(jax.random.fold_in(key, 1))}


@dataclasses.dataclass(frozen=True, eq=False)
class LoraPolicy:
    """The `Policy` of a `LoraConfig`: parameters are {"base": the decoder's, "adapters": a tree of
    {"down", "up"}}.

    `down` [*stack, *inner, r] and `up` [*stack, r, *outer] for a weight [*stack, *inner, *outer].
    With `quantize`, the layers' matrices are `QuantizedWeight`s, dequantized where a layer uses
    them, forward and again backward.
    """

    base: Decoder
    config: LoraConfig

    def __post_init__(self) -> None:
        c = self.config
        if c.rank < 1 or not 0 <= c.dropout < 1 or c.alpha <= 0:
            raise UserError(
                "adapters need rank >= 1, alpha > 0 and 0 <= dropout < 1, "
                f"not {c.rank}, {c.alpha} and {c.dropout}"
            )
        if c.quantize is not None and self.base.config.saved_activations is None:
            raise UserError(
                "quantized weights need a policy whose `saved_activations` is not None: "
                "or the backward pass would keep all of them dense"
            )
        names = {target_name(path) for path in matrix_shapes_and_axes(self.base)}
        for name in c.targets:
            if name not in names:
                raise UserError(
                    f"the policy has no matrix {name!r} to adapt, only {', '.join(sorted(names))}"
                )

    @property
    def vocab_size(self) -> int:
        return self.base.vocab_size

    @property
    def supports_branches(self) -> bool:
        return self.base.supports_branches

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters; the adapters add nothing yet."""
        return {
            "base": self.quantize_base(self.base.init(key)),
            "adapters": self.init_adapters(jax.random.fold_in(key, 1)),
        }

    def quantize_base(self, base: Params) -> Params:
        """The decoder's stacked parameters in the format of the config's `quantize`. Overwrites
        `base`: dense matrices are freed one by one.
        """
        if self.config.quantize is None:
            return base
        # layer by layer
        quantize = jax.jit(functools.partial(jax.lax.map, self.config.quantize))

        def walk(tree: Any) -> None:
            for name, x in tree.items():
                if isinstance(x, dict):
                    walk(x)
                elif name in PROJECTIONS:
                    tree[name] = quantize(x)
                    if not isinstance(x, Tracer):
                        # or the next would be allocated while this one's dense array lives
                        jax.block_until_ready(tree[name])

        walk({name: part for name, part in base.items() if name != VISION})
        return base

    def init_adapters(self, key: Key[Array, ""]) -> Any:
        """`down` uniform within 1 / sqrt(inputs), `up` zero: as PEFT does. They are float32,
        whatever the dtype of the frozen weights, so that small updates are not rounded off.
        """
        rank = self.config.rank

        def init_adapter(
            path: tuple[str, ...], shape: tuple[int, ...], stack: int, inner: int
        ) -> dict[str, Array]:
            stacked, outer = shape[: stack + inner], shape[stack + inner :]
            bound = math.prod(shape[stack : stack + inner]) ** -0.5
            down_key = jax.random.fold_in(key, zlib.crc32("/".join(path).encode()))
            down = jax.random.uniform(down_key, (*stacked, rank), jnp.float32, -bound, bound)
            return {"down": down, "up": jnp.zeros((*shape[:stack], rank, *outer), jnp.float32)}

        return self._build_adapter_tree(init_adapter)

    def axes(self) -> Any:
        """The logical axis names of each weight: a tree like `init`'s with a tuple of names per
        array.
        """
        names = matrix_shapes_and_axes(self.base)

        def adapter_axes(
            path: tuple[str, ...], shape: tuple[int, ...], stack: int, inner: int
        ) -> dict[str, tuple[str, ...]]:
            axes = names[path][1]
            return {
                "down": (*axes[: stack + inner], "rank"),
                "up": (*axes[:stack], "rank", *axes[stack + inner :]),
            }

        def weight_axes(names: tuple[str, ...], x: Any) -> Any:
            return jax.tree.map(lambda _: names, x)  # codes and scales have the axes of the weight

        shapes = self._base_shapes()
        base = jax.tree.map(weight_axes, self.base.axes(), shapes, is_leaf=is_logical_axes)
        return {"base": base, "adapters": self._build_adapter_tree(adapter_axes)}

    def trainable(self) -> Any:
        """The adapters alone."""
        adapters = self._build_adapter_tree(lambda *_: {"down": True, "up": True})
        return {"base": jax.tree.map(lambda _: False, self._base_shapes()), "adapters": adapters}

    def apply(
        self,
        params: Params,
        inputs: PolicyInputs,
        cache: KVCache | None = None,
        key: Key[Array, ""] | None = None,
    ) -> PolicyOutput:
        """See `Decoder.apply`; with a `key`, the adapters' inputs are dropped out."""
        adapters = self._scale_adapters(params["adapters"], key is not None)
        return self.base.apply(params["base"], inputs, cache, key, adapters)

    @property
    def image_format(self) -> ImageFormat | None:
        """That of the adapted policy."""
        return image_format(self.base)

    def encode_images(self, params: Params, images: PackedImages) -> Float[Array, "R M E"]:
        """See `VisionLanguageModel.encode_images`."""
        assert isinstance(self.base, VisionLanguageModel)
        adapters = self._scale_adapters(params["adapters"], False)
        return self.base.encode_images(params["base"], images, adapters)

    def frozen_tower(self) -> FrozenTower | None:
        """See `VisionPolicy.frozen_tower`: what has no adapters."""
        if not isinstance(self.base, VisionLanguageModel):
            return None
        adapted = self._build_adapter_tree(lambda *_: True).get(VISION, {})
        if not all(map(is_projector, adapted)):
            return None
        tower = self.base.tower_without_updates(projected=not adapted)
        return dataclasses.replace(tower, weights=lambda params: tower.weights(params["base"]))

    def logits(self, params: Params, hidden: Float[Array, "*shape D"]) -> Float[Array, "*shape V"]:
        base, adapters = params["base"], params["adapters"]
        tables = {
            name: self._merge_weight(base[name], adapters[name])
            for name in EMBEDDING_TABLES
            if name in adapters
        }
        return self.base.logits(base | tables, hidden)

    def init_cache(self, rows: int, positions: int) -> KVCache:
        return self.base.init_cache(rows, positions)

    def unstack(self, params: Params) -> Params:
        """One tree a layer; with `merge_for_sampling` the adapters are merged into dense weights,
        else only those of the embedding tables.
        """
        if self.config.merge_for_sampling:
            return {"base": self.base.unstack(self.merge(params)), "adapters": {}}
        adapters = params["adapters"]
        in_blocks = {name: x for name, x in adapters.items() if name not in EMBEDDING_TABLES}
        of_tables = {name: x for name, x in adapters.items() if name in EMBEDDING_TABLES}
        base = self._merge_adapted(params | {"adapters": of_tables})
        return {"base": self.base.unstack(base), "adapters": self.base.unstack(in_blocks)}

    def merge(self, params: Params) -> Params:
        """The decoder's own parameters, dense, with what the adapters add: `W + alpha / rank * down
        up`, computed in float32.
        """
        return jax.tree.map(_dequantize, self._merge_adapted(params), is_leaf=is_quantized)

    def _merge_adapted(self, params: Params) -> Params:
        """`merge`, but weights without an adapter keep their format."""

        def walk(base: Any, adapters: Any) -> Any:
            if "down" in adapters and not isinstance(base, dict):
                return self._merge_weight(base, adapters)
            return {
                name: walk(x, adapters[name]) if name in adapters else x for name, x in base.items()
            }

        return walk(params["base"], params["adapters"])

    def _base_shapes(self) -> Any:
        """Shapes of the decoder's parameters, quantized where the config says so."""
        return jax.eval_shape(lambda: self.quantize_base(self.base.init(jax.random.key(0))))

    def _merge_weight(self, weight: Array | QuantizedWeight, adapter: dict[str, Array]) -> Array:
        weight = _dequantize(weight)
        product = low_rank_product(adapter["down"], adapter["up"], weight.shape)
        delta = self.config.alpha / self.config.rank * product
        return (weight.astype(jnp.float32) + delta).astype(weight.dtype)

    def _scale_adapters(self, adapters: Any, training: bool) -> Any:
        """The adapters as the decoder takes them: `up` times alpha / rank, and the dropout rate."""
        scale, rate = self.config.alpha / self.config.rank, self.config.dropout

        def walk(x: Any) -> Any:
            if isinstance(x, tuple):
                return tuple(walk(part) for part in x)
            if "down" in x and not isinstance(x["down"], dict):
                more = {"rate": jnp.full(x["down"].shape[:1], rate)} if training and rate else {}
                return {"down": x["down"], "up": x["up"] * scale} | more
            return {name: walk(part) for name, part in x.items()}

        return walk(adapters)

    def _build_adapter_tree(self, make_leaf: Any) -> Any:
        """A nested dict with `make_leaf(path, shape, stack, inner)` for each adapted weight."""
        tree: dict[str, Any] = {}
        for path, (shape, axes) in matrix_shapes_and_axes(self.base).items():
            if target_name(path) in self.config.targets:
                stack, inner = count_axes(axes)
                parent = tree
                for name in path[:-1]:
                    parent = parent.setdefault(name, {})
                parent[path[-1]] = make_leaf(path, shape, stack, inner)
        return tree


def _dequantize(weight: Array | QuantizedWeight) -> Array:
    return weight.dequantize() if isinstance(weight, QuantizedWeight) else weight
