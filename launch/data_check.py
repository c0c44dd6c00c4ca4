"""Validates a file of demonstrations or preferences, and counts what is in it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.formats.dataset_rows import CHAT_COLUMNS, PREFERENCE_COLUMNS
from agentrl_jax.formats.record_source import IndexedSource, ParsedRecords
from agentrl_jax.models.tokenizers import FolderTokenizer
from agentrl_jax.training.demonstrations import open_source
from agentrl_jax.training.preferences import holds_preferences, open_preferences
from agentrl_jax.trajectories import Group, Trajectory


@dataclass
class Counts:
    """What the valid records hold."""

    episodes: int = 0
    turns: int = 0
    messages: int = 0
    tool_calls: int = 0
    images: int = 0
    tools: set[str] = field(default_factory=set)
    with_reward: int = 0
    successful: int = 0
    tokens: int = 0
    longest: int = 0  # tokens of an episode

    def add(self, trajectory: Trajectory, tokenizer: Any) -> None:
        self.episodes += 1
        self.turns += len(trajectory.turns)
        self.messages += len(trajectory.messages)
        self.tool_calls += sum(len(message.tool_calls) for message in trajectory.messages)
        self.images += sum(len(message.images) for message in trajectory.messages)
        self.tools |= {tool["function"]["name"] for tool in trajectory.tools}
        self.with_reward += any(turn.reward for turn in trajectory.turns)
        self.successful += bool(trajectory.success)
        if tokenizer is not None:
            tokens = sum(
                len(tokenizer.encode(x, add_special_tokens=False)) for x in texts(trajectory)
            )
            self.tokens += tokens
            self.longest = max(self.longest, tokens)

    def lines(self, with_tokens: bool) -> list[str]:
        """One line for each count."""
        tools = f" ({', '.join(sorted(self.tools))})" if self.tools else ""
        tokens = [f"tokens {self.tokens:,}, at most {self.longest:,} in an episode"]
        return [
            f"episodes {self.episodes:,}: {self.with_reward:,} with a reward that is not 0, "
            f"{self.successful:,} successful",
            f"turns {self.turns:,}, messages {self.messages:,}, images {self.images:,}",
            f"tools {len(self.tools):,}{tools}, tool calls {self.tool_calls:,}",
            *(tokens if with_tokens else []),
        ]


def texts(trajectory: Trajectory) -> Iterator[str]:
    """Everything that a tokenizer sees of an episode, but for what a chat template adds."""
    for message in trajectory.messages:
        yield message.text
        for call in message.tool_calls:
            yield call.name
            yield call.arguments


def check_file(path: Path, tokenizer_folder: str = "") -> str:
    """Validate every record, and return the counts of the valid ones.

    Args:
        path: as for `open_source`, of demonstrations or of preferences.
        tokenizer_folder: of a Hugging Face tokenizer; empty: tokens are not counted.

    Raises:
        UserError: a record is wrong; the counts are printed, and the message is that of the first
            wrong record.
    """
    tokenizer = FolderTokenizer(tokenizer_folder)(()) if tokenizer_folder else None
    is_preference = holds_preferences(path)
    open_file = open_preferences if is_preference else open_source
    source: IndexedSource[Trajectory | Group] = open_file(path)
    counts, errors = Counts(), list[str]()
    for i in range(len(source)):
        try:
            item = source[i]
        except UserError as error:
            errors.append(str(error))
            continue
        for trajectory in item.trajectories if isinstance(item, Group) else [item]:
            counts.add(trajectory, tokenizer)
    kind = "preference pairs" if is_preference else "demonstrations"
    report = "\n".join(
        [
            f"{path}: {len(source):,} {kind}, {len(errors):,} of them wrong",
            *counts.lines(tokenizer is not None),
        ]
    )
    if errors:
        print(report)
        raise UserError(errors[0])
    return report + unread_columns(source, PREFERENCE_COLUMNS if is_preference else CHAT_COLUMNS)


def unread_columns(source: Any, names: tuple[str, ...]) -> str:
    """A line that lists the columns of a table which are not read; empty where all are."""
    if not isinstance(source, ParsedRecords):
        return ""
    unread = [name for name in source.records[0] if name not in names]
    return f"\ncolumns that are not read: {', '.join(unread)}" if unread else ""
