"""`DuckdbDatabase`: DuckDB in a process of its own, which a query cannot harm."""

import atexit
import contextlib
import hashlib
import importlib.util
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl_jax.envs.sql import duckdb_server
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

_MEMORY_MB = 1024  # that the process may add to its own; DuckDB itself stops at 256
_GRACE_SECONDS = 2.0  # after a query's time, for what DuckDB does not interrupt
_START_SECONDS = 60.0  # for the start of the process, and to make a database


def package_folder() -> str:
    """The folder that holds the package duckdb. Raises UserError where it is not installed."""
    spec = importlib.util.find_spec("duckdb")
    if spec is None or spec.origin is None:
        raise UserError(
            "the dialect duckdb needs the package duckdb: pip install 'agentrl_jax[duckdb]'"
        )
    return str(Path(spec.origin).parent.parent)


class DuckdbDatabase(ReadOnlyDatabase):
    """Tables in DuckDB on which only SELECT runs.

    The database is in memory, in one process for all databases of this one, with limits on memory
    and none but its pipes to write to. DuckDB itself reaches no file (`enable_external_access`),
    its settings are locked, and each query is one SELECT in a transaction that only reads. A query
    that ends the process is an error of that query; the next begins a new process.

    Args:
        statements: CREATE TABLE of each table, one that others refer to before them.
        tables: name -> columns, each with the values of all rows, in the order of `statements`.
        limits: of each query; `steps` is not used.

    Raises:
        UserError: the package duckdb is not installed.
    """

    def __init__(
        self,
        statements: Sequence[str],
        tables: Mapping[str, Sequence[Sequence[Any]]],
        limits: QueryLimits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(limits)
        self._folder = package_folder()
        content = {"statements": list(statements), "tables": list(tables.items())}
        self._content = {**content, "seconds": limits.seconds}
        text = json.dumps(self._content)
        self._key = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def _run(self, sql: str) -> QueryResult:
        if len(sql) > MAX_SQL:
            return QueryResult(error="query string is too large")
        if "\0" in sql or (not sql.isascii() and sql.encode(errors="replace").decode() != sql):
            return QueryResult(error="the query has a character that is no text")
        request = {
            "key": self._key,
            "sql": sql,
            "rows": self.limits.rows,
            "cell_bytes": self.limits.cell_bytes,
            "characters": RESULT_SIZE,
        }
        seconds = self.limits.seconds + _GRACE_SECONDS
        reply = _SERVER.ask(self._folder, request, seconds)
        if reply.get("missing"):
            making = {"key": self._key, "open": self._content}
            opened = _SERVER.ask(self._folder, making, _START_SECONDS)
            if opened:
                raise EnvironmentFailure(f"DuckDB did not make the database: {opened}")
            reply = _SERVER.ask(self._folder, request, seconds)
        if reply.get("exceeded"):
            return QueryResult(error=f"the query was stopped after {self.limits.seconds:g} s")
        if reply.get("exhausted"):
            _SERVER.stop()  # what it does not give back would be missing for the next query
            return QueryResult(error="the query needs too much memory")
        if "error" in reply:
            return QueryResult(error=one_line(reply["error"]))
        rows = tuple(map(tuple, reply["rows"]))
        return QueryResult(tuple(reply["columns"]), rows, is_cut=reply["cut"])

    def close(self) -> None:
        """Nothing: the process drops the databases that are longest without a query."""


class _Server:
    """The process with DuckDB, which is started when it is first asked, and again after its end."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._received = b""

    def ask(self, folder: str, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to a request; where there is none in time, that of a query that failed."""
        process = self._process or self._start(folder)
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            line = self._read_line(process, time.monotonic() + seconds)
        except OSError:
            line = b""
        except BaseException:  # or a later request would be answered by this one's answer
            self.stop()
            raise
        if line:
            return json.loads(line)
        self.stop()
        if line is None:
            return {"exceeded": True}
        return {"error": "the query ended the database's process"}

    def _start(self, folder: str) -> subprocess.Popen[bytes]:
        """A new process that is ready. Raises EnvironmentFailure where it does not become so."""
        command = [sys.executable, "-I", duckdb_server.__file__, folder, str(_MEMORY_MB)]
        self._received = b""
        self._process = process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"MALLOC_ARENA_MAX": "1"},  # else each thread reserves 64 MB
        )
        if not self._read_line(process, time.monotonic() + _START_SECONDS):
            self.stop()
            raise EnvironmentFailure("the process with DuckDB did not start")
        return process

    def _read_line(self, process: subprocess.Popen[bytes], deadline: float) -> bytes | None:
        """The next line; empty: the process has ended; None: it is late."""
        assert process.stdout is not None
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        while b"\n" not in self._received:
            milliseconds = int((deadline - time.monotonic()) * 1000) + 1
            if milliseconds <= 0 or not poll.poll(milliseconds):
                return None
            data = os.read(process.stdout.fileno(), 1 << 20)
            if not data:
                return b""
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line

    def stop(self) -> None:
        """End the process."""
        if (process := self._process) is not None:
            self._process = None
            process.kill()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            process.wait()


_SERVER = _Server()
atexit.register(_SERVER.stop)
