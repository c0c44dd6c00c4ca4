"""Filters, sorting and windows over the table of episodes."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.viewer.episode_index import EpisodeTable
from agentrl_jax.viewer.episode_summary import NUMBERS, TEXTS

MAX_WINDOW = 1000  # rows of one answer
OUTCOMES: Mapping[str, Callable[[EpisodeTable], np.ndarray]] = {
    "": lambda table: np.ones(len(table), bool),
    "success": lambda table: table.column("success") == 1,
    "failure": lambda table: table.column("success") == 0,
    "error": lambda table: table.column("error") != 0,
    "damaged": lambda table: table.column("damage") != 0,
}
_DESCRIPTIONS = {int: "a whole number", float: "a number", bool: "0 or 1"}


@dataclass(frozen=True)
class EpisodeQuery:
    """Which episodes, in which order, and which of them.

    Args:
        text: what the task, agent, error or damage contains, whatever the case.
        phase, stop_reason, agent: exactly these; empty: any.
        outcome: a key of `OUTCOMES`.
        step_from, step_to: inclusive bounds.
        group: exactly this; NaN: any.
        sort: a field of `EpisodeSummary`; equal ones keep the order of the record.
        descending: the largest first; missing numbers come last either way.
        offset, limit: the window.
    """

    text: str = ""
    phase: str = ""
    stop_reason: str = ""
    agent: str = ""
    outcome: str = ""
    step_from: float = -math.inf
    step_to: float = math.inf
    group: float = math.nan
    sort: str = "step"
    descending: bool = True
    offset: int = 0
    limit: int = 100


def parse_query(values: Mapping[str, str]) -> EpisodeQuery:
    """The query of a URL's parameters; others are ignored.

    Raises:
        UserError: a value of the wrong type, an unknown outcome or sort field.
    """
    fields = {field.name: field.type for field in dataclasses.fields(EpisodeQuery)}
    query = EpisodeQuery(
        **{
            name: _parsed(name, values[name], kind)
            for name, kind in fields.items()
            if values.get(name)
        }
    )
    if query.outcome not in OUTCOMES:
        raise UserError(f"outcome is one of {', '.join(filter(None, OUTCOMES))}")
    if query.sort not in (*NUMBERS, *TEXTS):
        raise UserError(f"sort is one of {', '.join((*NUMBERS, *TEXTS))}")
    if query.offset < 0 or not 0 < query.limit <= MAX_WINDOW:
        raise UserError(f"offset is at least 0, and limit from 1 to {MAX_WINDOW}")
    return query


def _parsed(name: str, value: str, kind: Any) -> Any:
    try:
        return bool(int(value)) if kind is bool else kind(value)
    except ValueError as error:
        raise UserError(f"{name} is {_DESCRIPTIONS[kind]}") from error


def select(table: EpisodeTable, query: EpisodeQuery) -> np.ndarray:
    """The rows of all episodes that a query wants, sorted; its window is not applied."""
    matches = OUTCOMES[query.outcome](table) & _contains(table, query.text)
    for name, text in (
        ("phase", query.phase),
        ("stop_reason", query.stop_reason),
        ("agent", query.agent),
    ):
        if text:
            matches &= table.column(name) == _code(table, text)
    if query.step_from > -math.inf or query.step_to < math.inf:
        step = table.column("step")
        matches &= (step >= query.step_from) & (step <= query.step_to)
    if not math.isnan(query.group):
        matches &= table.column("group") == query.group
    rows = np.flatnonzero(matches)
    return rows[_order(_sort_values(table, query.sort)[rows], query.descending)]


def window(rows: np.ndarray, query: EpisodeQuery) -> list[int]:
    """The part of the rows that the query shows."""
    return rows[query.offset : query.offset + query.limit].tolist()


def _code(table: EpisodeTable, text: str) -> int:
    return table.texts.index(text) if text in table.texts else -1


def _contains(table: EpisodeTable, text: str) -> np.ndarray:
    if not text:
        return np.ones(len(table), bool)
    part = text.casefold()
    codes = [code for code, known in enumerate(table.texts) if part in known.casefold()]
    columns = [table.column(name) for name in ("task", "agent", "error", "damage")]
    return np.any([np.isin(column, codes) for column in columns], axis=0)


def _sort_values(table: EpisodeTable, name: str) -> np.ndarray:
    """Numbers that sort as the column does."""
    if name in NUMBERS:
        return table.column(name)
    ranks = np.empty(len(table.texts))
    ranks[sorted(range(len(table.texts)), key=table.texts.__getitem__)] = np.arange(len(ranks))
    return ranks[table.column(name).astype(int)]


def _order(values: np.ndarray, descending: bool) -> np.ndarray:
    return np.argsort(-values if descending else values, kind="stable")
