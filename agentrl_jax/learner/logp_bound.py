"""How much the log-probs of an engine and of a learner with the same weights may differ."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval

from agentrl_jax.policy import Params, Policy, PolicyInputs
from agentrl_jax.sampling_weights import narrowest_dtype

# Nats, as a mean over tokens, by the dtype of hidden states, or of an engine's weights where these
# are rounded: docs/invariants.md has what is measured.
MAX_LOGP_GAP = {"float32": 1e-3, "bfloat16": 0.1, "float16": 0.1}


def rounding_bound(stored: Params, sampled: Params) -> float:
    """The bound for an engine whose weights are rounded: 0 where they are not.

    Args:
        stored: the learner's weights.
        sampled: the engine's.
    """
    dtype = narrowest_dtype(sampled)
    is_rounded = dtype.itemsize < narrowest_dtype(stored).itemsize
    return MAX_LOGP_GAP[dtype.name] if is_rounded else 0.0


@functools.cache
def logp_bound(policy: Policy) -> float:
    """The bound for this policy; infinite where there is none: dropout makes the learner's
    log-probs random, and other dtypes are not measured.
    """
    tokens = np.ones((1, 2), np.int32)
    inputs = PolicyInputs(tokens=tokens, positions=np.arange(2)[None], segment_ids=tokens)
    key = jax.random.key(0)
    params, tree = jax.tree.flatten(jax.eval_shape(policy.init, key))

    def hidden(params: list[jax.Array], key: jax.Array) -> jax.Array:
        return policy.apply(jax.tree.unflatten(tree, params), inputs, key=key).hidden

    closed = jax.make_jaxpr(hidden)(params, key)
    _, used = partial_eval.dce_jaxpr(closed.jaxpr, [True])
    has_dropout = used[-1]
    dtype = jnp.dtype(closed.out_avals[0].dtype).name
    return math.inf if has_dropout else MAX_LOGP_GAP.get(dtype, math.inf)
