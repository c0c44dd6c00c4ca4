"""The table of templates, their splits, and draws of questions that belong to a split."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from agentrl_jax.envs.options import checked_choice
from agentrl_jax.envs.sql import grouped_questions, plain_questions
from agentrl_jax.envs.sql.business import BUSINESSES
from agentrl_jax.envs.sql.records import Records, build_image, draw_records
from agentrl_jax.envs.sql.schema import Schema, draw_schema
from agentrl_jax.envs.sql.templates import Draft, Scene, Template
from agentrl_jax.errors import EnvironmentFailure, UserError

SPLITS = ("train", "schemas", "templates", "entities")
NUM_CONTENTS = 1000  # different records of a schema and number of events
_ONE_IN = 6  # schemas and entities that are held out
_MAX_DRAWS = 2000
_DRAWS_A_DATABASE = 20


@dataclass(frozen=True)
class TemplateEntry:
    """A template, its level from 1 to 4, and whether it is never trained on."""

    name: str
    level: int
    draft: Template
    is_held_out: bool


def _entries(
    level: int, trained: Sequence[Callable], held_out: Sequence[Callable]
) -> list[TemplateEntry]:
    return [TemplateEntry(f.__name__, level, f, False) for f in trained] + [
        TemplateEntry(f.__name__, level, f, True) for f in held_out
    ]


_plain, _grouped = plain_questions, grouped_questions
TEMPLATES = {
    entry.name: entry
    for entry in (
        *_entries(
            1,
            (
                _plain.items_of_category,
                _plain.actors_of_city,
                _plain.size_of_item,
                _plain.dear_items,
            ),
            (_plain.actors_joined_before,),
        ),
        *_entries(
            2,
            (
                _plain.events_of_actor_in_year,
                _plain.cost_of_actor,
                _plain.status_in_city,
                _plain.quantity_in_month,
                _plain.mean_price,
            ),
            (_plain.items_used_in_city,),
        ),
        *_entries(
            3,
            (
                _grouped.events_per_category,
                _grouped.cost_per_city,
                _grouped.busy_actors,
                _grouped.first_items,
            ),
            (_grouped.mean_quantity_per_year,),
        ),
        *_entries(
            4,
            (
                _grouped.actors_without_category,
                _grouped.above_mean_price,
                _grouped.dearest_actors,
                _grouped.more_than_year_before,
            ),
            (_grouped.share_of_status,),
        ),
    )
}


@dataclass(frozen=True)
class DatabaseKey:
    """A generated database: everything about it follows from this."""

    business: str
    index: int  # of the schema
    content: int  # of the records, from 0 to NUM_CONTENTS - 1
    num_events: int


@dataclass(frozen=True)
class Question:
    """A question on a database.

    Args:
        text: what is asked.
        sql: the reference query.
        database: a generated one, or the name of one in a folder.
        template: of which it is made; "" in a folder.
        entities: names in it that belong to a split.
        tables: that the reference query reads; empty: all.
        evidence: what the content of columns means.
        is_ordered: whether an order is asked for.
        looks: queries that show what must be known of the content.
    """

    text: str
    sql: str
    database: DatabaseKey | str
    template: str = ""
    entities: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    evidence: str = ""
    is_ordered: bool = False
    looks: tuple[str, ...] = ()


@lru_cache(maxsize=512)
def schema_of(business: str, index: int) -> Schema:
    """The schema of that index of a business."""
    return draw_schema(business, index)


@lru_cache(maxsize=64)
def records_of(key: DatabaseKey) -> Records:
    """The records of a generated database."""
    seed = [key.content, key.index, key.num_events, *key.business.encode()]
    return draw_records(BUSINESSES[key.business], np.random.default_rng(seed), key.num_events)


@lru_cache(maxsize=64)
def image_of(key: DatabaseKey) -> bytes:
    """The SQLite file of a generated database."""
    return build_image(schema_of(key.business, key.index), records_of(key))


def is_held_out(text: str) -> bool:
    """Whether a schema's statements or an entity's name are never trained on: by their hash."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % _ONE_IN == 0


