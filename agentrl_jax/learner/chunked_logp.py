"""Log-probs and entropies of the tokens of a batch, computed over chunks of logits."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from agentrl_jax.distributed.sharding import BATCH_AXES, num_shards, per_shard, platform
from agentrl_jax.learner.packing import Batch
from agentrl_jax.policy import Params, Policy
from agentrl_jax.sampling_weights import narrow_matrices

MAX_CHUNK_LOGITS = 2**25  # floats on a device: 128 MiB of logits
# On a GPU, where a chunk of a few hundred tokens costs as much time for the head's weights and
# their gradient as for the products: 1 GiB.
MAX_CHUNK_LOGITS_CUDA = 2**28
# (params, `Batch`, dropout key) -> (arrays [B, T], auxiliary loss of the forward pass)
ForwardFn = Callable[[Params, Any, Any], tuple[tuple[Array, ...], Array | None]]


def token_logp(
    policy: Policy, params: Params, batch: Batch
) -> tuple[Float[Array, "B T"], Float[Array, "B T"]]:
    """Log-prob of each token and entropy of its distribution, at the temperature of sampling.

    logp[t] = log_softmax(logits(hidden[t-1]) / temperature[t])[tokens[t]]; 0 in the first column
    and in a shared prefix. Logits exist for one rematerialized chunk of tokens at a time, forward
    and backward.
    """
    return _logp_from_hidden(policy, params, batch, policy.apply(params, batch.inputs).hidden)


def make_logp_forward(policy: Policy) -> ForwardFn:
    """The forward function of a policy: log-probs and entropies, as `token_logp`."""

    def forward(
        params: Params, batch: Batch, key: Array | None
    ) -> tuple[tuple[Array, ...], Array | None]:
        output = policy.apply(params, batch.inputs, key=key)
        return _logp_from_hidden(policy, params, batch, output.hidden), output.aux

    return forward


def _logp_from_hidden(
    policy: Policy, params: Params, batch: Batch, hidden: Float[Array, "B T D"]
) -> tuple[Array, Array]:
    """`token_logp` from hidden states."""
    logp, entropy = map_over_vocabulary(
        functools.partial(_target_logp_and_entropy, policy),
        2,
        policy.vocab_size,
        params,
        batch,
        hidden,
    )
    return logp, entropy


# (params, hidden [N, D], token [N], temperature [N]) -> arrays [N]
VocabularyFn = Callable[[Params, Array, Array, Array], tuple[Array, ...]]


def map_over_vocabulary(
    token_fn: VocabularyFn,
    num_outputs: int,
    vocab_size: int,
    params: Params,
    batch: Batch,
    hidden: Float[Array, "B T D"],
) -> tuple[Float[Array, "B T"], ...]:
    """Apply a function of the vocabulary's logits to every token, chunk by chunk.

    The outputs are 0 in the first column and in a shared prefix. Arrays over the vocabulary exist
    for one rematerialized chunk of tokens at a time. Every device chunks its own rows, with
    `params` gathered over `fsdp` once.

    Args:
        token_fn: gets the hidden state before each token, the token and its temperature.
        num_outputs: the number of arrays that it returns.
        vocab_size: the number of logits per token.
        params: the policy's weights.
        batch: the packed sequences.
        hidden: the policy's hidden states of the batch.
    """

    def map_rows(
        narrow: Params, wide: Params, hidden: Array, targets: Array, temperature: Array
    ) -> tuple[Array, ...]:
        def map_chunk(*parts: Array) -> tuple[Array, ...]:
            return token_fn(jax.tree.map(_with_gradient_of, narrow, wide), *parts)

        outputs = _map_in_chunks(map_chunk, vocab_size)(
            hidden.reshape(-1, hidden.shape[-1]), targets.reshape(-1), temperature.reshape(-1)
        )
        return tuple(x.reshape(targets.shape) for x in outputs)

    # Devices gather the head in the dtype of its product, once, and sum its gradient over chunks
    # and devices in float32, whatever its own dtype.
    narrow = jax.lax.stop_gradient(narrow_matrices(params, hidden.dtype))
    wide = jax.tree.map(
        lambda x: x.astype(jnp.float32) if x.dtype in (jnp.bfloat16, jnp.float16) else x, params
    )
    rows = ("rows", None)
    split = per_shard(
        map_rows, ((), (), (*rows, None), rows, rows), (rows,) * num_outputs, mesh_axes=BATCH_AXES
    )
    first = batch.prefix_length  # within a shared prefix nothing is trained
    after = slice(first + 1, None)
    outputs = split(
        narrow,
        wide,
        hidden[:, first:-1],
        jnp.asarray(batch.tokens)[:, after],
        jnp.asarray(batch.temperature)[:, after],
    )
    return tuple(jnp.pad(x, ((0, 0), (first + 1, 0))) for x in outputs)


@jax.custom_vjp
def _with_gradient_of(narrow: Array, wide: Array) -> Array:
    """`narrow`, whose gradient is that of `wide`, in its dtype."""
    return narrow


_with_gradient_of.defvjp(
    lambda narrow, wide: (narrow, jnp.zeros((), wide.dtype)),
    lambda zero, gradient: (None, gradient.astype(zero.dtype)),
)


def _target_logp_and_entropy(
    policy: Policy,
    params: Params,
    hidden: Float[Array, "N D"],
    target: Int[Array, "N"],
    temperature: Float[Array, "N"],
) -> tuple[Float[Array, "N"], Float[Array, "N"]]:
    """Log-prob of each target and entropy, as sums over the vocabulary.

    Where the vocabulary is split over devices, the sums are all-reduced.
    """
    logits = policy.logits(params, hidden) / temperature[:, None]
    logits -= jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    weights = jnp.exp(logits)
    total = jnp.sum(weights, axis=-1)
    is_target = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1) == target[:, None]
    logp = jnp.sum(jnp.where(is_target, logits, 0.0), axis=-1) - jnp.log(total)
    return logp, jnp.log(total) - jnp.sum(weights * logits, axis=-1) / total


def _map_in_chunks(fn: Callable[..., Any], vocab_size: int) -> Callable[..., Any]:
    """`fn` of arrays [N, ...], mapped over chunks of N and rematerialized in the backward pass.

    A device holds at most `MAX_CHUNK_LOGITS` logits at a time, or `MAX_CHUNK_LOGITS_CUDA`.
    """
    limit = MAX_CHUNK_LOGITS_CUDA if platform() == "cuda" else MAX_CHUNK_LOGITS

    def call(*parts: Array) -> Any:
        count = len(parts[0])
        local_vocab = vocab_size / num_shards(jax.sharding.get_abstract_mesh(), ("tensor",))
        chunks = math.ceil(count * local_vocab / limit)
        if chunks <= 1:
            return fn(*parts)
        size = math.ceil(count / chunks)
        pad = chunks * size - count
        split = tuple(
            jnp.pad(x, ((0, pad), *((0, 0),) * (x.ndim - 1)), mode="edge").reshape(
                chunks, size, *x.shape[1:]
            )
            for x in parts
        )
        outputs = jax.lax.map(jax.checkpoint(lambda parts: fn(*parts)), split)
        return jax.tree.map(lambda x: x.reshape(-1)[:count], outputs)

    return call
