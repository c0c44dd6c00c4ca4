"""`ReadOnlyDatabase`: what answers one SELECT at a time, within limits."""

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass

from agentrl_jax.envs.options import checked_int
from agentrl_jax.errors import EnvironmentFailure, UserError

MAX_SQL = 10_000  # characters of a query
RESULT_SIZE = 10_000_000  # characters of the texts of a result
# One query at a time in a process, so that memory is charged to the query that takes it.
_LOCK = threading.Lock()


@dataclass(frozen=True)
class QueryLimits:
    """Limits of one query.

    Args:
        steps: instructions of SQLite's virtual machine; other databases have no such count.
        seconds: of wall time.
        rows: of a result.
        cell_bytes: of a value; in SQLite of a row, too.
    """

    steps: int = 2_000_000
    seconds: float = 5.0
    rows: int = 1000
    cell_bytes: int = 100_000


DEFAULT_LIMITS = QueryLimits()


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


class ReadOnlyDatabase(ABC):
    """A database on which only SELECT runs.

    A limit that is exceeded is an error of the query; a database that cannot be read is a failure
    of the environment.

    Args:
        limits: of each query.
    """

    def __init__(self, limits: QueryLimits) -> None:
        self.limits = limits

    def query(self, sql: str) -> QueryResult:
        """The result of a SELECT.

        Raises:
            EnvironmentFailure: the database is damaged or cannot be read.
        """
        with _LOCK:
            return self._run(sql)

    @abstractmethod
    def _run(self, sql: str) -> QueryResult:
        """`query`, by one thread of the process at a time."""

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
        return {str(name): str(statement).rstrip(";") for name, statement in result.rows}

    @abstractmethod
    def close(self) -> None:
        """Release what it holds."""


def one_line(text: str) -> str:
    """An error message in one line of at most 300 characters."""
    return " ".join(text.encode(errors="replace").decode().split())[:300]
