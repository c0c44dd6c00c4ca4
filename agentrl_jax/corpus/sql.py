"""Queries over a small table, with the result that SQLite gives."""

import sqlite3
from collections.abc import Sequence

import numpy as np

from agentrl_jax.corpus.exercise import Exercise, text_exercise
from agentrl_jax.corpus.words import CITIES, FOODS, PEOPLE, choice, integer, sample

Row = tuple[str, str, int]
COLUMNS = {
    "people": ("name", "city", "age"),
    "stock": ("item", "city", "count"),
    "games": ("player", "city", "points"),
}


def sql(rng: np.random.Generator) -> Exercise:
    """A table, a query, and its rows with "|" between the values; "none" without rows."""
    table = choice(rng, tuple(COLUMNS))
    rows = _sample_rows(rng, table)
    query = _sample_query(rng, table, rows)
    table_text = "\n".join("|".join(map(str, row)) for row in (COLUMNS[table], *rows))
    return text_exercise(
        f"Table {table}:\n{table_text}\nSQL: {query}\n", run_query(table, rows, query)
    )


def run_query(table: str, rows: Sequence[Row], query: str) -> str:
    """The result of the query in a database with this table alone."""
    key, city, number = COLUMNS[table]
    with sqlite3.connect(":memory:") as database:
        database.execute(f"CREATE TABLE {table} ({key} TEXT, {city} TEXT, {number} INTEGER)")
        database.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
        result = database.execute(query).fetchall()
    database.close()
    return "\n".join("|".join(map(str, row)) for row in result) or "none"


def _sample_rows(rng: np.random.Generator, table: str) -> list[Row]:
    """Three to six rows; no number occurs twice, so that every order is unique."""
    count = integer(rng, 3, 6)
    keys = sample(rng, FOODS if table == "stock" else PEOPLE, count)
    cities, numbers = sample(rng, CITIES, 3), sample(rng, range(1, 100), count)
    return [(key, choice(rng, cities), number) for key, number in zip(keys, numbers)]


def _sample_query(rng: np.random.Generator, table: str, rows: Sequence[Row]) -> str:
    key, place, number = COLUMNS[table]
    name, city, bound = choice(rng, rows)[0], choice(rng, rows)[1], choice(rng, rows)[2]
    order = choice(rng, ("ASC", "DESC"))
    total = choice(rng, ("MAX", "MIN", "SUM"))
    return choice(
        rng,
        (
            f"SELECT {number} FROM {table} WHERE {key} = '{name}';",
            f"SELECT {place}, {number} FROM {table} WHERE {key} = '{name}';",
            f"SELECT {key} FROM {table} WHERE {place} = '{city}' ORDER BY {number} {order};",
            f"SELECT {key} FROM {table} WHERE {number} > {bound} ORDER BY {number} {order};",
            f"SELECT COUNT(*) FROM {table} WHERE {place} = '{city}';",
            f"SELECT {total}({number}) FROM {table};",
            f"SELECT {key} FROM {table} ORDER BY {number} {order} LIMIT {integer(rng, 1, 2)};",
            f"SELECT {place}, COUNT(*) FROM {table} GROUP BY {place} ORDER BY {place};",
        ),
    )
