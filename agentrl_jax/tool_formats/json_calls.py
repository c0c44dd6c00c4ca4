"""Tool calls written as JSON: Hermes' (Qwen, too) and Llama 3's."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentrl_jax.messages import ToolCall, ToolSchema
from agentrl_jax.tool_formats.tool_format import (
    MalformedCall,
    ParsedCalls,
    arguments_of,
    decode_json,
    make_call,
    malformed_call,
    parsed_calls,
    read_call,
)

_START, _END = "<tool_call>", "</tool_call>"
_PYTHON_TAG = "<|python_tag|>"
# An object whose first key is a call's is meant as a call, even where it is not complete.
_LLAMA_CALL = re.compile(r'\s*\{\s*"(?:name|type|function|parameters)"')


@dataclass(frozen=True)
class HermesToolFormat:
    """`<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>`, as Qwen 2.5, Qwen 3 and
    Hermes write it.
    """

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedCalls:
        content: list[str] = []
        calls: list[ToolCall] = []
        position = 0
        while (start := text.find(_START, position)) >= 0:
            content.append(text[position:start])
            body = start + len(_START)
            end = text.find(_END, body)
            if end < 0:
                calls.append(malformed_call(text[start:], f"it does not end in {_END}"))
                position = len(text)
                break
            calls.append(read_call(text[body:end], _read_json_call))
            position = end + len(_END)
        return parsed_calls("".join([*content, text[position:]]), calls)

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        bodies = [_json_text(call, "arguments") for call in calls]
        return _after_content(content, "\n".join(f"{_START}\n{body}\n{_END}" for body in bodies))


@dataclass(frozen=True)
class LlamaToolFormat:
    """`{"name": "add", "parameters": {"a": 1}}`, as Llama 3.1 and later write it.

    Several calls are separated by ";". Text may stand before `<|python_tag|>`, which begins the
    calls; without it the calls are the whole message.
    """

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedCalls:
        content, tag, body = text.partition(_PYTHON_TAG)
        if not tag:
            if not _LLAMA_CALL.match(text):
                return ParsedCalls(text)
            content, body = "", text
        return parsed_calls(content, self._read_calls(body.strip()))

    def _read_calls(self, body: str) -> list[ToolCall]:
        calls: list[ToolCall] = []
        position = 0
        while True:
            try:
                value, end = decode_json(body, position)
            except MalformedCall as error:
                return [*calls, malformed_call(body[position:], str(error))]
            calls.append(read_call(body[position:end], lambda _: _call_of_object(value)))  # noqa: B023
            separator = _SEPARATOR.match(body, end)
            if separator is None:
                if end < len(body):
                    error = "calls must be separated by ; and nothing may follow them"
                    calls.append(malformed_call(body[end:], error))
                return calls
            position = separator.end()

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        body = "; ".join(_json_text(call, "parameters") for call in calls)
        return f"{content}{_PYTHON_TAG}{body}" if content and body else content or body


_SEPARATOR = re.compile(r"\s*;\s*(?=\S)")


def _read_json_call(text: str) -> ToolCall:
    text = text.strip()
    value, end = decode_json(text)
    if end < len(text):
        raise MalformedCall("text follows the JSON object")
    return _call_of_object(value)


def _call_of_object(value: object) -> ToolCall:
    """{"name": ..., "arguments": {...}}; Llama 3 says "parameters"."""
    if not isinstance(value, dict):
        raise MalformedCall('a call must be an object with "name" and "arguments"')
    if "name" not in value:
        raise MalformedCall('the object has no "name"')
    return make_call(value["name"], value.get("arguments", value.get("parameters", {})))


def _json_text(call: ToolCall, key: str) -> str:
    arguments_of(call)
    return f'{{"name": {json.dumps(call.name, ensure_ascii=False)}, "{key}": {call.arguments}}}'


def _after_content(content: str, calls: str) -> str:
    return "\n".join(filter(None, [content, calls]))
