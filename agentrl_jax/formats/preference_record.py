"""A preference record, one line of a JSONL file, and its group of two trajectories.

OpenAI's form:
    {"input": {"messages": [...], "tools": [...]},
     "preferred_output": [{"role": "assistant", ...}], "non_preferred_output": [...]}
Hugging Face's form, of which TRL is the best known reader; each value is a list of messages or a
text, and messages may instead all stand in `chosen` and `rejected`, the prompt being what they
share:
    {"prompt": [...], "chosen": [...], "rejected": [...], "tools": [...]}

The prompt is the opening of both trajectories, the preferred one is first, and the returns are 1
and 0.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax.formats.chat_messages import (
    UNKNOWN_KEY,
    ChatMessage,
    check_order,
    message_record,
    parse_messages,
    parse_tools,
)
from agentrl_jax.formats.chat_record import canonical_json, conversation
from agentrl_jax.formats.field_checks import (
    FieldError,
    check_flag,
    check_keys,
    check_object,
    check_text,
    parse_json,
)
from agentrl_jax.messages import assistant, user
from agentrl_jax.trajectories import Group, Trajectory

OUTPUTS = ("preferred_output", "non_preferred_output")
CHOICES = ("chosen", "rejected")
OPENAI_KEYS = ("input", *OUTPUTS, "task", "metadata")
INPUT_KEYS = ("messages", "tools", "parallel_tool_calls")
HF_KEYS = ("prompt", *CHOICES, "tools", "task", "metadata")


def parse_preference_line(line: str) -> Group:
    """The pair of a line; in OpenAI's form, the line is the `record` of both trajectories.

    Raises:
        FieldError: the line is no preference record; names the field.
    """
    data = check_object(parse_json(line), "")
    keys = HF_KEYS if CHOICES[0] in data else OPENAI_KEYS
    remedy = f"is not a field of a preference record ({', '.join(keys)}); move it into metadata"
    check_keys(data, keys, "", remedy)
    group = preference_pair(data)
    if keys is HF_KEYS:
        return group
    return Group(group.task, tuple(t.replace(record=line) for t in group.trajectories))


def preference_pair(data: Mapping[str, Any]) -> Group:
    """The pair of a parsed record; other keys than those above are not read.

    Raises:
        FieldError: a field is missing or wrong.
    """
    names = CHOICES if CHOICES[0] in data else OUTPUTS
    for name in names:
        if name not in data:
            raise FieldError(name, "is missing")
    prompt, prompt_field, outputs = (_hf_parts if names is CHOICES else _openai_parts)(data)
    source = data if names is CHOICES else check_object(data["input"], "input")
    prefix = "" if names is CHOICES else "input."
    shared = {
        "tools": parse_tools(source.get("tools", []), f"{prefix}tools"),
        "task": check_text(data.get("task", ""), "task"),
    }
    check_flag(source.get("parallel_tool_calls", True), f"{prefix}parallel_tool_calls")
    check_object(data.get("metadata", {}), "metadata")
    opening = [ChatMessage(message, False) for message, _ in prompt]
    trajectories = []
    for name, output, reward in zip(names, outputs, (1.0, 0.0)):
        fields = [
            *(f"{prompt_field}[{i}]" for i in range(len(prompt))),
            *(f"{name}[{i}]" for i in range(len(output))),
        ]
        check_order([message for message, _ in [*opening, *output]], fields)
        if not output or not output[0].is_action:
            raise FieldError(name, "must begin with a message of the assistant that is trained")
        actions = sum(is_action for _, is_action in output)
        rewards = [0.0] * (actions - 1) + [reward]
        trajectories.append(conversation([*opening, *output], fields, rewards, **shared))
    return Group(shared["task"], tuple(trajectories))


# A prompt, where it stands, and the two outputs.
Parts = tuple[Sequence[ChatMessage], str, Sequence[Sequence[ChatMessage]]]


def _openai_parts(data: Mapping[str, Any]) -> Parts:
    if "input" not in data:
        raise FieldError("input", "is missing")
    prompt = check_object(data["input"], "input")
    check_keys(prompt, INPUT_KEYS, "input", UNKNOWN_KEY)
    if "messages" not in prompt:
        raise FieldError("input.messages", "is missing")
    return (
        parse_messages(prompt["messages"], "input.messages"),
        "input.messages",
        [parse_messages(data[name], name) for name in OUTPUTS],
    )


def _hf_parts(data: Mapping[str, Any]) -> Parts:
    prompt = data.get("prompt", [])
    if all(isinstance(data[name], str) for name in CHOICES):
        if not isinstance(prompt, str) or not prompt:
            raise FieldError("prompt", "must be a text where chosen and rejected are texts")
        replies = [assistant(check_text(data[name], name)) for name in CHOICES]
        opening = [ChatMessage(user(check_text(prompt, "prompt")), False)]
        return opening, "prompt", [[ChatMessage(reply, True)] for reply in replies]
    outputs = [parse_messages(data[name], name) for name in CHOICES]
    if isinstance(prompt, list) and prompt:
        return parse_messages(prompt, "prompt"), "prompt", outputs
    shared = _shared_messages(*outputs)
    texts = [message.text for message, _ in outputs[0][:shared] if message.role == "user"]
    if prompt and prompt not in texts:
        raise FieldError("prompt", "is no message that chosen and rejected both begin with")
    return outputs[0][:shared], "chosen", [output[shared:] for output in outputs]


def _shared_messages(first: Sequence[ChatMessage], second: Sequence[ChatMessage]) -> int:
    """The length of the longest common prefix after which an action follows in both."""
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second))
    shared = len(list(pairs))
    while shared and not all(x[shared:] and x[shared].is_action for x in (first, second)):
        shared -= 1
    return shared


def preference_record(preferred: Trajectory, other: Trajectory) -> dict[str, Any]:
    """The record of two trajectories of one group, in OpenAI's form.

    The input is what they share up to the action before which they differ; its messages have no
    weight, since none is trained.

    Raises:
        FieldError: they share no message before an action, or are equal.
    """
    conversations = [_chat_messages(trajectory) for trajectory in (preferred, other)]
    shared = _shared_messages(*conversations)
    if not shared or conversations[0] == conversations[1]:
        raise FieldError("", "a pair needs one prompt and two different answers to it")
    source = json.loads(preferred.record) if preferred.record else {}
    fields = {
        "messages": [message_record(m, is_action=True) for m, _ in conversations[0][:shared]],
        "tools": list(preferred.tools) or None,
        "parallel_tool_calls": source.get("input", source).get("parallel_tool_calls"),
    }
    record = {
        "input": {key: value for key, value in fields.items() if value is not None},
        **{
            name: [message_record(*message) for message in messages[shared:]]
            for name, messages in zip(OUTPUTS, conversations)
        },
        "task": preferred.task or None,
        "metadata": source.get("metadata"),
    }
    return {key: value for key, value in record.items() if value is not None}


def _chat_messages(trajectory: Trajectory) -> list[ChatMessage]:
    messages = [ChatMessage(message, False) for message in trajectory.opening]
    for turn in trajectory.turns:
        messages.append(ChatMessage(turn.action, True))
        messages += [ChatMessage(message, False) for message in turn.observation]
    return messages


def preference_line(preferred: Trajectory, other: Trajectory) -> str:
    """The line of two trajectories of one group, without a line feed.

    A pair that still says what the line it was read from says is written as that line; see
    `chat_record.chat_line`.

    Raises:
        FieldError: they make no pair, or a conversation has no OpenAI form.
    """
    record = preference_record(preferred, other)
    if preferred.record and _is_unchanged(preferred.record, record):
        return preferred.record
    line = canonical_json(record)
    parse_preference_line(line)
    return line


def _is_unchanged(line: str, record: Mapping[str, Any]) -> bool:
    try:
        return preference_record(*parse_preference_line(line).trajectories) == record
    except FieldError:  # a chat record
        return False
