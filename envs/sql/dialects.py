"""The databases that hold the same records: SQLite, and DuckDB as an extra."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from agentrl_jax.envs.options import checked_choice
from agentrl_jax.envs.sql.duckdb_database import DuckdbDatabase, package_folder
from agentrl_jax.envs.sql.questions import DatabaseKey, image_of, records_of, schema_of
from agentrl_jax.envs.sql.read_only_database import QueryLimits, ReadOnlyDatabase
from agentrl_jax.envs.sql.records import table_rows
from agentrl_jax.envs.sql.sqlite_database import SqliteDatabase
from agentrl_jax.errors import UserError


def open_sqlite(key: DatabaseKey, limits: QueryLimits) -> SqliteDatabase:
    """A generated database in SQLite."""
    return SqliteDatabase(image_of(key), limits)


def open_duckdb(key: DatabaseKey, limits: QueryLimits) -> DuckdbDatabase:
    """A generated database in DuckDB. Raises UserError where the package is not installed."""
    schema = schema_of(key.business, key.index)
    # REAL has 4 bytes in DuckDB and 8 in SQLite.
    statements = [re.sub(r"\bREAL\b", "DOUBLE", text) for text in schema.statements()]
    rows = table_rows(schema, records_of(key))
    columns = {table: [list(values) for values in zip(*rows[table])] for table in rows}
    return DuckdbDatabase(statements, columns, limits)


DIALECTS: Mapping[str, Callable[[DatabaseKey, QueryLimits], ReadOnlyDatabase]] = MappingProxyType(
    {"sqlite": open_sqlite, "duckdb": open_duckdb}
)


def checked_dialect(dialect: str, limits: QueryLimits, folder: str) -> str:
    """The dialect. Raises UserError where it is not known, not installed, or cannot be had with
    the limit of steps or the folder.
    """
    checked_choice("dialect", dialect, DIALECTS)
    if dialect == "duckdb":
        package_folder()
        if limits.steps != QueryLimits.steps:
            raise UserError("steps are counted by SQLite alone: set seconds for the dialect duckdb")
        if folder:
            raise UserError("a folder holds databases of SQLite: leave out the dialect duckdb")
    return dialect
