"""Values of Gymnasium's spaces as texts, actions parsed from texts, terminal colors as words."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

_STYLED = re.compile(r"((?:\x1b\[[0-9;]*m)+)(.*?)((?:\x1b\[0?m)+|\Z)", re.DOTALL)
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_MAX_PARSED = 10_000  # characters of an action in JSON


def without_escapes(text: str) -> str:
    """The text with terminal colors as words: "\\x1b[41mS\\x1b[0mFF" -> "red[S]FF"."""

    def named(match: re.Match[str]) -> str:
        codes = [int(code) for code in re.findall(r"\d+", match[1])]
        names = [_COLORS[code % 10] for code in codes if code >= 30 and code % 10 < 8]
        return f"{'+'.join(names)}[{match[2]}]" if names else match[2]

    return _CONTROL.sub("", _STYLED.sub(named, text))


def value_text(value: Any, names: Sequence[str] = ()) -> str:
    """A value of a space: texts as they are, numbers and arrays in JSON, parts as "name: value".

    Args:
        value: of any space.
        names: of the parts of a tuple or an array, where it has that many.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "\n".join(f"{name}: {value_text(part)}" for name, part in value.items())
    if isinstance(value, tuple | list | np.ndarray) and names and len(value) == len(names):
        return value_text(dict(zip(names, value)))
    if isinstance(value, tuple | list):
        return ", ".join(value_text(part) for part in value)
    if isinstance(value, np.ndarray | np.generic):
        is_real = np.issubdtype(value.dtype, np.floating)
        return json.dumps((np.round(np.float64(value), 4) if is_real else value).tolist())
    return str(value)


def listed_actions(space: spaces.Space[Any], names: Sequence[str]) -> list[str] | None:
    """The texts of a `Discrete` space's actions in order, by default their numbers; None: other
    spaces.
    """
    if not isinstance(space, spaces.Discrete):
        return None
    return list(names) or [str(int(space.start) + i) for i in range(int(space.n))]


def parsed_action(space: spaces.Space[Any], names: Sequence[str], text: str) -> Any:
    """The action of a text; None where it is none.

    A `Text` space takes the text as it is, a `Discrete` one its names, and an array's numbers are
    written in JSON: "[0.5, -1]".
    """
    listed = listed_actions(space, names)
    if listed is not None:
        start = int(getattr(space, "start", 0))
        return start + listed.index(text) if text in listed else None
    if isinstance(space, spaces.Text):
        return text if space.contains(text) else None
    if len(text) > _MAX_PARSED:
        return None
    try:
        value = np.array(json.loads(text), dtype=space.dtype)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    return value if space.contains(value) else None


def is_supported(space: spaces.Space[Any]) -> bool:
    """Whether actions of the space can be written."""
    arrays = spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary
    return isinstance(space, spaces.Discrete | spaces.Text | arrays)


def action_text(space: spaces.Space[Any], names: Sequence[str], action: Any) -> str:
    """The text that `parsed_action` reads as the action."""
    listed = listed_actions(space, names)
    if listed is not None:
        return listed[int(action) - int(getattr(space, "start", 0))]
    return action if isinstance(action, str) else json.dumps(np.asarray(action).tolist())
