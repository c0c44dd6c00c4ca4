"""The tools that a server offers: the calculator, functions by name, and wrong names."""

import math

import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.messages import ToolCall
from agentrl_jax.sandbox.ladder import SandboxConfig
from agentrl_jax.tool_servers.arithmetic import calculate
from agentrl_jax.tool_servers.served_tools import make_tools
from agentrl_jax.tools import ToolOutput, tool


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2+3*4", 14), ("(2+3)*4.5", 22.5), ("-7//2", -4), ("-7%5", 3), ("2**-1", 0.5),
        (" 1e3 ", 1000.0), ("2**100", 2**100), ("--1", 1), ("7/2", 3.5),
    ],
)  # fmt: skip
def test_an_expression_has_its_value(expression: str, value: float):
    assert calculate(expression) == value


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "no expression"),
        ("2+", "no expression"),
        ("__import__('os')", "no expression"),
        ("True+1", "no expression"),
        ("1j", "no expression"),
        ("'a'*9", "no expression"),
        ("(lambda: 1)()", "no expression"),
        ("9**9**9", "too many digits"),
        ("2**9999*2**9999", "too many digits"),
        ("(-8)**0.5", "no real number"),
        ("(" * 500 + "1" + ")" * 499, "no expression"),
        ("1+" * 5000 + "1", "at most 1,000 characters"),
        ("1/0", "division by zero"),
    ],
)
def test_what_is_no_calculation_is_an_error_at_once(expression: str, message: str):
    with pytest.raises((ValueError, ZeroDivisionError), match=message):
        calculate(expression)


def half(number: float) -> float:
    """Halve a number."""
    return number / 2


HALF = tool(half)
NOTHING = None


def test_tools_are_named():
    names = ("calculator", f"{__name__}:HALF")
    calculator, halve = make_tools(names, SandboxConfig(), False, seconds=2.0, max_characters=9)
    assert (calculator.name, calculator.seconds, calculator.max_characters) == ("calculate", 2, 9)
    assert halve is HALF
    (sine,) = make_tools((f"{__name__}:half",), SandboxConfig(), False)
    assert sine.run(ToolCall("", "half", '{"number": 3}')) == ToolOutput("1.5")
    assert math.isclose(float(sine.run(ToolCall("", "half", '{"number": 1e-3}')).text), 5e-4)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "needs tools of different names, not none"),
        (("calculator", "calculator"), "different names, not calculate, calculate"),
        (("nothing",), "there is no tool 'nothing'"),
        ((":half",), "there is no tool ':half'"),
        (("no_such_module:f",), "whose module is on PYTHONPATH"),
        (("math:nothing",), "there is no tool 'math:nothing'"),
        (("math:pi",), "neither a function nor a Tool"),
        ((f"{__name__}:NOTHING",), "neither a function nor a Tool"),
        (("os:system",), "needs a docstring|must give each argument a type|must take"),
    ],
)
def test_a_wrong_name_is_one_sentence(names: tuple[str, ...], message: str):
    with pytest.raises(UserError, match=message):
        make_tools(names, SandboxConfig(), False)
