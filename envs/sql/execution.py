"""`ReadOnlyDatabase`: SQLite that answers one SELECT at a time, within limits."""

import sqlite3
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from agentrl_jax.envs.options import checked_int
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
_RESULT_SIZE = 10_000_000  # characters of the texts of a result
# One query at a time in a process, so that memory is charged to the query that takes it.
_LOCK = threading.Lock()


@dataclass(frozen=True)
class QueryLimits:
    """Limits of one query.

    Args:
        steps: instructions of SQLite's virtual machine.
        seconds: of wall time.
        rows: of a result.
        cell_bytes: of a value, and of a row.
    """

    steps: int = 2_000_000
    seconds: float = 5.0
    rows: int = 1000
    cell_bytes: int = 100_000


def checked_limits(steps: int, seconds: float, rows: int) -> QueryLimits:
    """The limits where they are in range. Raises UserError, which names the one that is not."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise UserError(f"seconds must be a positive number, not {seconds!r}")
    return QueryLimits(
        checked_int("steps", steps, 1000, 10**12),
        float(seconds),
        checked_int("rows", rows, 1, 10**6),
    )


@dataclass(frozen=True)
class QueryResult:
    """What a query returned: columns and rows, or an error that the agent reads."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple, ...] = ()
    error: str | None = None
    is_cut: bool = False  # there were more rows


class ReadOnlyDatabase:
    """A connection on which only SELECT runs.

    An authorizer allows SELECT, reads, recursion and the functions of `FUNCTIONS`; nothing writes,
    so there is nothing to roll back. A limit that is exceeded is an error of the query; a database
    that cannot be read is a failure of the environment.

    Args:
        source: the content of a database file, or the path of one, which is opened read-only.
        limits: of each query.

    Raises:
        UserError: the file cannot be read as a database.
    """

    def __init__(self, source: bytes | Path, limits: QueryLimits = QueryLimits()) -> None:
        self.limits = limits
        self._denied = self._exceeded = ""
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
            (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 10_000),
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

    def query(self, sql: str) -> QueryResult:
        """The result of a SELECT.

        Raises:
            EnvironmentFailure: the database is damaged or cannot be read.
        """
        with _LOCK:
            self._denied = self._exceeded = ""
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

    def tables(self) -> dict[str, str]:
        """Name and CREATE TABLE statement of each table.

        Raises:
            EnvironmentFailure: they cannot be read.
        """
        result = self.query(
            "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND sql != ''"
        )
        if result.error:
            raise EnvironmentFailure(f"the schema cannot be read: {result.error}")
        return {str(name): str(statement) for name, statement in result.rows}

    def _fetch(self, cursor: sqlite3.Cursor) -> QueryResult:
        if cursor.description is None:
            return QueryResult(error="only SELECT is allowed")
        rows, size = [], 0
        for row in cursor:
            size += sum(len(value) for value in row if isinstance(value, str | bytes))
            if len(rows) == self.limits.rows or size > _RESULT_SIZE:
                return QueryResult(_names(cursor), tuple(rows), is_cut=True)
            rows.append(row)
        return QueryResult(_names(cursor), tuple(rows))

    def _explain(self, error: Exception) -> str:
        code = getattr(error, "sqlite_errorcode", 0) & 255
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOTADB):
            raise EnvironmentFailure(f"the database cannot be read: {error}") from error
        if self._exceeded or self._denied:
            return self._exceeded or self._denied
        return " ".join(str(error).encode(errors="replace").decode().split())[:300]

    def close(self) -> None:
        self._connection.close()


def _names(cursor: sqlite3.Cursor) -> tuple[str, ...]:
    return tuple(column[0] for column in cursor.description)
