"""Rows of tables as trajectories and as pairs, whichever columns they have.

A table may have columns that are not read. Null counts as absent, since a table writes it wherever
a field is missing; `messages`, `conversations` and `tools` may be JSON texts, a list of objects an
object of lists, and the arguments of a call an object.
"""

import json
from collections.abc import Mapping
from typing import Any

from agentrl_jax.formats.chat_record import chat_trajectory, parse_chat_line
from agentrl_jax.formats.field_checks import FieldError, check_keys, check_object, parse_json
from agentrl_jax.formats.preference_record import preference_pair
from agentrl_jax.formats.recorded_episodes import recorded_trajectory
from agentrl_jax.formats.sharegpt import sharegpt_trajectory
from agentrl_jax.trajectories import Group, Trajectory

FIELDS = ("tools", "task", "reward", "rewards", "success", "truncated")
CHAT_COLUMNS = ("messages", "conversations", "system", "opening", "turns", *FIELDS)
PREFERENCE_COLUMNS = (
    *("input", "preferred_output", "non_preferred_output"),
    *("prompt", "chosen", "rejected", "tools", "task"),
)
JSON_COLUMNS = {"messages", "conversations", "tools"}  # may be texts
# Lists of objects, which tensorflow_datasets returns as an object of lists.
OBJECT_LISTS = {
    *("messages", "conversations", "turns", "tool_calls"),
    *("prompt", "chosen", "rejected", "preferred_output", "non_preferred_output"),
}


def chat_of_line(line: str) -> Trajectory:
    """The trajectory of a line: a chat record, or a ShareGPT conversation.

    Raises:
        FieldError: a field is missing, wrong or unknown.
    """
    if '"conversations"' in line and "messages" not in (data := check_object(parse_json(line), "")):
        check_keys(data, CHAT_COLUMNS, "", "is no field of a ShareGPT conversation; leave it out")
        return chat_of_columns(data)
    return parse_chat_line(line)


def chat_of_columns(columns: Mapping[str, Any]) -> Trajectory:
    """The trajectory of a row: a chat record, a ShareGPT conversation, or a recorded episode.

    Raises:
        FieldError: a field is missing or wrong.
    """
    data = table_fields(columns, CHAT_COLUMNS)
    if "messages" in data:
        return chat_trajectory(data)
    if "conversations" in data:
        return sharegpt_trajectory(data)
    if "turns" in data:
        return recorded_trajectory(data)
    raise FieldError("", f"needs a column messages or conversations, not {_names(columns)}")


def preference_of_columns(columns: Mapping[str, Any]) -> Group:
    """The pair of a row, in OpenAI's form or with `prompt`, `chosen` and `rejected`.

    Raises:
        FieldError: a field is missing or wrong.
    """
    if not is_preference(columns):
        raise FieldError("", f"needs columns chosen and rejected, not {_names(columns)}")
    return preference_pair(table_fields(columns, PREFERENCE_COLUMNS))


def is_preference(columns: Mapping[str, Any]) -> bool:
    """Whether a record is of preferences rather than of one conversation."""
    return bool(columns.keys() & {"chosen", "preferred_output"})


def table_fields(columns: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The named columns of a row, as the data of a record."""
    data = {name: columns[name] for name in names if columns.get(name) is not None}
    for name in data.keys() & JSON_COLUMNS:
        if isinstance(data[name], str):
            data[name] = parse_json(data[name], name)
    data = _with_text_arguments(_without_nulls(data))
    return {name: _with_object_lists(x, name) for name, x in data.items()}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(x) for key, x in value.items() if x is not None}
    return [_without_nulls(x) for x in value] if isinstance(value, list) else value


def _with_text_arguments(value: Any) -> Any:
    """Messages with the arguments of calls as the JSON texts that a model writes."""
    if isinstance(value, list):
        return [_with_text_arguments(x) for x in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"name", "arguments"} and isinstance(value["arguments"], dict):
        return {**value, "arguments": json.dumps(value["arguments"], ensure_ascii=False)}
    return {key: x if key == "tools" else _with_text_arguments(x) for key, x in value.items()}


def _with_object_lists(value: Any, name: str) -> Any:
    """Messages with lists of objects; `name` is the field of the value."""
    if isinstance(value, list):
        return [_with_object_lists(x, "") for x in value]
    if not isinstance(value, dict) or name == "tools":
        return value
    data = {key: _with_object_lists(x, key) for key, x in value.items()}
    if name in OBJECT_LISTS and all(isinstance(x, list) for x in data.values()):
        return [dict(zip(data, row)) for row in zip(*data.values())]
    return data


def _names(columns: Mapping[str, Any]) -> str:
    return ", ".join(f"{name:.40}" for name in columns) or "none"