@cache
def split_schemas(
    split: str, businesses: tuple[str, ...], number: int
) -> tuple[tuple[str, int], ...]:
    """Business and index of the schemas of a split, of so many of each business.

    Raises:
        UserError: there is no such split or business, or the split has no schema of them.
    """
    checked_choice("split", split, SPLITS)
    for name in businesses:
        if name not in BUSINESSES:
            raise UserError(f"there is no business {name!r}; there are {', '.join(BUSINESSES)}")
    keys = [(name, i) for name in businesses or BUSINESSES for i in range(number)]
    chosen = tuple(
        key
        for key in keys
        if is_held_out("\n".join(schema_of(*key).statements())) == (split == "schemas")
    )
    if not chosen:
        raise UserError(f"no schema belongs to the split {split!r}: take more schemas")
    return chosen


def level_of(difficulty: float) -> int:
    """The highest level of the questions of a difficulty from 0 to 1."""
    return 1 + round(3 * difficulty)


def num_events_of(difficulty: float) -> int:
    """The events in a database of a difficulty from 0 to 1."""
    return 24 + round(160 * difficulty)


def split_templates(split: str, level: int) -> list[TemplateEntry]:
    """The templates of a split, up to a level."""
    held_out = split == "templates"
    return [e for e in TEMPLATES.values() if e.level <= level and e.is_held_out == held_out]


def draw_question(
    rng: np.random.Generator,
    split: str,
    difficulty: float,
    businesses: tuple[str, ...] = (),
    schemas: int = 24,
) -> Question:
    """A question of the split, on a uniform schema and by a uniform template.

    Raises:
        EnvironmentFailure: no question of the split was drawn.
    """
    keys = split_schemas(split, businesses, schemas)
    entries = split_templates(split, level_of(difficulty))
    key = None
    for i in range(_MAX_DRAWS):
        if key is None or i % _DRAWS_A_DATABASE == 0:
            business, index = keys[int(rng.integers(len(keys)))]
            content = int(rng.integers(NUM_CONTENTS))
            key = DatabaseKey(business, index, content, num_events_of(difficulty))
        entry = entries[int(rng.integers(len(entries)))]
        scene = Scene(schema_of(key.business, key.index), records_of(key), rng)
        draft = entry.draft(scene)
        if draft is not None and all(
            is_held_out(name) == (split == "entities") for name in draft.entities
        ):
            return question_of(draft, entry.name, key)
    raise EnvironmentFailure(f"no question of the split {split!r} was drawn: take more schemas")


def question_of(draft: Draft, template: str, key: DatabaseKey) -> Question:
    """The question of a draft, with what its columns mean and where to see it."""
    schema = schema_of(key.business, key.index)
    evidence = "; ".join(f"{column}: {meaning}" for column, meaning in schema.notes().items())
    notes = [schema.tables["notes"]] if "notes" in schema.tables else []
    looks = [f"SELECT * FROM {table}" for table in notes]
    looks += [f"SELECT * FROM {schema.tables[role]} LIMIT 3" for role in draft.roles]
    return Question(
        draft.text,
        draft.sql,
        key,
        template,
        draft.entities,
        tuple(schema.tables[role] for role in draft.roles) + tuple(notes),
        evidence,
        draft.is_ordered,
        tuple(looks),
    )


def split_overlap(questions: int, difficulty: float = 1.0, seed: int = 0) -> dict[str, int]:
    """What training shares with each held-out split, of so many questions drawn in each.

    Returns:
        schemas, templates, entities: how many of that split's are also trained on; questions: how
        many texts on the same database are in two splits.
    """
    samples: dict[str, list[Question]] = {}
    for i, split in enumerate(SPLITS):
        rng = np.random.default_rng([seed, i])
        samples[split] = [draw_question(rng, split, difficulty) for _ in range(questions)]

    def seen(split: str, axis: Callable[[Question], Sequence]) -> set:
        return {value for question in samples[split] for value in axis(question)}

    def statements(question: Question) -> list[str]:
        assert isinstance(question.database, DatabaseKey)
        schema = schema_of(question.database.business, question.database.index)
        return ["\n".join(schema.statements())]

    axes: dict[str, Callable[[Question], Sequence]] = {
        "schemas": statements,
        "templates": lambda q: [q.template],
        "entities": lambda q: q.entities,
    }
    shared = {split: len(seen("train", axis) & seen(split, axis)) for split, axis in axes.items()}
    texts = [{(q.text, q.database) for q in samples[split]} for split in SPLITS]
    shared["questions"] = sum(map(len, texts)) - len(set.union(*texts))
    return shared
