"""Updates that are lost where trained weights are stored in few bits."""

import math
import sys

import jax
import jax.numpy as jnp
import optax

from agentrl_jax.learner.stochastic_rounding import RoundedTransformation
from agentrl_jax.policy import Params

EXAMPLE_RATE = 1e-6  # of AdamW, whose steps are about as large as its rate


def lost_fraction(dtype: jnp.dtype) -> float:
    """An update below this fraction of a weight's size leaves a weight of the dtype as it is.

    Numbers of p significant bits are at most 2^(1-p) of their size apart, and an update that is
    smaller than half of the least distance, 2^(-p), is rounded off: 2^(-p-1) of the size at least.
    """
    return float(jnp.finfo(dtype).eps) / 4


def rounding_warning(trained: Params) -> str:
    """One sentence on the trained weights in less than 32 bits; "" where there are none.

    Args:
        trained: the trained weights, arrays or shapes.
    """
    narrow = [x for x in jax.tree.leaves(trained) if jnp.finfo(x.dtype).bits < 32]
    if not narrow:
        return ""
    names = sorted({x.dtype.name for x in narrow})
    count = sum(math.prod(x.shape) for x in narrow)
    fraction = max(lost_fraction(x.dtype) for x in narrow)
    return (
        f"{count:,} trained weights are {' and '.join(names)}: an update below "
        f"1/{round(1 / fraction)} of a weight's size leaves it as it is, so that AdamW at a "
        f"rate of {EXAMPLE_RATE:g} moves no weight above {EXAMPLE_RATE / fraction:.2g}; train in "
        'float32 (param_dtype="float32", compute_dtype="bfloat16"), or round at random '
        "(StochasticRounding(optimizer))"
    )


def warn_of_rounding(trained: Params, tx: optax.GradientTransformation) -> None:
    """Print `rounding_warning` to stderr, in the first process, unless `tx` rounds at random."""
    warning = "" if isinstance(tx, RoundedTransformation) else rounding_warning(trained)
    if warning and jax.process_index() == 0:
        print(f"warning: {warning}", file=sys.stderr)
