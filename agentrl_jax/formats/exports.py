"""Trajectories and pairs written as JSONL files that other programs train on."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentrl_jax.errors import UserError
from agentrl_jax.formats.chat_record import chat_line
from agentrl_jax.formats.field_checks import FieldError
from agentrl_jax.formats.preference_record import preference_line
from agentrl_jax.storage.files import atomic_write
from agentrl_jax.trajectories import Trajectory


class ChatExport(NamedTuple):
    """A trajectory, and the metadata of its record where it was not read from one."""

    trajectory: Trajectory
    metadata: Mapping[str, Any] | None = None


def write_chats(path: Path, chats: Iterable[ChatExport]) -> int:
    """Write chat records, one a line, and return their number.

    Raises:
        UserError: a conversation has no OpenAI form, or the file cannot be written.
    """

    def lines() -> Iterator[str]:
        for number, chat in enumerate(chats, 1):
            try:
                yield chat_line(*chat)
            except FieldError as error:
                raise UserError(
                    f"trajectory {number} ({chat.trajectory.task}) has no OpenAI form{error}"
                ) from error

    return _write_lines(path, lines())


def write_pairs(path: Path, pairs: Iterable[tuple[Trajectory, Trajectory]]) -> int:
    """Write preference records, the preferred trajectory of each pair first, and return their
    number.

    Raises:
        UserError: the two of a pair share no prompt or are equal, or a conversation has no OpenAI
            form, or the file cannot be written.
    """

    def lines() -> Iterator[str]:
        for number, pair in enumerate(pairs, 1):
            try:
                yield preference_line(*pair)
            except FieldError as error:
                raise UserError(
                    f"pair {number} ({pair[0].task}) has no OpenAI form{error}"
                ) from error

    return _write_lines(path, lines())


def _write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write a file atomically, in UTF-8 with a line feed after each line."""
    count = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as unfinished, open(unfinished, "wb") as file:
            for line in lines:
                file.write(line.encode() + b"\n")
                count += 1
    except OSError as error:
        raise UserError(
            f"cannot write {path} ({error.strerror}): free some space or name another file"
        ) from error
    return count
