"""The records of a business, and how a schema stores them in SQLite."""

import sqlite3
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.envs.sql.business import Business
from agentrl_jax.envs.sql.schema import Schema

FIRST_NAMES = (
    "Ada", "Ben", "Clara", "David", "Emma", "Felix", "Greta", "Hugo", "Ida", "Jonas", "Kira", "Leo",
    "Mara", "Nils", "Olga", "Paul", "Rosa", "Simon", "Tara", "Viktor",
)  # fmt: skip
LAST_NAMES = (
    "Berg", "Costa", "Dahl", "Egger", "Fuchs", "Grant", "Hansen", "Ivanov", "Jansen", "Keller",
    "Lopez", "Moreau", "Novak", "Olsen", "Peters", "Rossi", "Silva", "Turner", "Vidal", "Weber",
)  # fmt: skip
CITIES = (
    "Bern", "Oslo", "Porto", "Lyon", "Graz", "Turku", "Cork", "Gent", "Malmo", "Split", "Leeds",
    "Bari", "Ulm", "Vigo", "Riga", "Brno",
)  # fmt: skip
_ADJECTIVES = (
    "Red", "Blue", "Old", "Quiet", "Golden", "Swift", "Little", "Northern", "Open", "Bright",
)  # fmt: skip
_THINGS = (
    "Harbour", "Garden", "Star", "River", "Stone", "Window", "Forest", "Bridge", "Lantern", "Field",
)  # fmt: skip
YEARS = (2021, 2022, 2023, 2024)


@dataclass(frozen=True)
class Actor:
    """A person of the business."""

    id: int
    name: str
    city: str
    joined: int


@dataclass(frozen=True)
class Item:
    """What the business offers; `size` is in the measure's small unit."""

    id: int
    name: str
    category: str
    cents: int
    size: int


@dataclass(frozen=True)
class Event:
    """A person and an item, on a day."""

    id: int
    actor: Actor
    item: Item
    year: int
    month: int
    day: int
    quantity: int
    status: str

    @property
    def cents(self) -> int:
        return self.quantity * self.item.cents


@dataclass(frozen=True)
class Records:
    """All that a database holds, apart from how it is stored."""

    actors: tuple[Actor, ...]
    items: tuple[Item, ...]
    events: tuple[Event, ...]


def draw_records(business: Business, rng: np.random.Generator, num_events: int) -> Records:
    """Records with so many events; names are unique, prices are whole quarters of a euro."""

    def pick(values: tuple) -> object:
        return values[int(rng.integers(len(values)))]

    num_actors, num_items = 6 + num_events // 8, 6 + num_events // 10
    cities = tuple(CITIES[i] for i in rng.permutation(len(CITIES))[:5])
    people = rng.permutation(len(FIRST_NAMES) * len(LAST_NAMES))[:num_actors]
    goods = rng.permutation(len(_ADJECTIVES) * len(_THINGS))[:num_items]
    actors = tuple(
        Actor(
            i + 1,
            f"{FIRST_NAMES[k % len(FIRST_NAMES)]} {LAST_NAMES[k // len(FIRST_NAMES)]}",
            str(pick(cities)),
            int(rng.integers(2010, 2021)),
        )
        for i, k in enumerate(map(int, people))
    )
    step = business.measure.factor // 4
    items = tuple(
        Item(
            i + 1,
            f"{_ADJECTIVES[k % len(_ADJECTIVES)]} {_THINGS[k // len(_ADJECTIVES)]}",
            str(pick(business.categories)),
            25 * int(rng.integers(4, 400)),
            step * int(rng.integers(1, 60)),
        )
        for i, k in enumerate(map(int, goods))
    )
    # Some people and items have no event.
    active, offered = actors[: num_actors - 2], items[: num_items - 1]
    events = tuple(
        Event(
            i + 1,
            active[int(rng.integers(len(active)))],
            offered[int(rng.integers(len(offered)))],
            YEARS[int(rng.integers(len(YEARS)))],
            int(rng.integers(1, 13)),
            int(rng.integers(1, 29)),
            int(rng.integers(1, 9)),
            str(pick(business.statuses)),
        )
        for i in range(num_events)
    )
    return Records(actors, items, events)


def stored_date(event: Event, form: str) -> str | int:
    """The day of an event as a schema writes it."""
    year, month, day = event.year, event.month, event.day
    if form == "compact":
        return year * 10000 + month * 100 + day
    if form == "dotted":
        return f"{day:02}.{month:02}.{year}"
    clock = f" {9 + event.id % 9:02}:{event.id * 7 % 60:02}" if form == "time" else ""
    return f"{year}-{month:02}-{day:02}{clock}"


def stored_rows(schema: Schema, records: Records) -> dict[str, list[dict[str, Any]]]:
    """role -> rows, each a value for each logical name of the table."""
    kind, decoy = schema.business, {"city_decoy": None, "status_decoy": "n/a"}
    cities = sorted({actor.city for actor in records.actors})
    money, large = schema.price_unit == "euro", schema.size_unit == kind.measure.large
    status: dict[str, str | int] = {word: word for word in kind.statuses}
    if schema.status_form != "word":
        code = schema.status_form == "code"
        status = {w: i + 1 if code else w.upper() for i, w in enumerate(kind.statuses)}
    units = {"price_unit": schema.price_unit, "size_unit": schema.size_unit}
    return {
        "actor": [
            {"id": a.id, "actor_name": a.name, "city": a.city, "joined": a.joined, **decoy}
            | {"city_id": cities.index(a.city) + 1}
            | {"email": f"p{a.id}@mail.test", "phone": f"555-{a.id:04}"}
            for a in records.actors
        ],
        "item": [
            {"id": i.id, "item_name": i.name, "category": i.category, **units}
            | {"category_id": kind.categories.index(i.category) + 1}
            | {"price": i.cents / 100 if money else i.cents}
            | {"size": i.size / kind.measure.factor if large else i.size}
            | {"rating": str(i.id % 5 + 1), "colour": ("grey", "green")[i.id % 2]}
            for i in records.items
        ],
        "event": [
            {"id": e.id, "actor": e.actor.id, "item": e.item.id, "quantity": e.quantity, **decoy}
            | {"date": stored_date(e, schema.date_form), "status": status[e.status]}
            | {"remark": "", "clerk": f"C{e.id % 4}"}
            for e in records.events
        ],
        "city": [{"id": i + 1, "word": city} for i, city in enumerate(cities)],
        "category": [{"id": i + 1, "word": word} for i, word in enumerate(kind.categories)],
        "status": [{"id": i + 1, "word": word} for i, word in enumerate(kind.statuses)],
        "notes": [{"column": c, "meaning": m} for c, m in schema.notes().items()],
    }


def table_rows(schema: Schema, records: Records) -> dict[str, list[list[Any]]]:
    """table -> rows, each with the values of its columns in order."""
    rows = stored_rows(schema, records)
    return {
        schema.tables[role]: [[row[logical] for logical, _, _ in columns] for row in rows[role]]
        for role, columns in schema.layout().items()
    }


def build_image(schema: Schema, records: Records) -> bytes:
    """The SQLite file of the records."""
    connection = sqlite3.connect(":memory:")
    for statement in schema.statements():
        connection.execute(statement)
    for table, rows in table_rows(schema, records).items():
        connection.executemany(
            f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows
        )
    connection.commit()
    image = connection.serialize()
    connection.close()
    return image
