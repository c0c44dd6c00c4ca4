"""Low-rank adapters over any set of a decoder's matrices: LoRA (Hu et al. 2021, arXiv:2106.09685).

What they adapt may be held in few bits: QLoRA (Dettmers et al. 2023, arXiv:2305.14314).
"""

import dataclasses
import functools
import math
import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key

from agentrl_jax.errors import UserError
from agentrl_jax.models.decoder import Decoder, DecoderConfig
from agentrl_jax.models.layers import product
from agentrl_jax.models.pretrained import Pretrained
from agentrl_jax.models.quantised import Quantised, is_quantised
from agentrl_jax.policy import Cache, Inputs, Output, Params
from agentrl_jax.sharding import is_names

STACKED = ("layers", "experts")  # leading axes with a matrix for each place
TABLES = ("embedding", "head")
PROJECTIONS = ("query", "key", "value", "out", "gate", "up", "down")


@dataclasses.dataclass
class LoraConfig:
    """A policy whose matrices are frozen and get `alpha / rank * drop(x) down up` added to what they return."""

    policy: DecoderConfig | Pretrained  # what it adapts
    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0  # of the adapters' inputs, in training
    targets: tuple[str, ...] = PROJECTIONS  # names of weights: these, `router`, `embedding`, `head`
    merged: bool = True  # whether engines sample from merged weights (dense ones), or add the adapters at every step
    quantise: Callable[[Array], Quantised | Array] | None = None  # how the layers' matrices are held: `nf4` or `int8`; None: dense

    def build(self, vocab_size: int) -> "Adapted":
        """The adapted policy. Raises UserError on values that make no sense."""
        return Adapted(self.policy.build(vocab_size), dataclasses.replace(self))

    def start(self, policy: "Adapted", key: Key[Array, ""], mesh: Mesh) -> Params:
        """The adapted policy's own start, and fresh adapters."""
        base = policy.quantised(self.policy.start(policy.base, key, mesh))
        return {"base": base, "adapters": policy.init_adapters(jax.random.fold_in(key, 1))}


