"""Kinds of tables, and tables of rows that a generator draws."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

Value = str | float | None  # None: the cell is empty
Row = Mapping[str, Value]
T = TypeVar("T")
MAX_ROWS = 240
EMPTY_CELLS = 0.04  # of a number's column, where a table has any


@dataclass(frozen=True)
class NumberColumn:
    """A column of positive numbers.

    Args:
        name: of the column.
        low, high: bounds of its values; low is above 0.
        decimals: to which values are rounded.
        unit: what a question calls it.
    """

    name: str
    low: float
    high: float
    decimals: int
    unit: str


@dataclass(frozen=True)
class TableKind:
    """What the rows of a table are.

    Args:
        name: of the file and of the table in a database; what several rows are called.
        row: what one row is called.
        categories: columns of words, with their words.
        numbers: columns of numbers.
    """

    name: str
    row: str
    categories: Mapping[str, tuple[str, ...]]
    numbers: tuple[NumberColumn, ...]


def _kind(
    name: str, row: str, categories: dict[str, str], *numbers: tuple[str, float, float, int, str]
) -> TableKind:
    words = {column: tuple(text.split()) for column, text in categories.items()}
    return TableKind(name, row, words, tuple(NumberColumn(*values) for values in numbers))


_CITIES = "Oslo Lima Cairo Turin Quito Perth Dakar Osaka"
KINDS = {
    kind.name: kind
    for kind in (
        _kind(
            "orders",
            "order",
            {"city": _CITIES, "product": "lamp desk chair shelf sofa rug", "channel": "web shop"},
            ("price", 5, 400, 2, "euros"),
            ("quantity", 1, 20, 0, "pieces"),
            ("shipping", 1, 30, 2, "euros"),
        ),
        _kind(
            "readings",
            "reading",
            {"station": "north south east west hill lake", "sensor": "alpha beta gamma delta"},
            ("temperature", 1, 40, 1, "degrees"),
            ("humidity", 10, 95, 1, "percent"),
            ("pressure", 950, 1050, 1, "hectopascals"),
        ),
        _kind(
            "answers",
            "answer",
            {"region": "north south east west", "age_group": "teens adults seniors"},
            ("satisfaction", 1, 10, 0, "points"),
            ("hours_online", 1, 60, 1, "hours"),
            ("income", 12, 140, 1, "thousand euros"),
        ),
        _kind(
            "visits",
            "visit",
            {"ward": "heart lung bone eye skin", "doctor": "Adams Baker Clark Davis Evans"},
            ("minutes", 5, 90, 0, "minutes"),
            ("cost", 20, 900, 2, "euros"),
            ("age", 1, 95, 0, "years"),
        ),
        _kind(
            "flights",
            "flight",
            {"origin": _CITIES, "airline": "Aero Blue Condor Delta Eagle"},
            ("delay", 1, 240, 0, "minutes"),
            ("distance", 150, 9000, 0, "kilometers"),
            ("passengers", 20, 380, 0, "people"),
        ),
        _kind(
            "staff",
            "person",
            {"team": "sales legal design support research", "level": "junior senior lead"},
            ("salary", 24, 160, 1, "thousand euros"),
            ("experience", 1, 35, 0, "years"),
            ("training", 1, 80, 0, "hours"),
        ),
        _kind(
            "harvests",
            "harvest",
            {"field": "oak river mill church stone", "crop": "wheat rye barley oats maize"},
            ("weight", 1, 90, 1, "tonnes"),
            ("rain", 5, 400, 0, "millimeters"),
            ("area", 1, 60, 1, "hectares"),
        ),
        _kind(
            "bills",
            "bill",
            {"house": "A1 A2 B1 B2 C1 C2", "source": "gas power water heat"},
            ("amount", 10, 600, 2, "euros"),
            ("usage", 20, 3000, 0, "units"),
            ("days", 20, 40, 0, "days"),
        ),
        _kind(
            "loans",
            "loan",
            {"branch": _CITIES, "genre": "crime history poetry travel science"},
            ("days_out", 1, 60, 0, "days"),
            ("pages", 60, 900, 0, "pages"),
            ("fine", 1, 25, 2, "euros"),
        ),
        _kind(
            "trips",
            "trip",
            {"line": "red green blue yellow", "driver": "Kim Lee Novak Okoye Perez"},
            ("riders", 1, 120, 0, "people"),
            ("fuel", 2, 80, 1, "liters"),
            ("length", 3, 300, 1, "kilometers"),
        ),
        # never trained on
        _kind(
            "deliveries",
            "delivery",
            {"depot": "quay dock yard gate", "van": "V1 V2 V3 V4 V5"},
            ("parcels", 1, 90, 0, "parcels"),
            ("weight", 1, 500, 1, "kilograms"),
            ("hours", 1, 12, 1, "hours"),
        ),
        _kind(
            "matches",
            "match",
            {"stadium": "park bridge arena garden", "league": "first second third"},
            ("spectators", 100, 60000, 0, "people"),
            ("goals", 1, 9, 0, "goals"),
            ("fouls", 1, 40, 0, "fouls"),
        ),
    )
}
HELD_OUT_KINDS = frozenset({"deliveries", "matches"})


@dataclass(frozen=True)
class Table:
    """A table: its kind, its columns in the order of the file, and its rows.

    The first number's mean differs between the words of each column of words, and the second number
    follows the first with noise, so that groups and correlations differ.
    """

    kind: TableKind
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def categories(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if name in self.kind.categories)

    @property
    def numbers(self) -> tuple[NumberColumn, ...]:
        return tuple(column for column in self.kind.numbers if column.name in self.columns)

    def csv_bytes(self) -> bytes:
        """The file: a header, then a line for each row; an empty cell has no text."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([row[name] for name in self.columns] for row in self.rows)
        return text.getvalue().encode()


