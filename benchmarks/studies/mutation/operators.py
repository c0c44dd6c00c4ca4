"""The changes that make mutants: a selection of cosmic-ray's operators, and two of ours for array
programs.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.operators.provider import OperatorProvider
from parso.python.tree import Name, PythonNode

Position = tuple[tuple[int, int], tuple[int, int]]

# Of cosmic-ray's replacements, those that leave a program of the same types: a sum in place of a
# difference, not a shift in place of a sum, which any test would notice.
COSMIC_RAY = (
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul")),
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("FloorDiv_Mul", "Mod_FloorDiv", "Pow_Mul")),
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("BitAnd_BitOr", "BitOr_BitAnd")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Eq_NotEq", "NotEq_Eq", "Is_IsNot")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt")),
    "ReplaceComparisonOperator_IsNot_Is",
    *(f"ReplaceUnaryOperator_Delete_{name}" for name in ("USub", "Not", "Invert")),
    *("AddNot", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "NumberReplacer", "ZeroIterationForLoop"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak"),
)

OPPOSITES = {
    "all": "any",
    "argmax": "argmin",
    "ceil": "floor",
    "issubset": "issuperset",
    "logical_and": "logical_or",
    "max": "min",
    "maximum": "minimum",
    "ones": "zeros",
    "ones_like": "zeros_like",
}
OPPOSITES |= {value: key for key, value in OPPOSITES.items()}


class ReplaceFunctionWithOpposite(Operator):
    """The function or method that is called, in place of its opposite: `max` for `min`."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        if isinstance(node, Name) and node.value in OPPOSITES and _is_called(node):
            if _makes_nothing(node):
                return
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        node.value = OPPOSITES[node.value]
        return node

    @classmethod
    def examples(cls) -> Iterable[Example]:
        return (Example("x = np.maximum(a, b)", "x = np.minimum(a, b)"),)


class RemoveStopGradient(Operator):
    """The argument of `jax.lax.stop_gradient`, with its gradient."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        if isinstance(node, PythonNode) and node.type == "atom_expr":
            *function, arguments = [child.get_code(include_prefix=False) for child in node.children]
            if "".join(function) == "jax.lax.stop_gradient" and arguments.startswith("("):
                yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        node.children = node.children[-1:]
        return node

    @classmethod
    def examples(cls) -> Iterable[Example]:
        return (Example("x = jax.lax.stop_gradient(y + z)", "x =(y + z)"),)


def _is_called(name: Name) -> bool:
    """Whether arguments follow: `min(...)`, `np.minimum(...)`, `np.minimum.at(...)`."""
    leaf = name.get_next_leaf()
    if leaf is not None and leaf.value == ".":
        leaf = leaf.get_next_leaf().get_next_leaf()
    return leaf is not None and leaf.value == "("


def _makes_nothing(name: Name) -> bool:
    """Whether no element is made: `np.zeros(0, bool)`, which is `np.ones(0, bool)`."""
    bracket: Any = name.get_next_leaf()  # `_is_called` has found it
    size = bracket.get_next_leaf()
    return name.value in ("ones", "zeros") and bracket.value == "(" and size.value == "0"


def operators() -> dict[str, Operator]:
    """All operators by name."""
    provider = OperatorProvider()
    return {name: provider[name]() for name in COSMIC_RAY} | {
        operator.__name__: operator()
        for operator in (ReplaceFunctionWithOpposite, RemoveStopGradient)
    }
