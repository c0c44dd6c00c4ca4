"""Questions on tables: tasks in a chain, of which each but the last selects rows for the next."""

import hashlib
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.envs.code.tables import comparisons, measures
from agentrl_jax.envs.code.tables.kinds import HELD_OUT_KINDS, KINDS, Table, draw_table, pick
from agentrl_jax.envs.code.tables.scope import (
    Answer,
    Operation,
    Scope,
    clear_extreme,
    draw_category,
    draw_column,
    groups_code,
)
from agentrl_jax.envs.options import checked_choice
from agentrl_jax.errors import EnvironmentFailure, UserError

SPLITS = ("train", "test", "kinds", "operations")
_ONE_IN = 8  # questions of the trained kinds and operations that belong to the split "test"
_MAX_DRAWS = 1000
OPERATIONS: dict[str, Operation] = {
    operation.__name__: operation
    for operation in (
        measures.count,
        measures.total,
        measures.mean,
        measures.extreme,
        measures.spread,
        measures.median,
        measures.deviation,
        measures.share,
        measures.distinct,
        measures.correlation,
        measures.outliers,
        comparisons.most_common,
        comparisons.best_group,
        comparisons.ranking,
        comparisons.difference,
        comparisons.claim,
        comparisons.month,
        comparisons.half_years,
    )
}
HELD_OUT_OPERATIONS = frozenset({"spread", "difference", "month"})


@dataclass(frozen=True)
class Selection:
    """A step of a chain: rows that the next task is about."""

    text: str  # empty: the next task's phrase says it
    code: str
    scope: Scope


def constant_selection(scope: Scope, rng: np.random.Generator) -> Selection | None:
    """The rows with one word in one column."""
    if not (category := draw_category(scope, rng)):
        return None
    words = sorted({str(row[category]) for row in scope.rows})
    word, plural = words[pick(rng, words)], scope.table.kind.name
    code = f"rows = [r for r in rows if r['{category}'] == '{word}']"
    phrase = f"the {plural} with {category} {word}"
    return Selection("", code, _narrowed(scope, category, word, phrase, f"'{word}'"))


def extreme_selection(scope: Scope, rng: np.random.Generator) -> Selection | None:
    """The rows of the group with the most rows, or with the highest or lowest mean of a column."""
    if not (category := draw_category(scope, rng)):
        return None
    column = None if rng.random() < 0.4 else draw_column(scope, rng)
    groups = scope.groups(category, column)
    by_count, is_high = column is None, column is None or rng.random() < 0.5
    scores = {w: float(len(v)) if by_count else statistics.fmean(v) for w, v in groups.items()}
    if (word := clear_extreme(scores, is_high)) is None:
        return None
    plural = scope.table.kind.name
    what = (
        f"most {plural}"
        if column is None
        else (f"{'highest' if is_high else 'lowest'} mean {column.name}")
    )
    key = "len(g[k])" if by_count else "sum(g[k]) / len(g[k])"
    code = (
        f"{groups_code(category, column)}\n"
        f"b = {'max' if is_high else 'min'}(g, key=lambda k: {key})\n"
        f"rows = [r for r in rows if r['{category}'] == b]"
    )
    order = "COUNT(*)" if column is None else f"AVG({column.name})"
    query = (
        f"(SELECT {category} FROM {scope.source()} GROUP BY {category} "
        f"ORDER BY {order} {'DESC' if is_high else 'ASC'} LIMIT 1)"
    )
    text = f"Find the {category} with the {what} among {scope.phrase}."
    phrase = f"the {plural} of that {category}"
    return Selection(text, code, _narrowed(scope, category, word, phrase, query))


def _narrowed(scope: Scope, category: str, word: str, phrase: str, operand: str) -> Scope:
    rows = tuple(row for row in scope.rows if row[category] == word)
    both = [text for text in (scope.condition, f"{category} = {operand}") if text]
    return Scope(scope.table, rows, phrase, " AND ".join(both))


@dataclass(frozen=True)
class TableQuestion:
    """A question on a table, with what its problem consists of."""

    table: Table
    operation: str
    text: str
    code: str
    sql: str
    answer: Answer
    thought: str


