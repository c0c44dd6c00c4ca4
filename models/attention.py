"""Grouped-query attention over a row's own tokens (training) or over a cache (decoding)."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int

from agentrl_jax.models.kernels import MASKED, attend_rows
from agentrl_jax.models.layers import RMSNorm, capped, fan_in, project
from agentrl_jax.models.rope import rotate
from agentrl_jax.record import record, static
from agentrl_jax.sharding import per_shard


@record
class View:
    """What a kind of layer must know of the tokens: their rotation, what each may look at, and their slots in the cache."""

    cos: Float[Array, "B T 1 half"]
    sin: Float[Array, "B T 1 half"]
    positions: Int[Array, "B T"]
    segment_ids: Int[Array, "B T"]
    slots: Int[Array, "B T"] | None = None
    window: int = static(default=0)  # how many positions back, its own included; 0: all
    span: int = static(default=0)  # of the cache: how many of its slots may be seen
    stem: int = static(default=0)  # of whole rows: see `Inputs`
    branch: int = static(default=0)


def cache_mask(positions: Int[Array, "B T"], span: int, size: int, window: int = 0) -> Bool[Array, "B T {size}"]:
    """True for the slots up to the query's own, of the first `span` and within the window; stale slots after it are never seen."""
    slots, last = jnp.arange(size)[None, None, :], jnp.minimum(positions, span - 1)[:, :, None]
    seen = slots <= last
    return seen & (slots > last - window) if window else seen


def cache_slots(positions: Int[Array, "B T"], segment_ids: Int[Array, "B T"], size: int) -> Int[Array, "B T"]:
    """Where to write each token; padding goes to distinct slots past the end, which a dropping scatter ignores."""
    return jnp.where(segment_ids != 0, positions, size + jnp.arange(positions.shape[1])[None, :])


def write(cache: Float[Array, "B K S H"], new: Float[Array, "B T K H"], slots: Int[Array, "B T"]) -> Float[Array, "B K S H"]:
    """`cache[b, :, slots[b, t]] = new[b, t]`, in place where the cache is donated.

    Head by head: a scatter of all heads at once would make a TPU lay the cache out anew, twice in every step. Each device
    writes its own heads.
    """

    def here(cache: Array, new: Array, slots: Array) -> Array:
        rows, heads = jnp.arange(cache.shape[0])[:, None, None], jnp.arange(cache.shape[1])[None, :, None]
        return cache.at[rows, heads, slots[:, None]].set(jnp.swapaxes(new, 1, 2), mode="drop", unique_indices=True)

    kept, given = (None, "kv_heads", None, None), (None, None, "kv_heads", None)
    return per_shard(here, (kept, given, (None, None)), kept, over=("tensor",))(cache, new, slots)


def attend(
    query: Float[Array, "B T K M H"], key: Float[Array, "B K S H"], value: Float[Array, "B K S H"], mask: Bool[Array, "B T S"],
    scale: float, cap: float,
) -> Float[Array, "B T K M H"]:  # fmt: skip
    """`softmax(cap(scale q k)) v`, softmax in float32; the M query heads of a group share a key head.

    The queries that share keys are the rows of one matrix: less than half the time on a CPU.
    """
    B, T, K, M, H = query.shape
    rows = (query * scale).transpose(0, 2, 3, 1, 4).reshape(B, K, M * T, H)
    scores = jax.lax.dot_general(rows, key, (((3,), (3,)), ((0, 1), (0, 1))), preferred_element_type=jnp.float32)
    scores = capped(scores, cap).reshape(B, K, M, T, -1) + jnp.where(mask, 0.0, MASKED)[:, None, None]
    return weighted(scores.reshape(B, K, M * T, -1), value).reshape(B, K, M, T, H).transpose(0, 3, 1, 2, 4)


def weighted(scores: Float[Array, "B K R S"], value: Float[Array, "B K S H"]) -> Float[Array, "B K R H"]:
    """`softmax(scores) v`, the softmax's total divided by at the end."""
    shares = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    y = jax.lax.dot_general(
        shares.astype(value.dtype), value, (((3,), (2,)), ((0, 1), (0, 1))), preferred_element_type=jnp.float32
    )  # fmt: skip
    return (y / jnp.sum(shares, axis=-1, keepdims=True)).astype(value.dtype)


