"""Grouped-query attention over a row's own tokens (training) or over a cache (decoding)."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int

from agentrl_jax.distributed.sharding import per_shard
from agentrl_jax.models.attention_kernels import attend_rows
from agentrl_jax.models.kernel_inputs import MASK_VALUE
from agentrl_jax.models.layers import RMSNorm, project, soft_cap
from agentrl_jax.models.parameters import Module, compact, fan_in
from agentrl_jax.models.rope import apply_rotary
from agentrl_jax.pytree import pytree_dataclass, static_field


@pytree_dataclass
class AttentionInputs:
    """What all layers of one kind (window and rope) share: the tokens' rotations, positions,
    segments and cache slots.
    """

    cos: Float[Array, "B T 1 half"]
    sin: Float[Array, "B T 1 half"]
    positions: Int[Array, "B T"]
    segment_ids: Int[Array, "B T"]
    slots: Int[Array, "B T"] | None = None
    visible_until: Int[Array, "B T"] | None = None  # see `PolicyInputs`
    window: int = static_field(default=0)  # how many positions back, its own included; 0: all
    # how many slots of the cache may be attended to
    attention_length: int = static_field(default=0)
    prefix_length: int = static_field(default=0)  # of whole rows: see `PolicyInputs`
    branch_length: int = static_field(default=0)
    inner_branches: bool = static_field(default=False)


def cache_mask(
    positions: Int[Array, "B T"],
    attention_length: int,
    cache_length: int,
    window: int = 0,
    visible_until: Int[Array, "B T"] | None = None,
) -> Bool[Array, "B T {cache_length}"]:
    """True for the slots up to the query's own or `visible_until`, of the first `attention_length`
    and within the window; stale slots after it are never attended to.
    """
    slots = jnp.arange(cache_length)[None, None, :]
    query_slot = jnp.minimum(positions, attention_length - 1)[:, :, None]
    last = query_slot
    if visible_until is not None:
        last = jnp.clip(visible_until, positions, attention_length - 1)[:, :, None]
    visible = slots <= last
    return visible & (slots > query_slot - window) if window else visible


def cache_slots(
    positions: Int[Array, "B T"], segment_ids: Int[Array, "B T"], cache_length: int
) -> Int[Array, "B T"]:
    """Where to write each token; padding goes to distinct slots past the end, which a dropping
    scatter ignores.
    """
    past_end = cache_length + jnp.arange(positions.shape[1])[None, :]
    return jnp.where(segment_ids != 0, positions, past_end)


def write_cache(
    cache: Float[Array, "B K S H"], new: Float[Array, "B T K H"], slots: Int[Array, "B T"]
) -> Float[Array, "B K S H"]:
    """`cache[b, :, slots[b, t]] = new[b, t]`, in place where the cache is donated.

    Head by head: a scatter of all heads at once would make a TPU change the cache's layout twice in
    every step. Each device writes its own heads.
    """

    def on_a_shard(cache: Array, new: Array, slots: Array) -> Array:
        rows = jnp.arange(cache.shape[0])[:, None, None]
        heads = jnp.arange(cache.shape[1])[None, :, None]
        return cache.at[rows, heads, slots[:, None]].set(
            jnp.swapaxes(new, 1, 2), mode="drop", unique_indices=True
        )

    cache_axes, new_axes = (None, "kv_heads", None, None), (None, None, "kv_heads", None)
    in_axes = (cache_axes, new_axes, (None, None))
    return per_shard(on_a_shard, in_axes, cache_axes, mesh_axes=("tensor",))(cache, new, slots)


def attend(
    query: Float[Array, "B T K M H"],
    key: Float[Array, "B K S H"],
    value: Float[Array, "B K S H"],
    mask: Bool[Array, "B T S"],
    scale: float,
    cap: float,
) -> Float[Array, "B T K M H"]:
    """`softmax(cap(scale q k)) v`, softmax in float32; the M query heads of a group share a key
    head.

    The queries that share keys are the rows of one matrix, which takes less than half the time on a
    CPU.
    """
    B, T, K, M, H = query.shape
    rows = (query * scale).transpose(0, 2, 3, 1, 4).reshape(B, K, M * T, H)
    scores = jax.lax.dot_general(
        rows, key, (((3,), (3,)), ((0, 1), (0, 1))), preferred_element_type=jnp.float32
    )
    mask_bias = jnp.where(mask, 0.0, MASK_VALUE)[:, None, None]
    scores = soft_cap(scores, cap).reshape(B, K, M, T, -1) + mask_bias
    y = softmax_weighted_sum(scores.reshape(B, K, M * T, -1), value)
    return y.reshape(B, K, M, T, H).transpose(0, 3, 1, 2, 4)


def softmax_weighted_sum(
    scores: Float[Array, "B K R S"], value: Float[Array, "B K S H"]
) -> Float[Array, "B K R H"]:
    """`softmax(scores) v`, divided by the softmax's total at the end."""
    weights = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    y = jax.lax.dot_general(
        weights.astype(value.dtype),
        value,
        (((3,), (2,)), ((0, 1), (0, 1))),
        preferred_element_type=jnp.float32,
    )
    return (y / jnp.sum(weights, axis=-1, keepdims=True)).astype(value.dtype)


