"""The program of the process that holds DuckDB: a request and an answer a line, in JSON.

    python -I duckdb_server.py FOLDER_OF_THE_PACKAGE MEGABYTES

It imports nothing of this project. Requests are {"key", "open": {"statements", "tables",
"seconds"}}, which makes a database, and {"key", "sql", "rows", "cell_bytes", "characters"}; the
answer to a query of a database that it does not hold is {"missing": true}. The first line, an empty
answer, tells that it is ready.
"""

import datetime
import decimal
import json
import math
import resource
import sys
from collections import OrderedDict
from typing import Any

MAX_DATABASES = 16  # that are held at once; the one longest without a query is dropped
# Neither files of this machine nor settings can be reached by a query. Numbers that are integers
# are divided as in SQLite, so that the same query means the same.
SETTINGS = {
    "access_mode": "READ_WRITE",
    "allow_community_extensions": "false",
    "async_threads": "1",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
    "integer_division": "true",
    "max_expression_depth": "100",
    "memory_limit": "256MB",
    "python_enable_replacements": "false",
    "max_temp_directory_size": "0KB",
    "threads": "1",
}


def limit_resources(megabytes: int) -> None:
    """Bound the memory that this process may add to its own, and let it write no file."""
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    for kind, bound in (
        (resource.RLIMIT_AS, used + megabytes * 2**20),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (bound, bound))


def open_database(duckdb: Any, content: dict[str, Any]) -> Any:
    """A database with these tables, whose settings are locked."""
    milliseconds = str(math.ceil(content["seconds"] * 1000))
    connection = duckdb.connect(":memory:", config={**SETTINGS, "max_execution_time": milliseconds})
    connection.execute("BEGIN TRANSACTION")
    for statement in content["statements"]:
        connection.execute(statement)
    for table, columns in content["tables"]:
        fields = ", ".join("unnest(?)" for _ in columns)
        connection.execute(f"INSERT INTO {table} SELECT {fields}", columns)
    connection.execute("COMMIT")
    connection.execute("SET lock_configuration = true")
    return connection


def answer(duckdb: Any, connection: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Columns and rows of a SELECT, or an error; nothing of it stays."""
    try:
        statements = connection.extract_statements(request["sql"])
        if len(statements) > 1:
            return {"error": "You can only execute one statement at a time."}
        if not statements or statements[0].type != duckdb.StatementType.SELECT:
            kind = f", not {statements[0].type.name.replace('_', ' ')}" if statements else ""
            return {"error": f"only SELECT is allowed{kind}"}
        connection.execute("BEGIN TRANSACTION READ ONLY")
        try:
            connection.execute(statements[0])
            columns = [column[0] for column in connection.description]
            return {"columns": columns, **fetched_rows(connection, request)}
        finally:
            connection.execute("ROLLBACK")
    except (duckdb.OutOfMemoryException, MemoryError):
        return {"exhausted": True}
    except duckdb.InterruptException:
        return {"exceeded": True}
    except (duckdb.Error, ValueError, RuntimeError) as error:
        return {"error": str(error)}


def fetched_rows(connection: Any, request: dict[str, Any]) -> dict[str, Any]:
    """The rows up to a limit, and whether there are more."""
    rows: list[list[Any]] = []
    size = 0
    while batch := connection.fetchmany(100):
        for row in map(plain_row, batch):
            lengths = [len(value) for value in row if isinstance(value, str)]
            if max(lengths, default=0) > request["cell_bytes"]:
                return {"error": "string or blob too big"}
            size += sum(lengths)
            if len(rows) == request["rows"] or size > request["characters"]:
                return {"rows": rows, "cut": True}
            rows.append(row)
    return {"rows": rows, "cut": False}


def plain_row(row: tuple) -> list[Any]:
    return [plain_value(value) for value in row]


def plain_value(value: Any) -> Any:
    """A number, a text or None: truth as 1 and 0, dates and nested values as texts."""
    if isinstance(value, bool):
        return int(value)
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, float | decimal.Decimal):
        number = float(value)
        return number if math.isfinite(number) else str(number)
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    return str(value)


def main() -> None:
    folder, megabytes = sys.argv[1:]
    sys.path.append(folder)
    import duckdb  # type: ignore[import-not-found]

    limit_resources(int(megabytes))
    databases: OrderedDict[str, Any] = OrderedDict()
    send({})
    for line in sys.stdin:
        request = json.loads(line)
        key, reply = request["key"], {}
        if "open" in request:
            try:
                databases[key] = open_database(duckdb, request["open"])
            except (duckdb.Error, MemoryError) as error:
                reply = {"error": str(error)}
            if len(databases) > MAX_DATABASES:
                databases.popitem(last=False)[1].close()
        elif key not in databases:
            reply = {"missing": True}
        else:
            databases.move_to_end(key)
            reply = answer(duckdb, databases[key], request)
        send(reply)


def send(reply: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
