"""FLOPs of a traced program's matrix products, rematerialized ones included."""

import math
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr


def matmul_flops(program: ClosedJaxpr | Jaxpr, attended_fraction: float = 1.0) -> float:
    """FLOPs on all devices together: 2 x batch x rows x columns x contracted size per product.

    A scan counts once per iteration, any other loop once, and of a conditional the branch with the
    most FLOPs. Products inside a kernel are not visible: where a conditional has a plain branch as
    well, as `attention_kernels.attend_rows` has, that one counts instead.

    Args:
        program: `jax.jit(f).trace(...).jaxpr`.
        attended_fraction: the fraction of token pairs that attention kernels compute; the plain
            branch is multiplied by it.
    """
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    return math.fsum(_equation_flops(equation, attended_fraction) for equation in jaxpr.eqns)


def _equation_flops(equation: Any, attended_fraction: float) -> float:
    name, inner = equation.primitive.name, _inner_jaxprs(equation.params)
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        left, out = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
        return 2.0 * math.prod(out) * math.prod(left[i] for i in contracted)
    if name == "pallas_call":
        return 0.0
    if name == "cond":
        plain = [x for x in inner if not _has_pallas_call(x)]
        has_kernel = len(plain) < len(inner)
        largest = max(matmul_flops(x, attended_fraction) for x in plain or inner)
        return largest * (attended_fraction if has_kernel else 1.0)
    repeats = equation.params["length"] if name == "scan" else 1
    if name == "shard_map":
        axes = equation.params["newly_manual_axes"]
        repeats = math.prod(equation.params["mesh"].shape[axis] for axis in axes)
    return repeats * math.fsum(matmul_flops(x, attended_fraction) for x in inner)


def _inner_jaxprs(params: dict[str, Any]) -> list[Any]:
    """The jaxprs among an equation's parameters."""
    values = [
        x
        for value in params.values()
        for x in (value if isinstance(value, (tuple, list)) else (value,))
    ]
    return [x for x in values if isinstance(x, (ClosedJaxpr, Jaxpr))]


def _has_pallas_call(program: Any) -> bool:
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    return any(
        x.primitive.name == "pallas_call" or any(map(_has_pallas_call, _inner_jaxprs(x.params)))
        for x in jaxpr.eqns
    )
