"""`Schema`: how the records of a business are stored, and SQL expressions that read them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from agentrl_jax.envs.sql.business import BUSINESSES, Business

_SYNONYMS = {
    "actor_name": ("name", "full_name", "display_name"),
    "item_name": ("name", "title", "label"),
    "city": ("city", "town", "place", "location"),
    "joined": ("joined", "since", "start_year", "first_year"),
    "price": ("price", "rate", "tariff", "unit_price"),
    "date": ("day", "event_date", "booked_on", "entry_date"),
    "quantity": ("quantity", "number", "volume", "units"),
    "status": ("status", "state", "outcome", "result"),
}
_ID_STYLES = ("id", "{}_id", "{}_key", "{}_no")
STATUS_FORMS = ("word", "upper", "code")
DATE_FORMS = ("iso", "compact", "dotted", "time")
HINTS = ("name", "column", "notes")  # where the unit of a column is told
_EXTRAS = {"actor": ("email", "phone"), "item": ("rating", "colour"), "event": ("remark", "clerk")}


def literal(text: str) -> str:
    """An SQL string of a text."""
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True)
class Schema:
    """The tables of one database.

    Args:
        business: whose records they hold.
        tables: actor, item, event, and where they are tables of their own city, category, status,
            notes -> table.
        columns: logical name -> column.
        date_form: "iso" 2024-03-09, "compact" 20240309, "dotted" 09.03.2024 or "time", with hours.
        status_form: "word", "upper" (in capitals) or "code", a number that a table explains.
        price_unit: "euro" or "cent".
        size_unit: the measure's large or small unit.
        hint: where units are told, in the column's name, a column of units, or a table of notes.
        first_decoys: whether columns without content stand before those that they resemble.
        extras: further columns of a table.
    """

    business: Business
    tables: Mapping[str, str]
    columns: Mapping[str, str]
    date_form: str
    status_form: str
    price_unit: str
    size_unit: str
    hint: str
    first_decoys: bool
    extras: Mapping[str, tuple[str, ...]]

    def layout(self) -> dict[str, list[tuple[str, str, str]]]:
        """role -> (logical name, column, type) of each column of its table."""
        name = self.columns
        city = (
            ("city_id", name["city"], "INTEGER") if "city" in self.tables else _text(name, "city")
        )
        kind = ("category_id", name["category"], "INTEGER")
        kind = kind if "category" in self.tables else _text(name, "category")
        status = _text(name, "status")
        status = ("status", status[1], "INTEGER") if self.status_form == "code" else status
        number = "REAL" if self.price_unit == "euro" else "INTEGER"
        size = "REAL" if self.size_unit == self.business.measure.large else "INTEGER"
        units = [("price_unit", "currency", "TEXT"), ("size_unit", "measured_in", "TEXT")]
        day = "INTEGER" if self.date_form == "compact" else "TEXT"
        layout = {
            "actor": [
                ("id", name["actor_id"], "INTEGER PRIMARY KEY"),
                _text(name, "actor_name"),
                *self._with_decoy("city", city),
                ("joined", name["joined"], "INTEGER"),
            ],
            "item": [
                ("id", name["item_id"], "INTEGER PRIMARY KEY"),
                _text(name, "item_name"),
                kind,
                ("price", name["price"], number),
                ("size", name["size"], size),
                *(units if self.hint == "column" else []),
            ],
            "event": [
                ("id", name["event_id"], "INTEGER PRIMARY KEY"),
                ("actor", name["event_actor"], self._reference("actor")),
                ("item", name["event_item"], self._reference("item")),
                ("date", name["date"], day),
                ("quantity", name["quantity"], "INTEGER"),
                *self._with_decoy("status", status),
            ],
        }
        for role, extras in self.extras.items():
            layout[role] += [(extra, extra, "TEXT") for extra in extras]
        for role in ("city", "category", "status"):
            if role in self.tables:
                layout[role] = [("id", "id", "INTEGER PRIMARY KEY"), ("word", "name", "TEXT")]
        if "notes" in self.tables:
            layout["notes"] = [("column", "column_name", "TEXT"), ("meaning", "meaning", "TEXT")]
        return layout

    def _reference(self, role: str) -> str:
        return f"INTEGER REFERENCES {self.tables[role]}({self.columns[f'{role}_id']})"

    def _with_decoy(self, role: str, column: tuple[str, str, str]) -> list[tuple[str, str, str]]:
        decoy = self.columns.get(f"{role}_decoy")
        if decoy is None:
            return [column]
        pair = [(f"{role}_decoy", decoy, "TEXT"), column]
        return pair if self.first_decoys else pair[::-1]

    def statements(self, roles: Sequence[str] = ()) -> list[str]:
        """CREATE TABLE of each table, or of those of some roles."""
        return [
            f"CREATE TABLE {self.tables[role]} ({', '.join(f'{c} {t}' for _, c, t in columns)})"
            for role, columns in self.layout().items()
            if not roles or role in roles
        ]

    def field(self, name: str) -> str:
        """The SQL expression of a value, in tables with the aliases of `source`."""
        column, measure = self.columns, self.business.measure
        date = f"e.{column['date']}"
        places = {"dotted": (7, 4), "iso": (1, 6), "time": (1, 6)}
        match name:
            case "actor" | "item":
                return f"{name[0]}.{column[f'{name}_name']}"
            case "city":
                return "p.name" if "city" in self.tables else f"a.{column['city']}"
            case "category":
                return "c.name" if "category" in self.tables else f"i.{column['category']}"
            case "price":
                cents = f"i.{column['price']} / 100.0"
                return cents if self.price_unit == "cent" else f"i.{column['price']}"
            case "size":
                small = f"i.{column['size']} / {measure.factor}.0"
                return small if self.size_unit == measure.small else f"i.{column['size']}"
            case "year" if self.date_form == "compact":
                return f"{date} / 10000"
            case "month" if self.date_form == "compact":
                return f"{date} / 100 % 100"
            case "year":
                return f"CAST(substr({date}, {places[self.date_form][0]}, 4) AS INTEGER)"
            case "month":
                return f"CAST(substr({date}, {places[self.date_form][1]}, 2) AS INTEGER)"
            case "cost":
                return f"e.{column['quantity']} * {self.field('price')}"
            case "quantity" | "event_actor" | "event_item":
                return f"e.{column[name]}"
            case "joined" | "actor_id":
                return f"a.{column[name]}"
            case "item_id":
                return f"i.{column[name]}"
        raise KeyError(name)

    def is_status(self, word: str) -> str:
        """The SQL condition that an event has a status."""
        if self.status_form == "code":
            return f"s.name = {literal(word)}"
        value = word.upper() if self.status_form == "upper" else word
        return f"e.{self.columns['status']} = {literal(value)}"

    def source(self, *roles: str) -> str:
        """FROM and JOIN of the tables that hold some roles, and of those on the way to them."""
        needed = self.needed(*roles)
        column, table = self.columns, self.tables
        joins = {
            "actor": f"{table['actor']} AS a ON a.{column['actor_id']} = e.{column['event_actor']}",
            "item": f"{table['item']} AS i ON i.{column['item_id']} = e.{column['event_item']}",
            "city": f"{table.get('city')} AS p ON p.id = a.{column['city']}",
            "category": f"{table.get('category')} AS c ON c.id = i.{column['category']}",
            "status": f"{table.get('status')} AS s ON s.id = e.{column['status']}",
        }
        first, *others = needed
        return " JOIN ".join(
            [f"FROM {table[first]} AS {first[0]}", *(joins[role] for role in others)]
        )

    def needed(self, *roles: str) -> list[str]:
        """The roles of the tables that are joined for some roles, in their order."""
        needs = set(roles)
        needs |= {"actor"} if "city" in needs else set()
        needs |= {"item"} if "category" in needs else set()
        needs |= {"event"} if "status" in needs or {"actor", "item"} <= needs else set()
        order = ("event", "actor", "item", "city", "category", "status")
        return [role for role in order if role in needs and role in self.tables]

    def notes(self) -> dict[str, str]:
        """column -> what its content means, where that must be looked up."""
        column, measure = self.columns, self.business.measure
        dates = {"iso": "year-month-day", "compact": "a number, year month day"}
        dates |= {"dotted": "day.month.year", "time": "year-month-day and a time"}
        notes = {
            column["price"]: f"in {self.price_unit}s",
            column["size"]: f"{measure.name} in {self.size_unit}",
            column["date"]: dates[self.date_form],
        }
        statuses = {"upper": "in capitals", "code": "a number of the table of statuses"}
        notes[column["status"]] = statuses.get(self.status_form, "a word")
        for role in ("city", "status"):
            if decoy := column.get(f"{role}_decoy"):
                notes[decoy] = "without content"
        return notes


def _text(columns: Mapping[str, str], name: str) -> tuple[str, str, str]:
    return name, columns[name], "TEXT"


def draw_schema(business: str, index: int) -> Schema:
    """The schema of that index of a business; a function of the two."""
    kind = BUSINESSES[business]
    rng = np.random.default_rng([index, *business.encode()])

    def pick(values: Sequence[str]) -> str:
        return values[int(rng.integers(len(values)))]

    nouns = {"actor": kind.actor, "item": kind.item, "event": kind.event}
    tables = {role: pick(noun.tables) for role, noun in nouns.items()}
    status_form, hint, id_style = pick(STATUS_FORMS), pick(HINTS), pick(_ID_STYLES)
    word = kind.category.replace(" ", "_")
    if rng.random() < 0.5:
        tables["city"] = pick(("cities", "places_list", "towns"))
    if rng.random() < 0.5:
        tables["category"] = pick((f"{word}_list", f"{word}_names", "categories"))
    if status_form == "code":
        tables["status"] = pick(("status_codes", "states", "outcomes"))
    if hint == "notes":
        tables["notes"] = pick(("column_notes", "data_dictionary"))
    columns = {role: pick(names) for role, names in _SYNONYMS.items()}
    columns["category"] = pick((word, "kind", "category"))
    columns["size"] = pick((kind.measure.name, "size"))
    for role, noun in nouns.items():
        columns[f"{role}_id"] = id_style.format(noun.singular)
    for role in ("actor", "item"):
        columns[f"event_{role}"] = f"{nouns[role].singular}_{pick(('id', 'ref'))}"
    for role in ("city", "status"):
        if rng.random() < 0.6:
            columns[f"{role}_decoy"] = pick([n for n in _SYNONYMS[role] if n != columns[role]])
    price_unit = pick(("euro", "cent"))
    size_unit = pick((kind.measure.large, kind.measure.small))
    if hint == "name":
        columns["price"] += "_eur" if price_unit == "euro" else "_cents"
        columns["size"] += f"_{size_unit}"
    extras = {
        role: tuple(n for n in names if rng.random() < 0.4) for role, names in _EXTRAS.items()
    }
    prefix = pick(("", "", "tbl_", f"{business}_"))
    capital = rng.random() < 0.3
    style = (lambda name: name.title().replace("_", "")) if capital else str
    return Schema(
        kind,
        MappingProxyType({role: style(f"{prefix}{name}") for role, name in tables.items()}),
        MappingProxyType({role: style(name) for role, name in columns.items()}),
        pick(DATE_FORMS),
        status_form,
        price_unit,
        size_unit,
        hint,
        bool(rng.random() < 0.5),
        MappingProxyType(extras),
    )