def attend_cache(
    query: Float[Array, "B T K M H"], key: Float[Array, "B K S H"], value: Float[Array, "B K S H"], view: View, scale: float, cap: float
) -> Float[Array, "B T K M H"]:
    """`attend` over the first `view.span` slots of a cache.

    On a CPU a single token's scores are made one query head of each group at a time, a matrix times a vector, and over all slots
    where copying out `span` of them would cost more than it saves: two thirds of the time.
    """
    size = key.shape[2]
    mask, span = cache_mask(view.positions, view.span, size, view.window), view.span

    def grouped(query: Array, key: Array, value: Array, mask: Array) -> Array:
        return attend(query, key[:, :, :span], value[:, :, :span], mask[:, :, :span], scale, cap)

    def one_token(query: Array, key: Array, value: Array, mask: Array) -> Array:
        near = span if 5 * span <= 2 * size else size
        heads = [jnp.einsum("BKH,BKSH->BKS", query[:, 0, :, m] * scale, key[:, :, :near]) for m in range(query.shape[3])]
        scores = capped(jnp.stack(heads, axis=2).astype(jnp.float32), cap)
        return weighted(scores + jnp.where(mask[:, :, None, :near], 0.0, MASKED), value[:, :, :near])[:, None]

    if query.shape[1] > 1:
        return grouped(query, key, value, mask)
    return jax.lax.platform_dependent(query, key, value, mask, cpu=one_token, default=grouped)


class Attention(nn.Module):
    """Grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245) with rotary positions, optional q/k norms and biases."""

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

    @nn.compact
    def __call__(
        self, x: Float[Array, "B T D"], views: tuple[View, ...], kind: int | Int[Array, ""], cache: tuple[Array, Array] | None = None
    ) -> tuple[Float[Array, "B T D"], tuple[Array, Array] | None]:
        """The attended values, and with a cache (one layer's keys and values) that cache with the new ones written.

        `kind` says which of the views is this layer's: an int, or traced where layers are scanned.
        """
        width, head = {"embed": x.shape[-1]}, {"head_size": self.head_size}
        query = project(self, "query", x, width, {"heads": self.heads, **head}, self.qkv_bias)
        key = project(self, "key", x, width, {"kv_heads": self.kv_heads, **head}, self.qkv_bias)
        value = project(self, "value", x, width, {"kv_heads": self.kv_heads, **head}, self.qkv_bias)
        if self.qk_norm:
            norm = (self.norm_eps, self.param_dtype, self.norm_offset)
            query = RMSNorm("norm", *norm, name="query_norm")(query)
            key = RMSNorm("norm", *norm, name="key_norm")(key)
        cos, sin = (_chosen([getattr(view, name) for view in views], kind) for name in ("cos", "sin"))
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        query = query.reshape(*query.shape[:2], self.kv_heads, self.heads // self.kv_heads, self.head_size)
        if cache is None:
            y = self._attend_rows(query, key, value, views, kind)
        else:
            view = views[int(kind)]
            assert view.slots is not None
            cache = write(cache[0], key, view.slots), write(cache[1], value, view.slots)
            y = attend_cache(query, *cache, view, self.scale, self.cap)
        y = y.reshape(*y.shape[:2], self.heads, self.head_size)
        init = fan_in(self.heads * self.head_size, self.out_scale)
        return project(self, "out", y, {"heads": self.heads, **head}, width, self.out_bias, init), cache

    def _attend_rows(self, query: Array, key: Array, value: Array, views: tuple[View, ...], kind: int | Array) -> Array:
        query, key, value = checkpoint_name(query, "query"), checkpoint_name(key, "key"), checkpoint_name(value, "value")

        def through(view: View):
            return lambda q, k, v: attend_rows(
                q, k, v, view.positions, view.segment_ids, scale=self.scale, window=view.window, cap=self.cap,
                stem=view.stem, branch=view.branch,
            )  # fmt: skip

        branches = [through(view) for view in views]
        if isinstance(kind, int) or len(views) == 1:
            return branches[kind if isinstance(kind, int) else 0](query, key, value)
        return jax.lax.switch(kind, branches, query, key, value)


def _chosen(options: list[Array], kind: int | Array) -> Array:
    if isinstance(kind, int) or len(options) == 1:
        return options[kind if isinstance(kind, int) else 0]
    return jax.lax.dynamic_index_in_dim(jnp.stack(options), kind, keepdims=False)
