"""A chat record, one line of a JSONL file in OpenAI's fine-tuning form, and its trajectory.

    {"messages": [{"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": "5"}],
     "tools": [...], "parallel_tool_calls": false, "task": "sums/7", "reward": 1.0,
     "rewards": [1.0], "success": true, "truncated": false, "metadata": {...}}

Only `messages` is required. The messages before the first action are the opening; each action, an
assistant's message without `weight: 0`, begins a turn, and what follows it is its observation.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax.formats.chat_messages import (
    ChatMessage,
    check_order,
    message_record,
    parse_messages,
    parse_tools,
)
from agentrl_jax.formats.field_checks import (
    FieldError,
    check_flag,
    check_keys,
    check_list,
    check_number,
    check_object,
    check_text,
    parse_json,
)
from agentrl_jax.messages import Message
from agentrl_jax.storage.demonstration_file import DEMONSTRATION
from agentrl_jax.trajectories import Trajectory, Turn

UNTRAINED_KEYS = ("parallel_tool_calls", "metadata")  # kept in `Trajectory.record` alone
CHAT_KEYS = (
    "messages",
    "tools",
    "parallel_tool_calls",
    "task",
    "reward",
    "rewards",
    "success",
    "truncated",
    "metadata",
)


def parse_chat_line(line: str) -> Trajectory:
    """The trajectory of a line, with the line as its `record`.

    Raises:
        FieldError: the line is no chat record; names the field.
    """
    data = check_object(parse_json(line), "")
    if "schema" in data and "turns" in data:
        raise FieldError("", "is of a trajectory log; export it with agentrl-data --export first")
    remedy = f"is not a field of a chat record ({', '.join(CHAT_KEYS)}); move it into metadata"
    check_keys(data, CHAT_KEYS, "", remedy)
    return chat_trajectory(data).replace(record=line)


def chat_trajectory(data: Mapping[str, Any]) -> Trajectory:
    """The trajectory of a parsed record; other keys than `CHAT_KEYS` are not read.

    Raises:
        FieldError: a field is missing or wrong.
    """
    if "messages" not in data:
        raise FieldError("messages", "is missing")
    messages = parse_messages(data["messages"], "messages")
    fields = [f"messages[{i}]" for i in range(len(messages))]
    _check_parallel_calls(data, messages)
    check_object(data.get("metadata", {}), "metadata")
    return episode(messages, fields, data)


def episode(
    messages: Sequence[ChatMessage], fields: Sequence[str], data: Mapping[str, Any]
) -> Trajectory:
    """The trajectory of messages and a record's other fields.

    Args:
        messages: in order.
        fields: where each stands in its record, for errors.
        data: may hold `tools`, `task`, `reward`, `rewards`, `success` and `truncated`.

    Raises:
        FieldError: a field is wrong, or the messages are no conversation.
    """
    check_order([message for message, _ in messages], fields)
    return conversation(
        messages,
        fields,
        _rewards(data, sum(is_action for _, is_action in messages)),
        tools=parse_tools(data.get("tools", []), "tools"),
        task=check_text(data.get("task", ""), "task"),
        success=check_flag(data["success"], "success") if "success" in data else None,
        truncated=check_flag(data.get("truncated", False), "truncated"),
    )


def conversation(
    messages: Sequence[ChatMessage],
    fields: Sequence[str],
    rewards: Sequence[float],
    truncated: bool = False,
    **attributes: Any,
) -> Trajectory:
    """The trajectory of messages in a checked order.

    Args:
        messages: in order.
        fields: where each stands in its record, for errors.
        rewards: one for each action.
        truncated: whether a limit cut the conversation.
        attributes: further fields of `Trajectory`.

    Raises:
        FieldError: there is no action, or nothing before the first.
    """
    starts = [i for i, (_, is_action) in enumerate(messages) if is_action]
    if not starts:
        raise FieldError("", "there is no message of an assistant that is trained; add one")
    if starts[0] == 0:
        raise FieldError(f"{fields[0]}.role", "an assistant's message needs another before it")
    texts = [message for message, _ in messages]
    turns = tuple(
        Turn(
            (),
            texts[start],
            tuple(texts[start + 1 : end]),
            reward,
            terminated=end == len(texts) and not truncated,
            truncated=end == len(texts) and truncated,
        )
        for start, end, reward in zip(starts, [*starts[1:], len(texts)], rewards, strict=True)
    )
    return Trajectory(
        tuple(texts[: starts[0]]),
        turns,
        agent=DEMONSTRATION,
        stop_reason="truncated" if truncated else "terminated",
        **attributes,
    )


def _rewards(data: Mapping[str, Any], actions: int) -> list[float]:
    """One reward for each action: `rewards`, or else `reward` at the end."""
    total = check_number(data["reward"], "reward") if "reward" in data else None
    if "rewards" not in data:
        return [0.0] * (actions - 1) + [total or 0.0] if actions else []
    values = check_list(data["rewards"], "rewards")
    rewards = [check_number(value, f"rewards[{i}]") for i, value in enumerate(values)]
    if len(rewards) != actions:
        raise FieldError("rewards", f"hold {len(rewards)} numbers for {actions} trained messages")
    if total is not None and total != sum(rewards):
        raise FieldError("reward", f"is {total}, but rewards sum to {sum(rewards)}; leave it out")
    return rewards


def _check_parallel_calls(data: Mapping[str, Any], messages: Sequence[ChatMessage]) -> None:
    if check_flag(data.get("parallel_tool_calls", True), "parallel_tool_calls"):
        return
    for i, (message, _) in enumerate(messages):
        if len(message.tool_calls) > 1:
            raise FieldError(
                f"messages[{i}].tool_calls", "are several, but parallel_tool_calls is false"
            )


def chat_record(trajectory: Trajectory) -> dict[str, Any]:
    """The record of a trajectory, its keys in the order of `CHAT_KEYS`.

    `rewards` is there where an action before the last has one. What training does not use comes
    from the record that the trajectory was read from.
    """
    turns = trajectory.turns
    source = json.loads(trajectory.record) if trajectory.record else {}
    fields = {
        "messages": list(map(message_record, *_message_columns(trajectory))),
        "tools": list(trajectory.tools) or None,
        "task": trajectory.task or None,
        "reward": trajectory.total_reward,
        "rewards": [t.reward for t in turns] if any(t.reward for t in turns[:-1]) else None,
        "success": None if trajectory.success is None else bool(trajectory.success),
        "truncated": True if trajectory.truncated else None,
        **{key: source.get(key) for key in UNTRAINED_KEYS},
    }
    return {key: fields[key] for key in CHAT_KEYS if fields[key] is not None}


def _message_columns(trajectory: Trajectory) -> tuple[list[Message], list[bool]]:
    """The messages of a trajectory, and which are actions."""
    messages, is_action = list(trajectory.opening), [False] * len(trajectory.opening)
    for turn in trajectory.turns:
        messages += [turn.action, *turn.observation]
        is_action += [True, *(False for _ in turn.observation)]
    return messages, is_action


def chat_line(trajectory: Trajectory, metadata: Mapping[str, Any] | None = None) -> str:
    """The line of a trajectory, without a line feed.

    A trajectory that still says what the line it was read from says is written as that line, byte
    for byte. Any other is written in the canonical form: the record of `chat_record` as
    `json.dumps(record, ensure_ascii=False)` writes it, which is read and written again unchanged.

    Args:
        trajectory: what to write.
        metadata: of the record, for a trajectory that was not read from one.

    Raises:
        FieldError: the conversation has no OpenAI form, such as a tool's message without a call.
    """
    record = chat_record(trajectory)
    if trajectory.record and _is_unchanged(trajectory.record, record):
        return trajectory.record
    line = canonical_json({**record, **({"metadata": dict(metadata)} if metadata else {})})
    parse_chat_line(line)
    return line


def _is_unchanged(line: str, record: Mapping[str, Any]) -> bool:
    """Whether a line holds a record, whatever the order of its keys and its spelling."""
    try:
        return chat_record(parse_chat_line(line)) == record
    except FieldError:  # a line of preferences
        return False


def canonical_json(record: Mapping[str, Any]) -> str:
    """One line of JSON as Python writes it, with Unicode as it is; FieldError for a number that is
    not finite.
    """
    try:
        return json.dumps(record, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise FieldError("", f"cannot be written as JSON ({error})") from error