def draw_table(rng: np.random.Generator, kind: TableKind, difficulty: float) -> Table:
    """A table of 12 rows without empty cells at difficulty 0, of 240 at difficulty 1; two or all
    columns of words and two or all of numbers, in an order of its own, and dates of one year.
    """
    count = round(12 + difficulty * (MAX_ROWS - 12))
    few = difficulty < 0.5
    categories = _some(rng, list(kind.categories), 2 if few else len(kind.categories))
    numbers = _some(rng, list(kind.numbers), 2 if few else len(kind.numbers))
    words = {name: _some(rng, kind.categories[name], 4) for name in categories}
    shifts = {(name, word): rng.normal() for name in words for word in words[name]}
    rows: list[dict[str, Value]] = []
    for _ in range(count):
        row: dict[str, Value] = {name: words[name][pick(rng, words[name])] for name in categories}
        row["date"] = f"2024-{int(rng.integers(1, 13)):02d}-{int(rng.integers(1, 29)):02d}"
        level = rng.normal() + sum(shifts[name, str(row[name])] for name in categories)
        for column in numbers:
            row[column.name] = _number(column, level)
            level = 0.7 * level + rng.normal()
        rows.append(row)
    if difficulty > 0.3:
        for row in rows:
            for column in numbers:
                if rng.random() < EMPTY_CELLS:
                    row[column.name] = None
    columns = [*categories, *(column.name for column in numbers), "date"]
    rng.shuffle(columns)
    return Table(kind, tuple(columns), tuple(rows))


def _number(column: NumberColumn, level: float) -> float:
    """A value whose place between the bounds is the logistic function of the level."""
    value = column.low + (column.high - column.low) / (1.0 + float(np.exp(-level)))
    value = max(column.low, round(value, column.decimals))
    return int(value) if column.decimals == 0 else value


def _some(rng: np.random.Generator, items: Sequence[T], count: int) -> list[T]:
    places = rng.permutation(len(items))[:count]
    return [items[int(i)] for i in sorted(places)]


def pick(rng: np.random.Generator, items: Sequence) -> int:
    """The place of a uniform item."""
    return int(rng.integers(len(items)))