def compose(
    rng: np.random.Generator, table: Table, operations: Sequence[str], selections: int
) -> TableQuestion | None:
    """A chain of so many selections and a last task; None: the draw has no clear answer.

    Among the selections of a chain, the first may be by a constant.
    """
    plural = table.kind.name
    scope, texts, codes = Scope(table, table.rows, f"all {plural}"), [], []
    for place in range(selections):
        is_constant = place == 0 and rng.random() < 0.5
        step = (constant_selection if is_constant else extreme_selection)(scope, rng)
        if step is None or not step.scope.rows:
            return None
        scope = step.scope
        texts.append(step.text)
        codes.append(step.code)
    name = operations[pick(rng, operations)]
    task = OPERATIONS[name](scope, rng)
    if task is None or (isinstance(task.answer, float) and not math.isfinite(task.answer)):
        return None
    text = " ".join(filter(None, [*texts, task.text]))
    code = "\n".join([*codes, task.code])
    return TableQuestion(table, name, text, code, task.sql, task.answer, task.thought)


def split_of(kind: str, operation: str, question: str) -> str:
    """The split of a question: by its kind of table, its last task, then the hash of its text."""
    if kind in HELD_OUT_KINDS:
        return "kinds"
    if operation in HELD_OUT_OPERATIONS:
        return "operations"
    digest = hashlib.blake2b(question.encode(), digest_size=8).digest()
    return "test" if int.from_bytes(digest, "big") % _ONE_IN == 0 else "train"


def operations_of(split: str, names: Sequence[str], source: str) -> tuple[str, ...]:
    """The last tasks of a split, of those with these names; empty: all that the source has.

    Raises:
        UserError: there is no such split or operation, or none is left.
    """
    checked_choice("split", split, SPLITS)
    for name in names:
        checked_choice("operations", name, OPERATIONS)
    without_sql = {"median", "deviation", "correlation", "outliers"} if source == "sql" else set()
    chosen = tuple(
        name
        for name in names or OPERATIONS
        if name not in without_sql
        and (split == "kinds" or (name in HELD_OUT_OPERATIONS) == (split == "operations"))
    )
    if not chosen:
        raise UserError(f"no operation of {', '.join(names)} belongs to {split!r} with {source!r}")
    return chosen


def kinds_of(split: str) -> tuple[str, ...]:
    """The kinds of tables of a split."""
    return tuple(name for name in KINDS if (name in HELD_OUT_KINDS) == (split == "kinds"))


def draw_question(
    rng: np.random.Generator,
    split: str,
    difficulty: float,
    source: str,
    names: Sequence[str] = (),
    selections: int = -1,
) -> TableQuestion:
    """A question of a split.

    Args:
        rng: draws everything.
        split: see `SPLITS`.
        difficulty: from 0 to 1: rows, columns, empty cells; and with it selections, of which there
            are uniformly 0 to 2 difficulty, rounded.
        source: of the rows.
        names: of operations; empty: all.
        selections: exactly so many; -1: by difficulty.

    Raises:
        EnvironmentFailure: nothing was found in 1,000 draws.
    """
    operations, kinds = operations_of(split, names, source), kinds_of(split)
    for _ in range(_MAX_DRAWS):
        kind = KINDS[kinds[pick(rng, kinds)]]
        count = selections if selections >= 0 else int(rng.integers(round(2 * difficulty) + 1))
        question = compose(rng, draw_table(rng, kind, difficulty), operations, count)
        if question and split_of(kind.name, question.operation, question.text) == split:
            return question
    raise EnvironmentFailure(f"no question of the split {split!r} was drawn at {difficulty}")


def shared_questions(questions: int, difficulty: float = 0.5, seed: int = 0) -> int:
    """How many questions of the other splits, of so many drawn in each, are also among those drawn
    for training.
    """
    texts: dict[str, set[str]] = {}
    for i, split in enumerate(SPLITS):
        rng = np.random.default_rng([seed, i])
        samples = (draw_question(rng, split, difficulty, "csv") for _ in range(questions))
        texts[split] = {question.text for question in samples}
    return len(texts["train"] & set().union(*(texts[s] for s in SPLITS[1:])))
