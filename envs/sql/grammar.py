"""The grammar of MARS-SQL (arXiv 2511.01008): thoughts, queries, observations and a solution."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentrl_jax.messages import Message, ToolCall
from agentrl_jax.tool_formats import TagToolFormat
from agentrl_jax.tool_formats.line_calls import unfenced

# How a renderer reads and writes calls of the tool `sql`.
SQL_TOOL_FORMAT = TagToolFormat({"sql": ("sql", "query")})
INSTRUCTION = (
    "Think in <think>...</think>; then query the database with <sql>...</sql>, or answer with the "
    "final query in <solution>...</solution>."
)
_ACTION = re.compile(r"<(sql|solution)>(.*?)</\1>", re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_TAG = re.compile(r"</?(?:think|sql|solution|observation|reminder)>")


@dataclass(frozen=True)
class SqlAction:
    """What a turn does: its first complete query or solution."""

    kind: str  # "sql", "solution", or "" where there is neither
    query: str = ""


def read_action(text: str) -> SqlAction:
    """The first `<sql>` or `<solution>` that is closed; the rest of the turn is not run."""
    match = _ACTION.search(text)
    return SqlAction(match[1], without_fence(match[2]).strip()) if match else SqlAction("")


def without_fence(query: str) -> str:
    """The query of a fenced block, where the text is one."""
    return unfenced(query, "sql")


def is_well_formed(turns: Sequence[str]) -> bool:
    """Whether an episode's actions obey MARS-SQL's format.

    There is exactly one solution and no tag within it, there is a thought, and each observation is
    followed by a thought: every later turn begins with one. An agent writes no observation.
    """
    text = "\n".join(turns)
    inside = re.findall(r"<solution>(.*?)</solution>", text, re.DOTALL)
    return (
        len(inside) == text.count("<solution>") == text.count("</solution>") == 1
        and not _TAG.search(inside[0])
        and _THOUGHT.search(text) is not None
        and all(_THOUGHT.match(turn.lstrip()) for turn in turns[1:])
        and not re.search(r"</?(?:observation|reminder)>", text)
    )


def thoughts_of(texts: Sequence[str]) -> list[str]:
    """The thoughts in some turns, without their tags."""
    matches = (match for text in texts for match in _THOUGHT.finditer(text))
    return [match[0].removeprefix("<think>").removesuffix("</think>") for match in matches]


def observation_text(output: str, turns_left: int, reminder: bool) -> str:
    """What the environment writes after a turn."""
    text = f"<observation>\n{output}\n</observation>"
    if not reminder:
        return text
    return f"{text}\n<reminder>You have {turns_left} turns left to complete the task.</reminder>"


def thought_text(thought: str) -> str:
    return f"<think>{thought}</think>"


def solution_text(thought: str, sql: str) -> str:
    """A turn that answers."""
    return f"{thought_text(thought)}\n<solution>{sql}</solution>"


def written_text(message: Message) -> str:
    """An action as MARS-SQL writes it: the text, then each call in its tag."""
    texts = [message.text, *(f"<sql>{_query_of(call)}</sql>" for call in message.tool_calls)]
    return "\n".join(text for text in texts if text)


def _query_of(call: ToolCall) -> str:
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        return ""
    query = arguments.get("query", "") if isinstance(arguments, dict) else ""
    return query if isinstance(query, str) else ""
