"""Results as texts, and whether two are equal."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

from agentrl_jax.envs.sql.read_only_database import QueryResult

COMPARISONS = ("set", "strict")
_HEAD = 10  # rows of a result that is too long
_DECIMALS = 6


def comparable(row: Sequence) -> tuple:
    """A row in which numbers are equal where they are to 6 decimals: 2 and 2.0 are."""
    return tuple(round(value, _DECIMALS) if isinstance(value, float) else value for value in row)


def equal_results(
    rows: Iterable[Sequence], gold: Iterable[Sequence], comparison: str, is_ordered: bool
) -> bool:
    """Whether a result is right.

    Args:
        rows: the agent's.
        gold: those of the reference.
        comparison: "set", the sets of rows are equal, so neither order nor repetitions count
            (MARS-SQL, arXiv 2511.01008); "strict", repetitions count, and order where asked for.
        is_ordered: whether the question asks for an order.
    """
    first, second = [comparable(row) for row in rows], [comparable(row) for row in gold]
    if comparison == "set":
        return frozenset(first) == frozenset(second)
    return first == second if is_ordered else Counter(first) == Counter(second)


def result_key(rows: Iterable[Sequence]) -> str:
    """A short text that is the same for equal sets of rows, to count votes for results."""
    lines = sorted({repr(tuple(map(_number, comparable(row)))) for row in rows})
    return hashlib.blake2b("\n".join(lines).encode(errors="replace"), digest_size=8).hexdigest()


def _number(value: object) -> object:
    """2 for 2.0, which is the same number in another text."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _cell(value: object) -> str:
    if value is None:
        return "None"
    if isinstance(value, bytes):
        return f"x'{value[:32].hex()}'"
    if isinstance(value, float):
        return f"{value:.12g}"
    return " ".join(str(value).encode(errors="replace").decode().split())


def result_text(result: QueryResult, characters: int) -> str:
    """A table with columns aligned to the right; of one that is too long the first 10 rows.

    Args:
        result: of a query.
        characters: what is longer is cut.
    """
    if result.error is not None:
        return f"Error: {result.error}"
    header = [_cell(name) for name in result.columns]
    if not result.rows:
        return _cut(f"No rows. Columns: {', '.join(header)}", characters)
    text = _table(header, result.rows)
    more = f"\n... more than {len(result.rows)} rows" if result.is_cut else ""
    if len(text + more) > characters:
        text = _table(header, result.rows[:_HEAD])
        number = f"more than {len(result.rows)}" if result.is_cut else str(len(result.rows))
        more = f"\n... {number} rows" if len(result.rows) > _HEAD else more
    return _cut(text, characters - len(more)) + more


def _table(header: Sequence[str], rows: Sequence[Sequence]) -> str:
    cells = [header, *([_cell(value)[:500] for value in row] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(header))]
    return "\n".join(" ".join(map(str.rjust, line, widths)) for line in cells)


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: max(0, characters - 3)]}..."
