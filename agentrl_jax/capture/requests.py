"""Requests of OpenAI's completions, of chats and of texts: how they are parsed and validated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl_jax.capture.api_error import APIError
from agentrl_jax.capture.chat_messages import parse_messages, parse_tools
from agentrl_jax.capture.request_fields import parse_ids, parse_string, pop_flag, pop_number
from agentrl_jax.messages import Message
from agentrl_jax.trajectories import Call

MAX_CHOICES = 16  # of a request
MAX_STOP_STRINGS = 4  # stop strings of a request, as OpenAI allows
DEFAULT_MAX_TOKENS = 16  # of completions of text, as in OpenAI's API
# Unsupported parameters that would change the sampling; only these neutral values are allowed.
NEUTRAL_VALUES: Mapping[str, Sequence[Any]] = {
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "logit_bias": (None, {}),
}
CHAT_NEUTRAL_VALUES: Mapping[str, Sequence[Any]] = {
    **NEUTRAL_VALUES,
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
TEXT_NEUTRAL_VALUES: Mapping[str, Sequence[Any]] = {
    **NEUTRAL_VALUES,
    "repetition_penalty": (None, 1),
    "best_of": (None, 1),
    "echo": (None, False),
    "suffix": (None, ""),
    "add_special_tokens": (None, False),
    "skip_special_tokens": (None, False),
}
# For the accounting of API providers, not for the model.
IGNORED_FIELDS = ("user", "metadata", "safety_identifier", "prompt_cache_key")


@dataclass(frozen=True)
class CompletionRequest:
    """A request; None stands for the agent's own setting."""

    model: str
    messages: tuple[Message, ...] = ()
    prompt: str | tuple[int, ...] | None = None  # the text to complete, or its ids; None: a chat
    tools: tuple[dict[str, Any], ...] = ()
    parse_tool_calls: bool = False  # whether the completion is searched for tool calls
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False  # whether the agent's stop ids are not used
    seed: int | None = None
    n: int = 1
    logprobs: bool = False
    return_token_ids: bool = False
    stream: bool = False
    stream_usage: bool = False


@dataclass(frozen=True, eq=False)
class CompletionChoice:
    """One choice of a completion, as its program gets it."""

    call: Call
    message: Message
    finish_reason: str
    tokens: tuple[str, ...]  # each of the action's tokens as text


def parse_chat_request(body: Any) -> CompletionRequest:
    """Parse a request for a chat's next message.

    Raises:
        APIError: it is invalid, or asks for what is not supported.
    """
    fields = _requested_fields(body, CHAT_NEUTRAL_VALUES)
    tools, parse_tool_calls = parse_tools(
        fields.pop("tools", None), fields.pop("tool_choice", None)
    )
    limits = [pop_number(fields, name, int, 1) for name in ("max_completion_tokens", "max_tokens")]
    if None not in limits:
        raise APIError("give max_completion_tokens or max_tokens, not both", "max_tokens")
    request = CompletionRequest(
        messages=parse_messages(fields.pop("messages", None)),
        tools=tools,
        parse_tool_calls=parse_tool_calls,
        max_tokens=next((n for n in limits if n is not None), None),
        top_k=pop_number(fields, "top_k", int, 0),
        logprobs=pop_flag(fields, "logprobs"),
        **_shared_settings(fields),
    )
    return _reject_unknown(request, fields)


def parse_text_request(body: Any) -> CompletionRequest:
    """Parse a request for the completion of a text; some fields are vLLM's.

    Raises:
        APIError: it is invalid, or asks for what is not supported.
    """
    fields = _requested_fields(body, TEXT_NEUTRAL_VALUES)
    top_k = pop_number(fields, "top_k", int, -1)
    if (logprobs := fields.pop("logprobs", None)) not in (None, 0) or isinstance(logprobs, bool):
        raise APIError(
            "logprobs must be 0 here: those of the sampled tokens alone are known",
            "logprobs",
            "unsupported_parameter",
        )
    request = CompletionRequest(
        prompt=_prompt(fields.pop("prompt", None)),
        max_tokens=pop_number(fields, "max_tokens", int, 1) or DEFAULT_MAX_TOKENS,
        top_k=None if top_k is None else max(top_k, 0),
        stop_ids=parse_ids(fields.pop("stop_token_ids", None) or [], "stop_token_ids"),
        ignore_eos=pop_flag(fields, "ignore_eos"),
        logprobs=logprobs is not None,
        return_token_ids=pop_flag(fields, "return_token_ids"),
        **_shared_settings(fields),
    )
    return _reject_unknown(request, fields)


def _requested_fields(body: Any, neutral: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The fields that may change the completion."""
    if not isinstance(body, dict):
        raise APIError("the body must be a JSON object")
    fields = dict(body)
    for name, allowed in neutral.items():
        value = fields.pop(name, None)
        if not any(value == x and type(value) in (type(x), float) for x in allowed):
            raise APIError(
                f"{name}={value!r:.80} is not supported here: leave it out",
                name,
                "unsupported_parameter",
            )
    for name in IGNORED_FIELDS:
        fields.pop(name, None)
    return fields


def _shared_settings(fields: dict[str, Any]) -> dict[str, Any]:
    """The parameters that chats and texts have in common."""
    stream, options = pop_flag(fields, "stream"), fields.pop("stream_options", None)
    if options is not None and (
        not stream or not isinstance(options, dict) or options.keys() - {"include_usage"}
    ):
        raise APIError(
            "stream_options go with stream=true and hold include_usage alone", "stream_options"
        )
    return {
        "model": parse_string(fields.pop("model", None), "model"),
        "temperature": pop_number(fields, "temperature", float, 0, 100),
        "top_p": pop_number(fields, "top_p", float, 1e-6, 1),
        "min_p": pop_number(fields, "min_p", float, 0, 1),
        "stop": _stop(fields.pop("stop", None)),
        "seed": pop_number(fields, "seed", int, -(2**63), 2**63),
        "n": pop_number(fields, "n", int, 1, MAX_CHOICES) or 1,
        "stream": stream,
        "stream_usage": pop_flag(dict(options or {}), "include_usage"),
    }


def _reject_unknown(request: CompletionRequest, fields: dict[str, Any]) -> CompletionRequest:
    if fields:
        name = min(fields)
        raise APIError(
            f"the parameter {name:.80} is not known here: leave it out",
            name[:80],
            "unknown_parameter",
        )
    return request


def _prompt(value: Any) -> str | tuple[int, ...]:
    """A text or its ids; a list of one prompt counts as that prompt."""
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], int):
        (value,) = value
    prompt = parse_string(value, "prompt") if isinstance(value, str) else parse_ids(value, "prompt")
    if not prompt:
        raise APIError("the prompt must hold at least one token", "prompt")
    return prompt


def _stop(value: Any) -> tuple[str, ...]:
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > MAX_STOP_STRINGS or "" in stops:
        raise APIError(f"stop must be one to {MAX_STOP_STRINGS} texts that are not empty", "stop")
    return tuple(parse_string(stop, "stop") for stop in stops)


def truncate_at_stop(text: str, stops: Sequence[str]) -> str:
    """The text up to its first stop string."""
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]
