"""A mixture of experts without capacity limits: every token reaches every expert that it is routed
to.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from agentrl_jax.distributed.sharding import per_shard
from agentrl_jax.models.layers import Activation, linear
from agentrl_jax.models.parameters import Module, compact, fan_in, weight_with_adapter


@dataclass
class ExpertsConfig:
    """The experts of a sparse layer."""

    count: int = 8
    per_token: int = 2
    hidden: int = 256  # inner width of each expert
    renormalize: bool = True  # the chosen experts' probabilities sum to 1 (norm_topk_prob)
    balance: float = 0.0  # coefficient of the load-balancing loss
    dense_layers: tuple[int, ...] = ()  # layers with an ordinary MLP instead


def mixture_of_experts(
    x: Float[Array, "B T D"],
    expert_ids: Int[Array, "B T k"],
    expert_weights: Float[Array, "B T k"],
    gate: Float[Array, "e D F"],
    up: Float[Array, "e D F"],
    down: Float[Array, "e F D"],
    first_expert: int | Int[Array, ""],
    activation: Activation,
) -> Float[Array, "B T D"]:
    """`sum_i weight_i expert_i(x)` over those of a token's k experts that are among the e local
    ones, which start at `first_expert`.

    The (token, expert) pairs are sorted by expert, so that each expert is one group of a ragged
    product; pairs of experts on other devices come last, in no group.
    """
    local_count, per_token = gate.shape[0], expert_ids.shape[-1]
    local = expert_ids.reshape(-1) - first_expert
    local = jnp.where((local >= 0) & (local < local_count), local, local_count)
    order = jnp.argsort(local, stable=True)
    sizes = jnp.bincount(local, length=local_count + 1)[:local_count]
    tokens = x.reshape(-1, x.shape[-1])[order // per_token]
    gated = activation(jax.lax.ragged_dot(tokens, gate, sizes))
    y = jax.lax.ragged_dot(gated * jax.lax.ragged_dot(tokens, up, sizes), down, sizes)
    y = jnp.where((local[order] < local_count)[:, None], y, 0)
    # back to token order: a sum in a fixed order, not a scatter
    y = y[jnp.argsort(order)].reshape(*x.shape[:2], per_token, -1)
    return jnp.einsum("BTkD,BTk->BTD", y, expert_weights.astype(x.dtype))


def load_balance_loss(
    probs: Float[Array, "B T E"], expert_ids: Int[Array, "B T k"], token_mask: Bool[Array, "B T"]
) -> Float[Array, ""]:
    """`E sum_e f_e p_e`: f the fraction of choices that fell on an expert, p its mean probability;
    1 where both are even.

    Over real tokens (Fedus et al. 2021, arXiv:2101.03961, equations 4 to 6, for k choices).
    """
    experts, mask = probs.shape[-1], token_mask.astype(jnp.float32)
    total = jnp.maximum(mask.sum(), 1.0)
    hits = jax.nn.one_hot(expert_ids, experts, dtype=jnp.float32).mean(axis=2)
    f = jnp.einsum("BTE,BT->E", hits, mask) / total
    p = jnp.einsum("BTE,BT->E", probs, mask) / total
    return experts * jnp.sum(f * p)


class Experts(Module):
    """Top-k of a float32 softmax over experts, each a gated MLP (Qwen 3 MoE); dropless."""

    config: ExpertsConfig
    activation: Activation
    out_scale: float
    param_dtype: str

    @compact
    def __call__(
        self, x: Float[Array, "B T D"], token_mask: Bool[Array, "B T"]
    ) -> tuple[Float[Array, "B T D"], Float[Array, ""]]:
        """The mixture, and the scaled load-balancing loss."""
        c, width, dtype = self.config, x.shape[-1], self.param_dtype
        wide = {"experts": c.count, "embed": width, "hidden": c.hidden}
        narrow = {"experts": c.count, "hidden": c.hidden, "embed": width}
        router = weight_with_adapter(
            self, "router", fan_in(width), {"embed": width, "experts": c.count}, dtype
        )
        gate, up = (
            weight_with_adapter(self, name, fan_in(width), wide, dtype).astype(x.dtype)
            for name in ("gate", "up")
        )
        init = fan_in(c.hidden, self.out_scale)
        down = weight_with_adapter(self, "down", init, narrow, dtype).astype(x.dtype)
        probs = jax.nn.softmax(linear(x, router).astype(jnp.float32))
        weights, ids = jax.lax.top_k(probs, c.per_token)
        if c.renormalize:
            weights = weights / jnp.sum(weights, axis=-1, keepdims=True)
        y = self._mixture_over_mesh(x, ids, weights, gate, up, down)
        aux = c.balance * load_balance_loss(probs, ids, token_mask) if c.balance else jnp.float32(0)
        return y, aux

    def _mixture_over_mesh(
        self, x: Array, ids: Array, weights: Array, gate: Array, up: Array, down: Array
    ) -> Array:
        """`mixture_of_experts` with each device's experts and hidden units, summed over devices."""
        c = self.config

        def on_a_shard(
            x: Array, ids: Array, weights: Array, gate: Array, up: Array, down: Array
        ) -> Array:
            local_count, hidden = gate.shape[0], gate.shape[-1]
            is_split = local_count < c.count
            first = jax.lax.axis_index("expert") * local_count if is_split else 0
            y = mixture_of_experts(x, ids, weights, gate, up, down, first, self.activation)
            axes = (("expert",) if is_split else ()) + (("tensor",) if hidden < c.hidden else ())
            return jax.lax.psum(y, axes) if axes else y

        rows = ("rows", None, None)
        up_axes, down_axes = ("experts", None, "hidden"), ("experts", "hidden", None)
        mapped = per_shard(on_a_shard, (rows, rows, rows, up_axes, up_axes, down_axes), rows)
        return mapped(x, ids, weights, gate, up, down)
