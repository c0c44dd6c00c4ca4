"""`Scene` and `Draft`: what templates of questions read, and what they return."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from agentrl_jax.envs.sql.business import Business
from agentrl_jax.envs.sql.records import Actor, Event, Item, Records
from agentrl_jax.envs.sql.schema import Schema


@dataclass(frozen=True)
class Draft:
    """A question in words, its SQL, and its answer computed from the records.

    Args:
        text: what is asked.
        sql: the reference query.
        rows: the answer, found without SQL.
        entities: the names in the question that belong to a split.
        roles: the tables that the query reads.
        is_ordered: whether an order is asked for.
    """

    text: str
    sql: str
    rows: list[tuple]
    entities: tuple[str, ...]
    roles: tuple[str, ...]
    is_ordered: bool = False


@dataclass(frozen=True)
class Scene:
    """A database and a random generator."""

    schema: Schema
    records: Records
    rng: np.random.Generator

    @property
    def business(self) -> Business:
        return self.schema.business

    @property
    def events(self) -> tuple[Event, ...]:
        return self.records.events

    def event(self) -> Event:
        """A uniform event; a question about what it holds has an answer."""
        return self.events[int(self.rng.integers(len(self.events)))]

    def actor(self) -> Actor:
        return self.records.actors[int(self.rng.integers(len(self.records.actors)))]

    def item(self) -> Item:
        return self.records.items[int(self.rng.integers(len(self.records.items)))]

    def draft(
        self,
        text: str,
        columns: str,
        roles: Sequence[str],
        clauses: str,
        rows: list[tuple],
        *entities: str,
        is_ordered: bool = False,
    ) -> Draft:
        """A question whose query is `SELECT columns FROM ... clauses`."""
        sql = f"SELECT {columns} {self.schema.source(*roles)} {clauses}".strip()
        needed = tuple(self.schema.needed(*roles))
        return Draft(text, sql, rows, entities, needed, is_ordered)


# None: no question of this kind can be asked of this database.
Template = Callable[[Scene], Draft | None]


def rounded(value: Fraction) -> float | None:
    """A value to two decimals; None where it is half way between two."""
    hundredths = value * 100
    if (hundredths * 2).denominator == 1 and hundredths.denominator == 2:
        return None
    return round(hundredths) / 100


def euros(cents: int) -> float:
    """Whole quarters of a euro are exact."""
    return cents / 100
