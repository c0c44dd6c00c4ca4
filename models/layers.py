"""The parts of a block that are not attention, and the one place where a weight is described."""

import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from agentrl_jax.models.quantised import Quantised

DTYPES = ("float32", "bfloat16", "float16")  # of weights and of activations
Activation = Callable[[Float[Array, "*shape"]], Float[Array, "*shape"]]


def silu(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """`x sigmoid(x)`."""
    return jax.nn.silu(x)


def gelu(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """`x Phi(x)` by its tanh approximation (Gemma)."""
    return jax.nn.gelu(x, approximate=True)


def gelu_exact(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """`x Phi(x)`."""
    return jax.nn.gelu(x, approximate=False)


def weight(module: nn.Module, name: str, init: nn.initializers.Initializer, shape: dict[str, int], dtype: str) -> Any:
    """A weight of `module`; `shape` maps its logical axes to sizes, in order: `{"embed": 128, "hidden": 512}`.

    What an adapter of it adds is added (see `agentrl_jax.models.adapters`).
    """
    plain = _weight(module, name, init, shape, dtype)
    adapter = _adapter(module, name)
    return plain if adapter is None else plain + product(adapter["down"], adapter["up"], plain.shape).astype(plain.dtype)


def _weight(module: nn.Module, name: str, init: nn.initializers.Initializer, shape: dict[str, int], dtype: str) -> Any:
    held = module.get_variable("params", name) if module.has_variable("params", name) else None
    if isinstance(held, Quantised):
        return held.dense()  # here, within the scanned block: of one layer
    return module.param(name, nn.with_logical_partitioning(init, tuple(shape)), tuple(shape.values()), jnp.dtype(dtype))


def _adapter(module: nn.Module, name: str) -> dict[str, Array] | None:
    return module.get_variable("adapters", name) if module.has_variable("adapters", name) else None


def product(down: Float[Array, "*stack_inner r"], up: Float[Array, "*stack_r_outer"], shape: tuple[int, ...]) -> Float[Array, "*shape"]:
    """`down up` in float32, for each place in the stack: what an adapter adds to a weight of that shape."""
    stack = down.ndim + up.ndim - 2 - len(shape)  # axes that both have
    rank = down.shape[-1]
    flat = down.reshape(*down.shape[:stack], -1, rank).astype(jnp.float32), up.reshape(*up.shape[:stack], rank, -1).astype(jnp.float32)
    return (flat[0] @ flat[1]).reshape(shape)


def fan_in(size: int, scale: float = 1.0) -> nn.initializers.Initializer:
    """Normal with standard deviation `scale / sqrt(size)`."""
    return nn.initializers.normal(scale / size**0.5)


def linear(x: Float[Array, "B T *inner"], kernel: Float[Array, "*inner_outer"]) -> Float[Array, "B T *outer"]:
    """Contract all but the first two axes of `x` with the leading axes of `kernel`, in the dtype of `x`.

    One plain matrix product over B * T rows: three-dimensional ones make XLA's CPU compiler copy whole transposes in the
    backward pass (1.6 times slower).
    """
    batch, length, *inner = x.shape
    outer = kernel.shape[len(inner) :]
    y = x.reshape(batch * length, -1) @ kernel.astype(x.dtype).reshape(math.prod(inner), -1)
    return y.reshape(batch, length, *outer)


def project(
    module: Any, name: str, x: Float[Array, "B T *inner"], inner: dict[str, int], outer: dict[str, int], bias: bool = False,
    init: nn.initializers.Initializer | None = None,
) -> Float[Array, "B T *outer"]:  # fmt: skip
    """`x W (+ b)` with the weight `name` of `module`, and `+ drop(x) down up` where that has an adapter.

    Weights have the module's `param_dtype`; `init` None: `fan_in` of the inner axes.
    """
    y = linear(x, _weight(module, name, init or fan_in(math.prod(inner.values())), inner | outer, module.param_dtype))
    adapter = _adapter(module, name)
    if adapter is not None:
        if "rate" in adapter and module.has_rng("dropout"):
            keep = 1.0 - adapter["rate"]
            x = jnp.where(jax.random.bernoulli(module.make_rng("dropout"), keep, x.shape), x / keep.astype(x.dtype), 0)
        y = y + linear(linear(x, adapter["down"]), adapter["up"])
    if bias:
        y = y + _weight(module, f"{name}_bias", nn.initializers.zeros, outer, module.param_dtype).astype(x.dtype)[None, None]
    return y


class RMSNorm(nn.Module):
    """`x / sqrt(mean(x^2) + eps) * scale` over the last axis, in float32 (Zhang and Sennrich 2019, arXiv:1910.07467).

    With `offset` the weight is stored as `scale - 1` (Gemma).
    """

    axis: str
    eps: float
    param_dtype: str
    offset: bool = False

    @nn.compact
    def __call__(self, x: Float[Array, "*shape H"]) -> Float[Array, "*shape H"]:
        init = nn.initializers.zeros if self.offset else nn.initializers.ones
        scale = weight(self, "scale", init, {self.axis: x.shape[-1]}, self.param_dtype).astype(jnp.float32)
        wide = x.astype(jnp.float32)
        inverse = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + self.eps)
        scale = (scale + 1.0 if self.offset else scale).reshape((1,) * (x.ndim - 1) + (-1,))
        return (wide * inverse * scale).astype(x.dtype)


class GatedMLP(nn.Module):
    """`(activation(x gate) * (x up)) down`: SwiGLU and GeGLU (Shazeer 2020, arXiv:2002.05202)."""

    hidden: int
    activation: Activation
    bias: bool
    out_scale: float
    param_dtype: str

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        narrow, wide = {"embed": x.shape[-1]}, {"hidden": self.hidden}
        gate = checkpoint_name(project(self, "gate", x, narrow, wide, self.bias), "gate")
        up = checkpoint_name(project(self, "up", x, narrow, wide, self.bias), "up")
        init = fan_in(self.hidden, self.out_scale)
        return project(self, "down", self.activation(gate) * up, wide, narrow, self.bias, init)


def lookup(table: Float[Array, "V D"], tokens: Int[Array, "B T"]) -> Float[Array, "B T D"]:
    """Rows of `table`."""
    return jnp.take(table, tokens, axis=0)


def capped(x: Float[Array, "*shape"], cap: float) -> Float[Array, "*shape"]:
    """`cap tanh(x / cap)`; 0: `x` itself."""
    return jnp.tanh(x / cap) * cap if cap else x
