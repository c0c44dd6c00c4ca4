"""Tool calls written as a list of Python calls."""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentrl_jax.messages import ToolCall, ToolSchema
from agentrl_jax.syntax_trees import parse_expression
from agentrl_jax.tool_formats.tool_format import (
    MalformedCall,
    ParsedCalls,
    arguments_of,
    make_call,
    malformed_call,
    parsed_calls,
    properties_of,
)

# A list of calls begins a line.
_START = re.compile(r"^[ \t]*\[(?=\s*[A-Za-z_][\w.]*\s*\()", re.MULTILINE)
_BRACKETS_AND_STRINGS = re.compile(
    r"""(?P<open>[\[({])|(?P<close>[\])}])"""
    r"""|'{3}(?:[^\\']|\\.|'(?!''))*+'{3}|"{3}(?:[^\\"]|\\.|"(?!""))*+"{3}"""
    r"""|'(?:[^\\'\n]|\\.)*+'|"(?:[^\\"\n]|\\.)*+"|(?P<quote>['"])""",
    re.DOTALL,
)
MAX_DEPTH = 32  # brackets within brackets; the parser's time may grow with it


@dataclass(frozen=True)
class PythonListToolFormat:
    """`[add(a=1, b=2), search(query="red")]`, as Llama 3.2 and BFCL (Gorilla) write it.

    Values are Python literals. Arguments without a name are matched to the schema's, in order.
    """

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedCalls:
        match = _START.search(text)
        if match is None:
            return ParsedCalls(text)
        start = match.end() - 1
        try:
            end = _closing_bracket(text, start)
            calls = [_read(node, tools) for node in _call_nodes(text[start:end])]
        except MalformedCall as error:
            return parsed_calls(text[:start], [malformed_call(text[start:], str(error))])
        return parsed_calls(text[:start] + text[end:], calls)

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        texts = [f"[{', '.join(map(_call_text, calls))}]"] if calls else []
        return "\n".join([*filter(None, [content]), *texts])


def _closing_bracket(text: str, start: int) -> int:
    """The position after the bracket that closes the one at `start`."""
    depth = 0
    for match in _BRACKETS_AND_STRINGS.finditer(text, start):
        if match["quote"]:
            raise MalformedCall("a string is not closed")
        depth += bool(match["open"]) - bool(match["close"])
        if depth > MAX_DEPTH:
            raise MalformedCall("it is nested too deep")
        if depth == 0:
            return match.end()
    raise MalformedCall("the list of calls does not end in ]")


def _call_nodes(text: str) -> list[ast.expr]:
    """The elements of a list."""
    try:
        body = parse_expression(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error) or "it is too complex"
        raise MalformedCall(f"this is not valid Python: {reason}") from None
    if not isinstance(body, ast.List):
        raise MalformedCall("calls must be written as [name(argument=value)]")
    return body.elts


def _read(node: ast.expr, tools: Sequence[ToolSchema]) -> ToolCall:
    try:
        if not isinstance(node, ast.Call):
            raise MalformedCall("it must be a call: name(argument=value)")
        name = _dotted_name(node.func)
        names = list(properties_of(name, tools))
        if len(node.args) > len(names):
            raise MalformedCall("every argument needs a name: name(argument=value)")
        arguments = {key: _literal(value) for key, value in zip(names, node.args)}
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg in arguments:
                raise MalformedCall(f"the argument {keyword.arg or '**'} is ambiguous")
            arguments[keyword.arg] = _literal(keyword.value)
        return make_call(name, arguments)
    except MalformedCall as error:
        return malformed_call(_source(node), str(error))


def _dotted_name(node: ast.expr) -> str:
    """`f` or `module.f`."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise MalformedCall("the function must be a name")
    return ".".join([node.id, *reversed(parts)])


def _literal(node: ast.expr) -> Any:
    try:
        return _with_lists(ast.literal_eval(node))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise MalformedCall("an argument must be a Python literal with names as keys") from None


def _with_lists(value: Any) -> Any:
    """A literal as JSON data. Raises TypeError where a key is no text."""
    if isinstance(value, list | tuple):
        return list(map(_with_lists, value))
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a key must be a text")
        return {key: _with_lists(item) for key, item in value.items()}
    return value


def _source(node: ast.expr) -> str:
    try:
        return ast.unparse(node)
    except (RecursionError, ValueError):
        return ""


def _call_text(call: ToolCall) -> str:
    arguments = (f"{name}={value!r}" for name, value in arguments_of(call).items())
    return f"{call.name}({', '.join(arguments)})"
