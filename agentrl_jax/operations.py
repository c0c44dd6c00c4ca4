"""How many floating-point operations a traced program does in its matrix products, recomputed ones too."""

import math
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr


def operations(program: ClosedJaxpr | Jaxpr, attended: float = 1.0) -> float:
    """Of `jax.jit(f).trace(...).jaxpr`, on all devices together: 2 x batch x rows x columns x contracted numbers a product.

    A scan counts as often as it goes round, another loop once, of the branches of a conditional the dearest. A kernel's
    products are not seen: where there is a plain branch beside it, as `kernels.attend_rows` has, that one counts, times
    `attended`: the share of the pairs of tokens that the kernel computes.
    """
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    return math.fsum(_of(equation, attended) for equation in jaxpr.eqns)


def _of(equation: Any, attended: float) -> float:
    name, inner = equation.primitive.name, _programs(equation.params)
    if name == "dot_general":
        ((contracted, _), _), left = equation.params["dimension_numbers"], equation.invars[0].aval.shape
        return 2.0 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[i] for i in contracted)
    if name == "pallas_call":
        return 0.0
    if name == "cond":
        plain = [x for x in inner if not _has_kernel(x)]
        return max(operations(x, attended) for x in plain or inner) * (attended if len(plain) < len(inner) else 1.0)
    times = equation.params["length"] if name == "scan" else 1
    if name == "shard_map":
        times = math.prod(equation.params["mesh"].shape[axis] for axis in equation.params["newly_manual_axes"])
    return times * math.fsum(operations(x, attended) for x in inner)


def _programs(params: dict[str, Any]) -> list[Any]:
    """The programs inside an equation."""
    listed = [x for value in params.values() for x in (value if isinstance(value, (tuple, list)) else (value,))]
    return [x for x in listed if isinstance(x, (ClosedJaxpr, Jaxpr))]


def _has_kernel(program: Any) -> bool:
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    return any(x.primitive.name == "pallas_call" or any(map(_has_kernel, _programs(x.params))) for x in jaxpr.eqns)
