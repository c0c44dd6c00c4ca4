"""Layers other than attention: projections, norms, the gated MLP, embeddings, activations."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from agentrl_jax.models.parameters import (
    Initializer,
    Module,
    adapter_of_weight,
    compact,
    declare_weight,
    dropout_key,
    fan_in,
    ones,
    weight_with_adapter,
    zeros,
)

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


def linear(
    x: Float[Array, "B T *inner"], kernel: Float[Array, "*inner_outer"]
) -> Float[Array, "B T *outer"]:
    """Contract all but the first two axes of `x` with the leading axes of `kernel`, in the dtype of
    `x`.

    One plain matrix product over B * T rows: three-dimensional ones make XLA's CPU compiler copy
    whole transposes in the backward pass (1.6 times slower).
    """
    batch, length, *inner = x.shape
    outer = kernel.shape[len(inner) :]
    y = x.reshape(batch * length, -1) @ kernel.astype(x.dtype).reshape(math.prod(inner), -1)
    return y.reshape(batch, length, *outer)


def project(
    module: Any,
    name: str,
    x: Float[Array, "B T *inner"],
    inner: dict[str, int],
    outer: dict[str, int],
    bias: bool = False,
    init: Initializer | None = None,
) -> Float[Array, "B T *outer"]:
    """`x W (+ b)` with the weight `name` of `module`, and `+ dropout(x) down up` where that has an
    adapter.

    Args:
        module: the network that declares the weight; its `param_dtype` is the weight's.
        inner: sizes by logical axis of what is contracted.
        outer: sizes by logical axis of the result.
        init: of the weight; None: `fan_in` of the inner axes.
    """
    dtype, init = module.param_dtype, init or fan_in(math.prod(inner.values()))
    y = linear(x, declare_weight(module, name, init, inner | outer, dtype))
    adapter = adapter_of_weight(module, name)
    if adapter is not None:
        if "rate" in adapter and (key := dropout_key(module)) is not None:
            keep = 1.0 - adapter["rate"]
            x = jnp.where(jax.random.bernoulli(key, keep, x.shape), x / keep.astype(x.dtype), 0)
        y = y + linear(linear(x, adapter["down"]), adapter["up"])
    if bias:
        b = declare_weight(module, f"{name}_bias", zeros, outer, dtype)
        y = y + b.astype(x.dtype)[None, None]
    return y


class RMSNorm(Module):
    """`x / sqrt(mean(x^2) + eps) * scale` over the last axis, in float32 (Zhang and Sennrich 2019,
    arXiv:1910.07467).

    With `offset` the weight is stored as `scale - 1` (Gemma).
    """

    axis: str
    eps: float
    param_dtype: str
    offset: bool = False

    @compact
    def __call__(self, x: Float[Array, "*shape H"]) -> Float[Array, "*shape H"]:
        init = zeros if self.offset else ones
        scale = weight_with_adapter(
            self, "scale", init, {self.axis: x.shape[-1]}, self.param_dtype
        ).astype(jnp.float32)
        wide = x.astype(jnp.float32)
        inverse = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + self.eps)
        scale = (scale + 1.0 if self.offset else scale).reshape((1,) * (x.ndim - 1) + (-1,))
        return (wide * inverse * scale).astype(x.dtype)


class LayerNorm(Module):
    """`(x - mean(x)) / sqrt(var(x) + eps) * scale + bias` over the last axis, in float32 (Ba et al.
    2016, arXiv:1607.06450).
    """

    eps: float
    param_dtype: str

    @compact
    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        shape = {"norm": x.shape[-1]}
        scale, bias = (
            weight_with_adapter(self, name, init, shape, self.param_dtype).astype(jnp.float32)
            for name, init in (("scale", ones), ("bias", zeros))
        )
        wide = x.astype(jnp.float32)
        wide = wide - jnp.mean(wide, axis=-1, keepdims=True)
        inverse = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + self.eps)
        return (wide * inverse * scale[None, None] + bias[None, None]).astype(x.dtype)


class GatedMLP(Module):
    """`(activation(x gate) * (x up)) down`: SwiGLU and GeGLU (Shazeer 2020, arXiv:2002.05202)."""

    hidden: int
    activation: Activation
    bias: bool
    out_scale: float
    param_dtype: str

    @compact
    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        narrow, wide = {"embed": x.shape[-1]}, {"hidden": self.hidden}
        gate = checkpoint_name(project(self, "gate", x, narrow, wide, self.bias), "gate")
        up = checkpoint_name(project(self, "up", x, narrow, wide, self.bias), "up")
        init = fan_in(self.hidden, self.out_scale)
        return project(self, "down", self.activation(gate) * up, wide, narrow, self.bias, init)


@jax.custom_vjp
def head_product(
    hidden: Float[Array, "*shape D"], table: Float[Array, "V D"]
) -> Float[Array, "*shape V"]:
    """`hidden table^T` in float32, of operands of one dtype.

    The products of its backward pass take the logits' gradient rounded to that dtype: in float32
    they would run at the rate of float32 products.
    """
    return jnp.einsum("...D,VD->...V", hidden, table, preferred_element_type=jnp.float32)


def _head_product_forward(hidden: Array, table: Array) -> tuple[Array, tuple[Array, Array]]:
    return head_product(hidden, table), (hidden, table)


def _head_product_backward(operands: tuple[Array, Array], dlogits: Array) -> tuple[Array, Array]:
    hidden, table = operands
    dlogits = dlogits.astype(hidden.dtype)
    return (
        jnp.einsum("...V,VD->...D", dlogits, table),
        jnp.einsum("...V,...D->VD", dlogits, hidden),
    )


head_product.defvjp(_head_product_forward, _head_product_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def embedding_lookup(
    table: Float[Array, "V D"], tokens: Int[Array, "B T"], dtype: str
) -> Float[Array, "B T D"]:
    """Rows of `table`, rounded to `dtype` first: that is what devices exchange where the table is
    split. The gradient of a row is summed in the table's dtype.
    """
    return jnp.take(table.astype(dtype), tokens, axis=0)


def _embedding_lookup_forward(table: Array, tokens: Array, dtype: str) -> tuple[Array, Any]:
    return embedding_lookup(table, tokens, dtype), (table, tokens)


def _embedding_lookup_backward(dtype: str, residuals: Any, gradient: Array) -> tuple[Array, None]:
    table, tokens = residuals
    lookup = jax.linear_transpose(lambda table: jnp.take(table, tokens, axis=0), table)
    return lookup(gradient.astype(table.dtype))[0], None


embedding_lookup.defvjp(_embedding_lookup_forward, _embedding_lookup_backward)


def soft_cap(x: Float[Array, "*shape"], cap: float) -> Float[Array, "*shape"]:
    """`cap tanh(x / cap)`; 0: `x` itself."""
    return jnp.tanh(x / cap) * cap if cap else x