def attend_cache(
    query: Float[Array, "B T K M H"],
    key: Float[Array, "B K S H"],
    value: Float[Array, "B K S H"],
    inputs: AttentionInputs,
    scale: float,
    cap: float,
) -> Float[Array, "B T K M H"]:
    """`attend` over the first `inputs.attention_length` slots of a cache.

    On a CPU a single token's scores are computed one query head of each group at a time, a matrix
    times a vector, and over all slots where copying out `attention_length` of them would cost more
    than it saves; this takes two thirds of the time.
    """
    size, span = key.shape[2], inputs.attention_length
    mask = cache_mask(inputs.positions, span, size, inputs.window, inputs.visible_until)

    def grouped(query: Array, key: Array, value: Array, mask: Array) -> Array:
        return attend(query, key[:, :, :span], value[:, :, :span], mask[:, :, :span], scale, cap)

    def one_token(query: Array, key: Array, value: Array, mask: Array) -> Array:
        near = span if 5 * span <= 2 * size else size
        heads = [
            jnp.einsum("BKH,BKSH->BKS", query[:, 0, :, m] * scale, key[:, :, :near])
            for m in range(query.shape[3])
        ]
        scores = soft_cap(jnp.stack(heads, axis=2).astype(jnp.float32), cap)
        mask_bias = jnp.where(mask[:, :, None, :near], 0.0, MASK_VALUE)
        return softmax_weighted_sum(scores + mask_bias, value[:, :, :near])[:, None]

    if query.shape[1] > 1:
        return grouped(query, key, value, mask)
    return jax.lax.platform_dependent(query, key, value, mask, cpu=one_token, default=grouped)


class Attention(Module):
    """Grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245) with rotary positions,
    optional q/k norms and biases.
    """

    heads: int
    kv_heads: int
    head_size: int
    qk_norm: bool
    qkv_bias: bool
    out_bias: bool
    norm_eps: float
    norm_offset: bool
    scale: float  # of the scores
    cap: float  # of the scores; 0: none
    out_scale: float
    param_dtype: str

    @compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        inputs_by_kind: tuple[AttentionInputs, ...],
        kind: int | Int[Array, ""],
        cache: tuple[Array, Array] | None = None,
    ) -> tuple[Float[Array, "B T D"], tuple[Array, Array] | None]:
        """The projected output, and with a cache (one layer's keys and values) that cache with the
        new ones written.

        `kind` is the index of this layer's inputs: an int, or traced where layers are scanned.
        """
        width, head = {"embed": x.shape[-1]}, {"head_size": self.head_size}
        query = project(self, "query", x, width, {"heads": self.heads, **head}, self.qkv_bias)
        key = project(self, "key", x, width, {"kv_heads": self.kv_heads, **head}, self.qkv_bias)
        value = project(self, "value", x, width, {"kv_heads": self.kv_heads, **head}, self.qkv_bias)
        if self.qk_norm:
            norm = (self.norm_eps, self.param_dtype, self.norm_offset)
            query = RMSNorm("norm", *norm, name="query_norm")(query)
            key = RMSNorm("norm", *norm, name="key_norm")(key)
        cos = _select_kind([inputs.cos for inputs in inputs_by_kind], kind)
        sin = _select_kind([inputs.sin for inputs in inputs_by_kind], kind)
        query, key = apply_rotary(query, cos, sin), apply_rotary(key, cos, sin)
        query = query.reshape(
            *query.shape[:2], self.kv_heads, self.heads // self.kv_heads, self.head_size
        )
        if cache is None:
            y = self._attend_rows(query, key, value, inputs_by_kind, kind)
        else:
            inputs = inputs_by_kind[int(kind)]
            assert inputs.slots is not None
            keys = write_cache(cache[0], key, inputs.slots)
            values = write_cache(cache[1], value, inputs.slots)
            cache = keys, values
            y = attend_cache(query, keys, values, inputs, self.scale, self.cap)
        y = y.reshape(*y.shape[:2], self.heads, self.head_size)
        init = fan_in(self.heads * self.head_size, self.out_scale)
        inner = {"heads": self.heads, **head}
        return project(self, "out", y, inner, width, self.out_bias, init), cache

    def _attend_rows(
        self,
        query: Array,
        key: Array,
        value: Array,
        inputs_by_kind: tuple[AttentionInputs, ...],
        kind: int | Array,
    ) -> Array:
        arrays = (
            checkpoint_name(query, "query"),
            checkpoint_name(key, "key"),
            checkpoint_name(value, "value"),
        )

        def attention_of(inputs: AttentionInputs):
            return lambda query, key, value: attend_rows(
                query,
                key,
                value,
                inputs.positions,
                inputs.segment_ids,
                inputs.visible_until,
                scale=self.scale,
                window=inputs.window,
                cap=self.cap,
                prefix_length=inputs.prefix_length,
                branch_length=inputs.branch_length,
                inner_branches=inputs.inner_branches,
            )

        choices = [attention_of(inputs) for inputs in inputs_by_kind]
        if isinstance(kind, int) or len(choices) == 1:
            return choices[kind if isinstance(kind, int) else 0](*arrays)
        return jax.lax.switch(kind, choices, *arrays)


def _select_kind(options: list[Array], kind: int | Array) -> Array:
    if isinstance(kind, int) or len(options) == 1:
        return options[kind if isinstance(kind, int) else 0]
    return jax.lax.dynamic_index_in_dim(jnp.stack(options), kind, keepdims=False)
