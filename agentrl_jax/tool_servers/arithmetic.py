"""`calculate`: the value of an arithmetic expression, as a tool."""

import ast
import operator
from collections.abc import Callable
from typing import Any

from agentrl_jax.syntax_trees import parse_expression

MAX_CHARACTERS = 1000
MAX_BITS = 10_000  # of a whole number
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def calculate(expression: str) -> int | float:
    """Calculate: numbers, parentheses and + - * / // % **.

    Args:
        expression: such as (2+3)*4.5
    """
    if len(expression) > MAX_CHARACTERS:
        raise ValueError(f"an expression has at most {MAX_CHARACTERS:,} characters")
    try:
        return _value(parse_expression(expression.strip()))
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError("this is no expression of numbers, parentheses and + - * / // % **") from (
            None
        )


def _value(node: ast.expr) -> int | float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_value(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a, b = _value(left), _value(right)
            if isinstance(op, ast.Pow):
                _check_power(a, b)
            result = _BINARY[type(op)](a, b)
            if isinstance(result, complex):
                raise ValueError("the result is no real number")
            if isinstance(result, int) and result.bit_length() > MAX_BITS:
                raise ValueError("the result has too many digits")
            return result
    raise SyntaxError("an expression has numbers and operators alone")


def _check_power(base: int | float, exponent: int | float) -> None:
    is_whole = isinstance(base, int) and isinstance(exponent, int)
    if is_whole and abs(exponent) * max(int(base).bit_length(), 1) > MAX_BITS:
        raise ValueError("the result has too many digits")
