"""The weights that an engine samples with: a tree a layer, matrices in a dtype of their own."""

from collections.abc import Set
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.policy import Params, Policy

DTYPES = ("float32", "bfloat16", "float16")
# What an engine may do with weights that keeps the set of their numbers.
LAYOUT_PRIMITIVES = frozenset(
    {"slice", "dynamic_slice", "squeeze", "reshape", "transpose", "copy", "copy_p"}
)


def sampling_dtype(policy: Policy, name: str = "") -> np.dtype:
    """The dtype of an engine's matrices: the one that is named, or "": that of the KV cache, which
    for a decoder is that of its products.

    Raises:
        UserError: it is none of `DTYPES`.
    """
    if name and name not in DTYPES:
        raise UserError(f"config.engine.dtype is one of {', '.join(DTYPES)}, not {name!r}")
    if name:
        return jnp.dtype(name)
    cache = jax.tree.leaves(jax.eval_shape(lambda: policy.init_cache(1, 1)))
    dtypes = [x.dtype for x in cache if x.dtype.name in DTYPES]
    return dtypes[0] if dtypes else jnp.dtype("float32")


def sampling_weights(policy: Policy, params: Params, dtype: np.dtype) -> Params:
    """The weights as an engine holds them: `Policy.unstack`, then `narrow_matrices`."""
    return narrow_matrices(policy.unstack(params), dtype)


def only_moves(jaxpr: Any, primitives: Set[str] = LAYOUT_PRIMITIVES) -> bool:
    """Whether a traced function consists of these operations alone."""
    return all(
        only_moves(eqn.params["jaxpr"].jaxpr, primitives)
        if eqn.primitive.name in ("pjit", "jit")
        else eqn.primitive.name in primitives
        for eqn in jaxpr.eqns
    )


def narrow_matrices(params: Params, dtype: np.dtype) -> Params:
    """Weights of two or more axes rounded to `dtype` where theirs is a wider one.

    Vectors (scales of norms, biases), whose products are few, stay as they are, and so do weights
    in a format of their own (quantized), which are other nodes of the tree than dicts and tuples.

    Args:
        params: a tree of arrays, or while tracing of their shapes.
        dtype: one of `DTYPES`.
    """

    def narrow(x: Any) -> Any:
        if not isinstance(x, jax.Array | np.ndarray) or x.ndim < 2 or x.dtype.name not in DTYPES:
            return x
        return x.astype(dtype) if dtype.itemsize < x.dtype.itemsize else x

    containers = dict | tuple | list
    return jax.tree.map(narrow, params, is_leaf=lambda x: not isinstance(x, containers))


def narrowest_dtype(params: Params) -> np.dtype:
    """Of the floating-point arrays of a tree, the narrowest dtype; float32 without any."""
    dtypes = [x.dtype for x in jax.tree.leaves(params) if x.dtype.name in DTYPES]
    return min([jnp.dtype("float32"), *dtypes], key=lambda dtype: dtype.itemsize)
