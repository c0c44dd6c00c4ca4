"""Tools from typed functions: their schemas, the check of arguments, and the limits of a call."""

import json
import threading
import time
from collections.abc import Sequence
from typing import Any, Literal

import pytest

from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import ImagePart, Message, ToolCall, tool_result
from agentrl_jax.tools import Tool, ToolOutput, tool
from agentrl_jax.tools.json_schema import coerce_text, is_tool_schema, violation


def search(
    query: str,
    limit: int = 3,
    order: Literal["new", "old"] = "new",
    tags: list[str] | None = None,
    weights: dict[str, float] = {},  # noqa: B006
    exact: bool = False,
    anything: Any = None,
) -> str:
    """Search the shop.

    It finds what
    is sold.

    Args:
        query: what to look for,
            in words
        limit (int): of results
        order: newest or
            oldest: first

    Returns:
        what was found
    """
    return f"{query} {limit} {order} {tags} {weights} {exact}"


def call_with(**arguments: Any) -> ToolCall:
    return ToolCall("", "search", json.dumps(arguments))


def test_a_typed_function_with_a_docstring_is_a_tool():
    assert tool(search).schema == {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search the shop. It finds what is sold.",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "what to look for, in words"},
                    "limit": {"type": "integer", "description": "of results"},
                    "order": {
                        "enum": ["new", "old"],
                        "type": "string",
                        "description": "newest or oldest: first",
                    },
                    "tags": {
                        "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]
                    },
                    "weights": {"type": "object", "additionalProperties": {"type": "number"}},
                    "exact": {"type": "boolean"},
                    "anything": {},
                },
                "required": ["query"],
                "additionalProperties": False,
            },
        },
    }
    json.dumps(tool(search).schema)


def test_a_method_is_a_tool_without_its_self():
    class Shop:
        name = "ours"

        def ask(self, names: Sequence[int]) -> str:
            """Ask."""
            return f"{self.name} {sum(names)}"

    ask = tool(Shop().ask, seconds=1.0, max_characters=9)
    assert list(ask.parameters["properties"]) == ["names"] and ask.seconds == 1
    assert ask.run(ToolCall("", "ask", '{"names": [1, 2]}')) == ToolOutput("ours 3")


def test_a_function_may_return_an_output_with_images():
    image = ImagePart("data:image/png;base64,AA==")

    def look() -> ToolOutput:
        """Look."""
        return ToolOutput("x" * 9, True, (image,))

    output = tool(look, max_characters=4).run(ToolCall("", "look", "{}"))
    assert output == ToolOutput("xxxx\n[cut after 4 of 9 characters]", True, (image,))
    message = tool_result(ToolCall("call_0", "look", "{}"), "seen", (image,))
    assert message.images == (image,) and message.text == "seen"
    assert Message.from_dict(message.to_dict()) == message


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, "the call lacks query"),
        ({"query": 3}, "query must be a string, not 3"),
        ({"query": "a", "limit": "3"}, 'limit must be an integer, not "3"'),
        ({"query": "a", "limit": True}, "limit must be an integer, not true"),
        ({"query": "a", "limit": 1.5}, "limit must be an integer, not 1.5"),
        ({"query": "a", "order": "x"}, 'order must be one of "new", "old", not "x"'),
        ({"query": "a", "tags": 3}, "tags must be an array or null"),
        ({"query": "a", "tags": [1]}, "tags must be an array or null"),
        ({"query": "a", "weights": {"b": "x"}}, 'b must be a number, not "x"'),
        ({"query": "a", "exact": None}, "exact must be a boolean, not null"),
        ({"query": "a", "page": 2}, 'the call has no "page": there is query, limit, order'),
        ({"query": ["x" * 200]}, "..."),
    ],
)
def test_wrong_arguments_get_a_message_that_says_what_is_wrong(arguments: Any, error: str):
    output = tool(search).run(call_with(**arguments))
    assert output.is_error and output.text.startswith("Error: ") and error in output.text
    assert len(output.text) < 200


@pytest.mark.parametrize("text", ["{", "[]", "3", "null", '"x"', "[" * 10_000, '{"query": 1e999}'])
def test_arguments_that_are_no_object_get_a_message(text: str):
    assert tool(search).run(ToolCall("", "search", text)).is_error


def test_right_arguments_reach_the_function():
    output = tool(search).run(
        call_with(query="a", tags=["b"], weights={"c": 1}, order="old", anything=[1], exact=True)
    )
    assert output == ToolOutput("a 3 old ['b'] {'c': 1} True")


def returns(value: Any, **limits: Any) -> ToolOutput:
    def give() -> Any:
        """Give."""
        if isinstance(value, BaseException):
            raise value
        return value

    return tool(give, **limits).run(ToolCall("", "give", "{}"))


