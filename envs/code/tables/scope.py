"""The rows that a task is about, a task with its answer, and the code that tasks share."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agentrl_jax.envs.code.tables.kinds import NumberColumn, Row, Table, pick

Answer = float | str | tuple[str, ...]
CLEAR = 0.02  # relative difference of two values of which a question asks for the larger


@dataclass(frozen=True)
class Scope:
    """The rows that a task is about.

    Args:
        table: the whole table.
        rows: those of the task.
        phrase: what a question calls them, as "those orders".
        condition: that selects them in SQL; empty: all.
    """

    table: Table
    rows: tuple[Row, ...]
    phrase: str
    condition: str = ""

    def source(self, *conditions: str) -> str:
        """What follows FROM in SQL: the table, and where all conditions hold."""
        both = [text for text in (self.condition, *conditions) if text]
        return self.table.kind.name + (f" WHERE {' AND '.join(both)}" if both else "")

    def values(self, column: NumberColumn) -> list[float]:
        """The numbers of a column, without empty cells."""
        return [float(row[column.name] or 0) for row in self.rows if row[column.name] is not None]

    def groups(self, category: str, column: NumberColumn | None = None) -> dict[str, list[float]]:
        """The numbers of a column by the word of another; without a column 1 for each row."""
        groups: dict[str, list[float]] = defaultdict(list)
        for row in self.rows:
            value = 1.0 if column is None else row[column.name]
            if value is not None:
                groups[str(row[category])].append(float(value))
        return dict(groups)


@dataclass(frozen=True)
class Task:
    """A task with its answer.

    Args:
        text: the question.
        code: Python that reads the list of dictionaries `rows` and prints the answer.
        sql: a SELECT that returns it; empty: SQLite has no function for it.
        answer: a number, a word, or words in an order.
        thought: how a person would begin.
    """

    text: str
    code: str
    sql: str
    answer: Answer
    thought: str


# Draws a task on rows; None: these rows have no clear answer to it.
Operation = Callable[[Scope, np.random.Generator], Task | None]


def draw_column(scope: Scope, rng: np.random.Generator) -> NumberColumn:
    """A uniform column of numbers."""
    return scope.table.numbers[pick(rng, scope.table.numbers)]


def draw_category(scope: Scope, rng: np.random.Generator) -> str:
    """A uniform column of words in which the rows differ; empty: there is none."""
    several = [c for c in scope.table.categories if len({row[c] for row in scope.rows}) > 1]
    return several[pick(rng, several)] if several else ""


def list_code(column: NumberColumn, name: str = "v", rows: str = "rows") -> str:
    """Code that lists a column's numbers without empty cells."""
    cell = f"r['{column.name}']"
    return f"{name} = [float({cell}) for r in {rows} if {cell}]"


def groups_code(category: str, column: NumberColumn | None) -> str:
    """Code that lists a column's numbers by the word of another, as `Scope.groups`."""
    if column is None:
        return f"g = {{}}\nfor r in rows:\n    g.setdefault(r['{category}'], []).append(1)"
    cell = f"r['{column.name}']"
    return (
        f"g = {{}}\nfor r in rows:\n    if {cell}:\n"
        f"        g.setdefault(r['{category}'], []).append(float({cell}))"
    )


def clear_extreme(scores: dict[str, float], is_high: bool) -> str | None:
    """The word with the highest or lowest score; None where a second one is near."""
    ranked = sorted(scores, key=lambda word: scores[word], reverse=is_high)
    if len(ranked) < 2:
        return None
    first, second = scores[ranked[0]], scores[ranked[1]]
    return ranked[0] if abs(first - second) > CLEAR * max(abs(first), abs(second)) else None
