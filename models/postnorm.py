"""A transformer block whose norms come after the sums, with biases everywhere, as in BERT and RoBERTa."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float

from agentrl_jax.models.layers import project, weight

KEPT = ("query", "key", "value", "inner")  # what a block stores for its backward pass beside its input
INIT = nn.initializers.normal(0.02)  # of every matrix (BERT's)
MASKED = -1e30  # finite: a row of padding alone gets a uniform average, never NaN


class LayerNorm(nn.Module):
    """`(x - mean(x)) / sqrt(var(x) + eps) * scale + bias` over the last axis, in float32 (Ba et al. 2016, arXiv:1607.06450)."""

    eps: float
    param_dtype: str

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        shape = {"norm": x.shape[-1]}
        scale = weight(self, "scale", nn.initializers.ones, shape, self.param_dtype).astype(jnp.float32)
        bias = weight(self, "bias", nn.initializers.zeros, shape, self.param_dtype).astype(jnp.float32)
        wide = x.astype(jnp.float32)
        wide = wide - jnp.mean(wide, axis=-1, keepdims=True)
        inverse = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + self.eps)
        return (wide * inverse * scale[None, None] + bias[None, None]).astype(x.dtype)


class Block(nn.Module):
    """`x = norm(x + attention(x))`, then `x = norm(x + mlp(x))`: norms after the sums."""

    heads: int
    hidden: int
    norm_eps: float
    param_dtype: str

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"], mask: Bool[Array, "B T"]) -> tuple[Float[Array, "B T D"], None]:
        """The next hidden states; every token attends to the real ones."""
        hidden = {"hidden": self.hidden}
        width, heads = {"embed": x.shape[-1]}, {"heads": self.heads, "head_size": x.shape[-1] // self.heads}
        query, key, value = (checkpoint_name(project(self, name, x, width, heads, True, INIT), name) for name in ("query", "key", "value"))
        query = query * query.shape[-1] ** -0.5
        scores = jnp.einsum("BTNH,BSNH->BNTS", query, key, preferred_element_type=jnp.float32)
        weights = jax.nn.softmax(scores + jnp.where(mask, 0.0, MASKED)[:, None, None, :], axis=-1)
        y = jnp.einsum("BNTS,BSNH->BTNH", weights.astype(x.dtype), value)
        x = LayerNorm(self.norm_eps, self.param_dtype, name="attention_norm")(x + project(self, "out", y, heads, width, True, INIT))
        inner = checkpoint_name(project(self, "up", x, width, hidden, True, INIT), "inner")
        y = project(self, "down", jax.nn.gelu(inner, approximate=False), hidden, width, True, INIT)
        return LayerNorm(self.norm_eps, self.param_dtype, name="mlp_norm")(x + y), None