@dataclasses.dataclass(frozen=True, eq=False)
class Adapted:
    """The `Policy` of a `LoraConfig`: parameters are {"base": the decoder's, "adapters": a tree of {"down", "up"}}.

    `down` [*stack, *inner, r] and `up` [*stack, r, *outer] for a weight [*stack, *inner, *outer]. With `quantise`, the layers'
    matrices are `Quantised` records, each made dense where a layer uses it, forward and again backward.
    """

    base: Decoder
    config: LoraConfig

    def __post_init__(self) -> None:
        c = self.config
        if c.rank < 1 or not 0 <= c.dropout < 1 or c.alpha <= 0:
            raise UserError(f"adapters need rank >= 1, alpha > 0 and 0 <= dropout < 1, not {c.rank}, {c.alpha} and {c.dropout}")
        if c.quantise is not None and self.base.config.kept is None:
            raise UserError("quantised weights need a policy whose `kept` is not None: or the backward pass would keep all of them dense")
        found = {path[-1] for path in _matrices(self.base)}
        for name in c.targets:
            if name not in found:
                raise UserError(f"the policy has no matrix {name!r} to adapt, only {', '.join(sorted(found))}")

    @property
    def vocab_size(self) -> int:
        return self.base.vocab_size

    @property
    def branches(self) -> bool:
        return self.base.branches

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters; the adapters add nothing yet."""
        return {"base": self.quantised(self.base.init(key)), "adapters": self.init_adapters(jax.random.fold_in(key, 1))}

    def quantised(self, base: Params) -> Params:
        """The decoder's parameters, stacked, as the config's `quantise` holds them. Takes them over: dense matrices go one by one."""
        if self.config.quantise is None:
            return base
        one = jax.jit(functools.partial(jax.lax.map, self.config.quantise))  # layer by layer

        def walk(tree: Any) -> None:
            for name, x in tree.items():
                if isinstance(x, dict):
                    walk(x)
                elif name in PROJECTIONS:
                    tree[name] = jax.block_until_ready(one(x))  # or the next would be made while this one's dense array lives

        walk(base)
        return base

    def init_adapters(self, key: Key[Array, ""]) -> Any:
        """`down` uniform within 1 / sqrt(inputs), `up` zero: as PEFT does."""

        def one(path: tuple[str, ...], shape: tuple[int, ...], stack: int, inner: int) -> dict[str, Array]:
            held, into, out = shape[:stack], shape[stack : stack + inner], shape[stack + inner :]
            bound, dtype = math.prod(into) ** -0.5, jnp.dtype(self.base.config.param_dtype)
            mine = jax.random.fold_in(key, zlib.crc32("/".join(path).encode()))
            down = jax.random.uniform(mine, (*held, *into, self.config.rank), jnp.float32, -bound, bound)
            return {"down": down.astype(dtype), "up": jnp.zeros((*held, self.config.rank, *out), dtype)}

        return self._tree(one)

    def axes(self) -> Any:
        names = _matrices(self.base)

        def one(path: tuple[str, ...], shape: tuple[int, ...], stack: int, inner: int) -> dict[str, tuple[str, ...]]:
            axes = names[path][1]
            return {"down": (*axes[: stack + inner], "rank"), "up": (*axes[:stack], "rank", *axes[stack + inner :])}

        def held(names: tuple[str, ...], x: Any) -> Any:
            return jax.tree.map(lambda _: names, x)  # codes and scales have the axes of the weight

        base = jax.tree.map(held, self.base.axes(), self._held(), is_leaf=is_names)
        return {"base": base, "adapters": self._tree(one)}

    def trainable(self) -> Any:
        """The adapters alone."""
        adapters = self._tree(lambda *_: {"down": True, "up": True})
        return {"base": jax.tree.map(lambda _: False, self._held()), "adapters": adapters}

    def apply(self, params: Params, inputs: Inputs, cache: Cache | None = None, key: Key[Array, ""] | None = None) -> Output:
        """See `Decoder.apply`; with a `key`, the adapters' inputs are dropped out."""
        return self.base.apply(params["base"], inputs, cache, key, self._scaled(params["adapters"], key is not None))

    def logits(self, params: Params, hidden: Float[Array, "*shape D"]) -> Float[Array, "*shape V"]:
        base, adapters = params["base"], params["adapters"]
        tables = {name: self._merged(base[name], adapters[name]) for name in TABLES if name in adapters}
        return self.base.logits(base | tables, hidden)

    def init_cache(self, rows: int, positions: int) -> Cache:
        return self.base.init_cache(rows, positions)

    def unstack(self, params: Params) -> Params:
        """One tree a layer; the adapters merged where the config says so, into dense weights."""
        if self.config.merged:
            return {"base": self.base.unstack(self.merge(params)), "adapters": {}}
        inner = {name: x for name, x in params["adapters"].items() if name not in TABLES}  # what blocks add at every step
        tables = params | {"adapters": {name: x for name, x in params["adapters"].items() if name in TABLES}}
        return {"base": self.base.unstack(self._added(tables)), "adapters": self.base.unstack(inner)}

    def merge(self, params: Params) -> Params:
        """The decoder's own parameters, dense, with what the adapters add: `W + alpha / rank * down up`, computed in float32."""
        return jax.tree.map(_dense, self._added(params), is_leaf=is_quantised)

    def _added(self, params: Params) -> Params:
        """`merge`, but weights without an adapter stay as they are."""

        def walk(base: Any, adapters: Any) -> Any:
            if "down" in adapters and not isinstance(base, dict):
                return self._merged(base, adapters)
            return {name: walk(x, adapters[name]) if name in adapters else x for name, x in base.items()}

        return walk(params["base"], params["adapters"])

    def _held(self) -> Any:
        """Shapes of the decoder's parameters as they are held."""
        return jax.eval_shape(lambda: self.quantised(self.base.init(jax.random.key(0))))

    def _merged(self, weight: Array | Quantised, adapter: dict[str, Array]) -> Array:
        weight = _dense(weight)
        added = self.config.alpha / self.config.rank * product(adapter["down"], adapter["up"], weight.shape)
        return (weight.astype(jnp.float32) + added).astype(weight.dtype)

    def _scaled(self, adapters: Any, training: bool) -> Any:
        """The adapters as the decoder adds them: `up` times alpha / rank, and the rate of dropout."""
        scale, rate = self.config.alpha / self.config.rank, self.config.dropout

        def walk(x: Any) -> Any:
            if isinstance(x, tuple):
                return tuple(walk(part) for part in x)
            if "down" in x and not isinstance(x["down"], dict):
                more = {"rate": jnp.full(x["down"].shape[:1], rate)} if training and rate else {}
                return {"down": x["down"], "up": x["up"] * scale} | more
            return {name: walk(part) for name, part in x.items()}

        return walk(adapters)

    def _tree(self, one: Any) -> Any:
        """A nested dict with `one(path, shape, stack, inner)` for each adapted weight."""
        tree: dict[str, Any] = {}
        for path, (shape, axes) in _matrices(self.base).items():
            if path[-1] in self.config.targets:
                stack, inner = _split(axes)
                at = tree
                for name in path[:-1]:
                    at = at.setdefault(name, {})
                at[path[-1]] = one(path, shape, stack, inner)
        return tree


def _dense(weight: Array | Quantised) -> Array:
    return weight.dense() if isinstance(weight, Quantised) else weight


def _split(axes: tuple[str, ...]) -> tuple[int, int]:
    """How many axes of a weight are places in a stack, and how many of the next are contracted."""
    stack = next(i for i, name in enumerate(axes) if name not in STACKED)
    return stack, 2 if axes[stack] == "heads" else 1


def _matrices(policy: Decoder) -> dict[tuple[str, ...], tuple[tuple[int, ...], tuple[str, ...]]]:
    """Shape and axes, by path, of every weight of a decoder that is a matrix for each place in its stack."""
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    flat, _ = jax.tree_util.tree_flatten_with_path(shapes)
    axes = jax.tree.leaves(policy.axes(), is_leaf=lambda x: isinstance(x, tuple))
    named = {tuple(key.key for key in path): (x.shape, names) for (path, x), names in zip(flat, axes)}
    return {path: entry for path, entry in named.items() if not path[-1].endswith("bias") and len(entry[1]) - _split(entry[1])[0] > 1}
