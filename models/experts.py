"""A mixture of experts without capacity: every token reaches every expert it was routed to."""

from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from agentrl_jax.models.layers import Activation, fan_in, linear, weight
from agentrl_jax.sharding import per_shard


@dataclass
class ExpertsConfig:
    """The experts of a sparse layer."""

    count: int = 8
    per_token: int = 2
    hidden: int = 256  # inner width of each expert
    renormalise: bool = True  # the chosen experts' probabilities sum to 1 (norm_topk_prob)
    balance: float = 0.0  # coefficient of the load-balancing loss
    dense: tuple[int, ...] = ()  # layers with an ordinary MLP instead


def mixture(
    x: Float[Array, "B T D"], chosen: Int[Array, "B T k"], share: Float[Array, "B T k"],
    gate: Float[Array, "e D F"], up: Float[Array, "e D F"], down: Float[Array, "e F D"],
    first: int | Int[Array, ""], activation: Activation,
) -> Float[Array, "B T D"]:  # fmt: skip
    """`sum_i share_i expert_i(x)` over those of a token's k experts that are among the e held here, `first` onwards.

    The (token, expert) pairs are sorted by expert, so that each expert is one group of a ragged product; pairs of experts
    held elsewhere come last, in no group.
    """
    held, per_token = gate.shape[0], chosen.shape[-1]
    local = chosen.reshape(-1) - first
    local = jnp.where((local >= 0) & (local < held), local, held)
    order = jnp.argsort(local, stable=True)
    sizes = jnp.bincount(local, length=held + 1)[:held]
    tokens = x.reshape(-1, x.shape[-1])[order // per_token]
    inner = activation(jax.lax.ragged_dot(tokens, gate, sizes)) * jax.lax.ragged_dot(tokens, up, sizes)
    y = jax.lax.ragged_dot(inner, down, sizes)
    y = jnp.where((local[order] < held)[:, None], y, 0)
    y = y[jnp.argsort(order)].reshape(*x.shape[:2], per_token, -1)  # back to token order: a sum in a fixed order, not a scatter
    return jnp.einsum("BTkD,BTk->BTD", y, share.astype(x.dtype))


def imbalance(probs: Float[Array, "B T E"], chosen: Int[Array, "B T k"], real: Bool[Array, "B T"]) -> Float[Array, ""]:
    """`E sum_e f_e p_e`: f the share of choices that fell on an expert, p its mean probability; 1 where both are even.

    Over real tokens (Fedus et al. 2021, arXiv:2101.03961, equations 4 to 6, for k choices).
    """
    experts, mask = probs.shape[-1], real.astype(jnp.float32)
    total = jnp.maximum(mask.sum(), 1.0)
    hits = jax.nn.one_hot(chosen, experts, dtype=jnp.float32).mean(axis=2)
    f = jnp.einsum("BTE,BT->E", hits, mask) / total
    p = jnp.einsum("BTE,BT->E", probs, mask) / total
    return experts * jnp.sum(f * p)


class Experts(nn.Module):
    """Top-k of a float32 softmax over experts, each a gated MLP (Qwen 3 MoE); dropless."""

    config: ExpertsConfig
    activation: Activation
    out_scale: float
    param_dtype: str

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"], real: Bool[Array, "B T"]) -> tuple[Float[Array, "B T D"], Float[Array, ""]]:
        """The mixture, and the scaled load-balancing loss."""
        c, width = self.config, x.shape[-1]
        wide = {"experts": c.count, "embed": width, "hidden": c.hidden}
        narrow = {"experts": c.count, "hidden": c.hidden, "embed": width}
        router = weight(self, "router", fan_in(width), {"embed": width, "experts": c.count}, self.param_dtype)
        gate, up = (weight(self, name, fan_in(width), wide, self.param_dtype).astype(x.dtype) for name in ("gate", "up"))
        down = weight(self, "down", fan_in(c.hidden, self.out_scale), narrow, self.param_dtype).astype(x.dtype)
        probs = jax.nn.softmax(linear(x, router).astype(jnp.float32))
        share, chosen = jax.lax.top_k(probs, c.per_token)
        if c.renormalise:
            share = share / jnp.sum(share, axis=-1, keepdims=True)

        def here(x: Array, chosen: Array, share: Array, gate: Array, up: Array, down: Array) -> Array:
            held, hidden = gate.shape[0], gate.shape[-1]
            first = jax.lax.axis_index("expert") * held if held < c.count else 0
            y = mixture(x, chosen, share, gate, up, down, first, self.activation)
            split = (("expert",) if held < c.count else ()) + (("tensor",) if hidden < c.hidden else ())
            return jax.lax.psum(y, split) if split else y

        rows, into, back = ("rows", None, None), ("experts", None, "hidden"), ("experts", "hidden", None)
        everywhere = per_shard(here, (rows, rows, rows, into, into, back), rows)
        aux = c.balance * imbalance(probs, chosen, real) if c.balance else jnp.float32(0)
        return everywhere(x, chosen, share, gate, up, down), aux
