"""OpenAI's completions as they arrive: what a request for a chat's next message, or for the rest of a text, asks for; what is refused."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from agentrl_jax.messages import Message, Role, ToolCall
from agentrl_jax.trajectories import Call

CHOICES = 16  # that a request may ask for
STOPS = 4  # stop strings of a request, as OpenAI allows
WRITTEN = 16  # tokens of a text's completion that names no number, as OpenAI has it
# What would change the sampling and is not there: allowed only where it says that nothing is wanted.
NEUTRAL: Mapping[str, Sequence[Any]] = {
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "logit_bias": (None, {}),
}
NEUTRAL_OF_CHATS: Mapping[str, Sequence[Any]] = {
    **NEUTRAL,
    "top_logprobs": (None, 0),
    "response_format": (None, {"type": "text"}),
    "parallel_tool_calls": (None, True),
    "service_tier": (None, "auto", "default"),
    "store": (None, False),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "functions": (None, []),
    "function_call": (None, "auto", "none"),
}
NEUTRAL_OF_TEXTS: Mapping[str, Sequence[Any]] = {
    **NEUTRAL,
    "repetition_penalty": (None, 1),
    "best_of": (None, 1),
    "echo": (None, False),
    "suffix": (None, ""),
    "add_special_tokens": (None, False),
    "skip_special_tokens": (None, False),
}
TAGS = ("user", "metadata", "safety_identifier", "prompt_cache_key")  # for the accounts of whoever serves, not for the model
MESSAGE = {"role", "content", "tool_calls", "tool_call_id"}
UNSAID = {"refusal", "annotations", "audio", "function_call", "name"}  # of a message; only empty


class Refused(Exception):
    """A request that is answered with an OpenAI error body."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    def body(self) -> dict[str, Any]:
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


@dataclass(frozen=True)
class Asked:
    """A request; None: as the run's agent would."""

    model: str
    messages: tuple[Message, ...] = ()
    prompt: str | tuple[int, ...] | None = None  # the text, or its ids, that is to go on; None: the request is for a chat's next message
    tools: tuple[dict[str, Any], ...] = ()
    calls_tools: bool = False  # whether tool calls are looked for in what is written
    budget: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    own_stops: bool = False  # the run's stop ids do not end it
    seed: int | None = None
    n: int = 1
    logprobs: bool = False
    token_ids: bool = False  # whether the answer tells them
    stream: bool = False
    stream_usage: bool = False


@dataclass(frozen=True, eq=False)
class Choice:
    """One answer, as its program sees it."""

    call: Call
    message: Message
    finish_reason: str
    tokens: tuple[str, ...]  # each of the action's tokens as text


def asked(body: Any) -> Asked:
    """What a request for a chat's next message asks for. Raises Refused where that is not there, and where it is no request."""
    rest = _rest(body, NEUTRAL_OF_CHATS)
    tools, calls_tools = _tools(rest.pop("tools", None), rest.pop("tool_choice", None))
    longest = [_number(rest, name, int, 1) for name in ("max_completion_tokens", "max_tokens")]
    if None not in longest:
        raise Refused("give max_completion_tokens or max_tokens, not both", "max_tokens")
    found = Asked(
        messages=_messages(rest.pop("messages", None)),
        tools=tools,
        calls_tools=calls_tools,
        budget=next((n for n in longest if n is not None), None),
        top_k=_number(rest, "top_k", int, 0),
        logprobs=_flag(rest, "logprobs"),
        **_settings(rest),
    )
    return _finished(found, rest)


def asked_text(body: Any) -> Asked:
    """What a request for the rest of a text asks for; some fields are vLLM's. Raises Refused as `asked`."""
    rest = _rest(body, NEUTRAL_OF_TEXTS)
    top_k = _number(rest, "top_k", int, -1)
    if (logprobs := rest.pop("logprobs", None)) not in (None, 0) or isinstance(logprobs, bool):
        raise Refused("logprobs must be 0 here: those of the sampled tokens alone are known", "logprobs", "unsupported_parameter")
    found = Asked(
        prompt=_prompt(rest.pop("prompt", None)),
        budget=_number(rest, "max_tokens", int, 1) or WRITTEN,
        top_k=None if top_k is None else max(top_k, 0),
        stop_ids=_ids(rest.pop("stop_token_ids", None) or [], "stop_token_ids"),
        own_stops=_flag(rest, "ignore_eos"),
        logprobs=logprobs is not None,
        token_ids=_flag(rest, "return_token_ids"),
        **_settings(rest),
    )
    return _finished(found, rest)


