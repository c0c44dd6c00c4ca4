"""`SqliteDatabase`: SQLite within this process that only reads."""

import sqlite3
import time
from pathlib import Path

from agentrl_jax.envs.sql.read_only_database import (
    DEFAULT_LIMITS,
    MAX_SQL,
    RESULT_SIZE,
    QueryLimits,
    QueryResult,
    ReadOnlyDatabase,
    one_line,
)
from agentrl_jax.errors import EnvironmentFailure, UserError

# Functions that return little more than they are given. Not in the list: what makes large values
# of small ones (printf, replace, zeroblob), reads or loads files, or differs from call to call.
FUNCTIONS = frozenset(
    {
        "abs", "avg", "cast", "ceil", "ceiling", "coalesce", "count", "cume_dist", "date",
        "dense_rank", "first_value", "floor", "glob", "group_concat", "ifnull", "iif", "instr",
        "julianday", "lag", "last_value", "lead", "length", "like", "lower", "ltrim", "max", "min",
        "nth_value", "ntile", "nullif", "percent_rank", "rank", "round", "row_number", "rtrim",
        "sign", "strftime", "substr", "substring", "sum", "total", "trim", "typeof", "unicode",
        "upper",
    }
)  # fmt: skip
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_ACTIONS = {
    getattr(sqlite3, name): name.removeprefix("SQLITE_").replace("_", " ")
    for name in dir(sqlite3)
    if name.startswith(("SQLITE_CREATE", "SQLITE_DROP", "SQLITE_ALTER"))
    or name
    in (
        "SQLITE_ATTACH", "SQLITE_DETACH", "SQLITE_DELETE", "SQLITE_INSERT", "SQLITE_UPDATE",
        "SQLITE_PRAGMA", "SQLITE_TRANSACTION", "SQLITE_SAVEPOINT", "SQLITE_REINDEX",
        "SQLITE_ANALYZE",
    )
}  # fmt: skip
_STEPS_A_CHECK = 1000
_HEAP = 256 * 2**20  # bytes that SQLite may hold in a process, all databases together


class SqliteDatabase(ReadOnlyDatabase):
    """A connection of SQLite on which only SELECT runs.

    An authorizer allows SELECT, reads, recursion and the functions of `FUNCTIONS`; nothing writes,
    so there is nothing to roll back.

    Args:
        source: the content of a database file, or the path of one, which is opened read-only.
        limits: of each query.

    Raises:
        UserError: the file cannot be read as a database.
    """

    def __init__(self, source: bytes | Path, limits: QueryLimits = DEFAULT_LIMITS) -> None:
        super().__init__(limits)
        self._denied = self._exceeded = ""
        self._read: set[str] = set()  # tables of the last query
        self._steps, self._deadline = 0, 0.0
        try:
            self._connection = self._open(source)
            self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            raise UserError(
                f"{source if isinstance(source, Path) else 'the database'} cannot be read as a "
                f"SQLite database: {error}"
            ) from error
        self._connection.set_authorizer(self._authorize)
        self._connection.set_progress_handler(self._check_progress, _STEPS_A_CHECK)

    def _open(self, source: bytes | Path) -> sqlite3.Connection:
        if isinstance(source, Path):
            address = f"{source.resolve().as_uri()}?mode=ro&immutable=1"
            connection = sqlite3.connect(
                address, uri=True, isolation_level=None, check_same_thread=False
            )
        else:
            connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            connection.deserialize(source)
        connection.text_factory = lambda data: data.decode(errors="replace")
        for category, value in (
            (sqlite3.SQLITE_LIMIT_LENGTH, self.limits.cell_bytes),
            (sqlite3.SQLITE_LIMIT_SQL_LENGTH, MAX_SQL),
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
            (sqlite3.SQLITE_LIMIT_COLUMN, 500),
            (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 100),
            (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 50),
            (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200),
            (sqlite3.SQLITE_LIMIT_FUNCTION_ARG, 50),
            (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
        ):
            connection.setlimit(category, value)
        # Sorted and temporary rows stay in memory, where the limit of the heap counts them.
        for pragma in ("query_only=ON", "temp_store=MEMORY", f"hard_heap_limit={_HEAP}"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        return connection

    def _authorize(self, action: int, first: str | None, second: str | None, *_: object) -> int:
        if action in _ALLOWED:
            if action == sqlite3.SQLITE_READ and first:
                self._read.add(first)
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION:
            if (second or "").lower() in FUNCTIONS:
                return sqlite3.SQLITE_OK
            self._denied = self._denied or f"the function {second} is not allowed"
        else:
            kind = _ACTIONS.get(action, "this statement")
            self._denied = self._denied or f"only SELECT is allowed, not {kind}"
        return sqlite3.SQLITE_DENY

    def _check_progress(self) -> bool:
        """Whether the query is stopped."""
        self._steps += _STEPS_A_CHECK
        if self._steps > self.limits.steps:
            self._exceeded = f"the query was stopped after {self.limits.steps} steps"
        elif time.monotonic() > self._deadline:
            self._exceeded = f"the query was stopped after {self.limits.seconds:g} s"
        return bool(self._exceeded)

    def _run(self, sql: str) -> QueryResult:
        self._denied = self._exceeded = ""
        self._read = set()
        self._steps, self._deadline = 0, time.monotonic() + self.limits.seconds
        cursor = self._connection.cursor()
        try:
            return self._fetch(cursor.execute(sql))
        except MemoryError:
            return QueryResult(error="the query needs too much memory")
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            return QueryResult(error=self._explain(error))
        finally:
            cursor.close()

    def tables_read(self, sql: str) -> tuple[str, ...]:
        """The tables that a SELECT reads, in the order of the schema; none of one that fails."""
        tables = self.tables()
        is_valid = self.query(sql).error is None
        return tuple(name for name in tables if is_valid and name in self._read)

    def _fetch(self, cursor: sqlite3.Cursor) -> QueryResult:
        if cursor.description is None:
            return QueryResult(error="only SELECT is allowed")
        rows, size = [], 0
        for row in cursor:
            size += sum(len(value) for value in row if isinstance(value, str | bytes))
            if len(rows) == self.limits.rows or size > RESULT_SIZE:
                return QueryResult(_names(cursor), tuple(rows), is_cut=True)
            rows.append(row)
        return QueryResult(_names(cursor), tuple(rows))

    def _explain(self, error: Exception) -> str:
        code = getattr(error, "sqlite_errorcode", 0) & 255
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOTADB):
            raise EnvironmentFailure(f"the database cannot be read: {error}") from error
        if self._exceeded or self._denied:
            return self._exceeded or self._denied
        return one_line(str(error))

    def close(self) -> None:
        self._connection.close()


def _names(cursor: sqlite3.Cursor) -> tuple[str, ...]:
    return tuple(column[0] for column in cursor.description)