def test_results_become_text():
    assert returns("é") == ToolOutput("é") and returns(3) == ToolOutput("3")
    assert returns({"a": [1, None]}) == ToolOutput('{"a": [1, null]}')
    assert returns({1, 2}) == ToolOutput("{1, 2}")
    assert returns("a\ud800b") == ToolOutput("a?b")


def test_a_long_result_is_cut_with_a_mark():
    assert returns("x" * 30, max_characters=30) == ToolOutput("x" * 30)
    cut = returns("x" * 31, max_characters=30)
    assert cut.text == "x" * 30 + "\n[cut after 30 of 31 characters]"
    failed = returns(ValueError("y" * 5000))
    assert failed.text.endswith("characters]") and len(failed.text) < 4100


def test_what_a_function_raises_is_a_message_but_failures_of_the_environment_are_raised():
    assert returns(ValueError("no such item")) == ToolOutput(
        "Error: ValueError: no such item", True
    )
    assert returns(SystemExit(3)).text == "Error: SystemExit: 3"
    for error in (EnvironmentFailure("gone"), UserError("set it"), MemoryError()):
        with pytest.raises(type(error)):
            returns(error)


def test_a_late_call_gets_a_message_and_its_thread_ends():
    def spin() -> str:
        """Spin."""
        while True:
            pass

    start = time.monotonic()
    output = tool(spin, seconds=0.1).run(ToolCall("", "spin", "{}"))
    assert output == ToolOutput("Error: spin took longer than 0.1 s", True)
    assert time.monotonic() - start < 2
    deadline = time.monotonic() + 5
    while any("run" in thread.name for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "the thread still runs"
        time.sleep(0.01)


def without_docstring(x: int) -> int:
    return x


def without_type(x) -> int:
    """Double."""
    return 2 * x


def of_no_json_type(x: complex) -> int:
    """Double."""
    return 2


def of_many(*x: int) -> int:
    """Sum."""
    return sum(x)


def of_keywords(**x: int) -> int:
    """Sum."""
    return sum(x.values())


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (without_docstring, "needs a docstring"),
        (without_type, "give each argument a type: x"),
        (of_no_json_type, "x of the tool of_no_json_type has the type"),
        (of_many, "must take x by its name"),
        (of_keywords, "give each argument a type: x"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_a_user_error(function: Any, error: str):
    with pytest.raises(UserError, match=error):
        tool(function)


def test_impossible_limits_are_a_user_error():
    for seconds, characters in ((0.0, 9), (float("inf"), 9), (1.0, 0)):
        with pytest.raises(UserError, match="needs a positive number"):
            tool(search, seconds, characters)
    with pytest.raises(UserError, match="needs a positive number"):
        Tool("x", "X.", {}, search, seconds=-1.0)


def test_schemas_of_other_origin_are_checked_where_they_are_understood():
    assert violation({"a": 1}, {}, "x") is None
    assert violation(3, {"type": ["integer", "null"]}, "x") is None
    assert violation("a", {"type": ["integer", "null"]}, "x") == (
        'x must be an integer or null, not "a"'
    )
    assert violation(3, {"type": "strange", "minimum": 5}, "x") is None
    assert violation({"b": 1}, {"additionalProperties": {"type": "string"}}, "x") == (
        "b must be a string, not 1"
    )


def tool_with(parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


def test_a_tool_schema_from_elsewhere_is_checked():
    assert is_tool_schema(tool(search).schema) and is_tool_schema({"function": {"name": "f"}})
    good = {"type": ["object", "null"], "properties": {"x": {"anyOf": [{"enum": [1]}], "title": 3}}}
    assert is_tool_schema(tool_with(good)) and is_tool_schema(tool_with({}))
    for bad in (
        3,
        {"type": 3},
        {"type": [3]},
        {"properties": []},
        {"properties": {"x": 3}},
        {"properties": {"x": {"anyOf": {}}}},
        {"required": "x"},
        {"items": []},
        {"additionalProperties": []},
        {"enum": 3},
    ):
        assert not is_tool_schema(tool_with(bad)), bad
    deep: Any = {}
    for _ in range(10_000):
        deep = {"items": deep}
    assert not is_tool_schema(tool_with(deep))


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("3", {}, "3"),
        ("3", {"type": "string"}, "3"),
        (" 3 ", {"type": "integer"}, 3),
        ("3.0", {"type": "integer"}, 3),
        ("3.5", {"type": "integer"}, "3.5"),
        ("TRUE", {"type": "boolean"}, True),
        ("None", {"type": "null"}, None),
        ("null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "null"),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ("-1, 2.5", {"type": "array"}, [-1, 2.5]),
        ("(1, x)", {"type": "array"}, "(1, x)"),
        ("Infinity", {"type": "number"}, "Infinity"),
        ("[" * 10_000, {"type": "array"}, "[" * 10_000),
    ],
)
def test_a_text_becomes_a_value_of_its_schema(text: str, schema: Any, value: Any):
    result = coerce_text(text, schema)
    assert result == value and type(result) is type(value)