def _rest(body: Any, neutral: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The fields that say something."""
    if not isinstance(body, dict):
        raise Refused("the body must be a JSON object")
    rest = dict(body)
    for name, allowed in neutral.items():
        value = rest.pop(name, None)
        if not any(value == one and type(value) in (type(one), float) for one in allowed):
            raise Refused(f"{name}={value!r:.80} is not supported here: leave it out", name, "unsupported_parameter")
    for name in TAGS:
        rest.pop(name, None)
    return rest


def _settings(rest: dict[str, Any]) -> dict[str, Any]:
    """What chats and texts have in common."""
    stream, options = _flag(rest, "stream"), rest.pop("stream_options", None)
    if options is not None and (not stream or not isinstance(options, dict) or options.keys() - {"include_usage"}):
        raise Refused("stream_options go with stream=true and hold include_usage alone", "stream_options")
    return {
        "model": _text(rest.pop("model", None), "model"),
        "temperature": _number(rest, "temperature", float, 0, 100),
        "top_p": _number(rest, "top_p", float, 1e-6, 1),
        "min_p": _number(rest, "min_p", float, 0, 1),
        "stop": _stop(rest.pop("stop", None)),
        "seed": _number(rest, "seed", int, -(2**63), 2**63),
        "n": _number(rest, "n", int, 1, CHOICES) or 1,
        "stream": stream,
        "stream_usage": _flag(dict(options or {}), "include_usage"),
    }


def _finished(found: Asked, rest: dict[str, Any]) -> Asked:
    if rest:
        name = min(rest)
        raise Refused(f"the parameter {name:.80} is not known here: leave it out", name[:80], "unknown_parameter")
    return found


def _prompt(value: Any) -> str | tuple[int, ...]:
    """A text or its ids; a list of one such prompt is taken for it."""
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], int):
        (value,) = value
    prompt = _text(value, "prompt") if isinstance(value, str) else _ids(value, "prompt")
    if not prompt:
        raise Refused("the prompt must hold at least one token", "prompt")
    return prompt


def _ids(value: Any, name: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i < 2**31 for i in value):
        wanted = "one text, or one list of token ids" if name == "prompt" else "a list of token ids"
        raise Refused(f"{name} must be {wanted}", name)
    return tuple(value)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise Refused(f"{name} must be a text", name)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refused(f"{name} must be Unicode that can be encoded", name) from None
    return value


def _flag(rest: dict[str, Any], name: str) -> bool:
    value = rest.pop(name, None)
    if value not in (None, True, False) or (isinstance(value, int | float) and not isinstance(value, bool)):
        raise Refused(f"{name} must be true or false", name)
    return bool(value)


def _number(rest: dict[str, Any], name: str, kind: type, low: int | float, high: int | float = 2**31 - 1) -> Any:
    value = rest.pop(name, None)
    if value is None:
        return None
    right = isinstance(value, int) if kind is int else isinstance(value, int | float)
    if isinstance(value, bool) or not right or not low <= value <= high:
        raise Refused(f"{name} must be {'a whole number' if kind is int else 'a number'} from {low} to {high}, not {value!r:.40}", name)
    return kind(value)


def _stop(value: Any) -> tuple[str, ...]:
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > STOPS or "" in stops:
        raise Refused(f"stop must be one to {STOPS} texts that are not empty", "stop")
    return tuple(_text(stop, "stop") for stop in stops)


def _tools(tools: Any, choice: Any) -> tuple[tuple[dict[str, Any], ...], bool]:
    if tools is None or tools == []:
        if choice not in (None, "none", "auto"):
            raise Refused("tool_choice needs tools", "tool_choice")
        return (), False
    if choice not in (None, "auto", "none"):
        raise Refused("tool_choice must be auto or none: a call cannot be forced here", "tool_choice", "unsupported_parameter")
    right = isinstance(tools, list) and all(
        isinstance(tool, dict) and tool.get("type") == "function" and isinstance(tool.get("function"), dict)
        and isinstance(tool["function"].get("name"), str) for tool in tools
    )  # fmt: skip
    if not right:
        raise Refused('tools must be of the form {"type": "function", "function": {"name": ..., "parameters": ...}}', "tools")
    _text(json.dumps(tools, ensure_ascii=False), "tools")
    return tuple(tools), choice != "none"


def _messages(value: Any) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        raise Refused("messages must be a list of at least one message", "messages")
    return tuple(_message(one, f"messages[{i}]") for i, one in enumerate(value))


def _message(data: Any, where: str) -> Message:
    if not isinstance(data, dict):
        raise Refused(f"{where} must be an object", where)
    role: Any = "system" if data.get("role") == "developer" else data.get("role")
    if role not in get_args(Role):
        raise Refused(f"{where}.role must be system, developer, user, assistant or tool", f"{where}.role")
    for name in data.keys() - MESSAGE:  # of a tool's answer the name is that of the function it answers for, which its call names too
        if name not in UNSAID or (data[name] not in (None, []) and not (name == "name" and role == "tool")):
            raise Refused(f"{where}.{name:.40} is not supported here: leave it out", f"{where}.{name[:40]}", "unsupported_parameter")
    answers = data.get("tool_call_id")
    return Message(
        role, _content(data.get("content"), f"{where}.content"), _tool_calls(data.get("tool_calls"), f"{where}.tool_calls"),
        None if answers is None else _text(answers, f"{where}.tool_call_id"),
    )  # fmt: skip


def _content(value: Any, where: str) -> str:
    parts = [] if value is None else [{"type": "text", "text": value}] if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, dict) and part.get("type") == "text" for part in parts):
        raise Refused(f"{where} must be a text, or a list of text parts: images are not shown here", where)
    return "".join(_text(part.get("text"), where) for part in parts)


def _tool_calls(value: Any, where: str) -> tuple[ToolCall, ...]:
    if value is None:
        return ()
    try:
        called = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in value]
        return tuple(ToolCall(*(_text(part, where) for part in call)) for call in called)
    except (KeyError, TypeError):
        raise Refused(f"{where} must be function calls with id, name and arguments", where) from None


def before_stop(text: str, stops: Sequence[str]) -> str:
    """The text up to its first stop string."""
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]
