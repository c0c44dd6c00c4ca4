"""Questions on tables as problems: the file or database with the rows, programs, and checks."""

import math
import sqlite3
from dataclasses import dataclass

from agentrl_jax.envs.code.checks import MAX_ANSWER, Check, ExactText, Runner, items_of
from agentrl_jax.envs.code.problem import Problem
from agentrl_jax.envs.code.tables.kinds import Table
from agentrl_jax.envs.code.tables.questions import TableQuestion
from agentrl_jax.envs.code.tables.scope import Answer
from agentrl_jax.errors import UserError

SOURCES = ("csv", "parquet", "sql")
DATABASE = "data.sqlite"
TOLERANCE = 0.03  # relative, of numbers: DataMind (arXiv 2509.25084)
# Runs before an agent's code: how it reaches a database.
DATABASE_CODE = f'''
def execute_sql(sql, output_path=""):
    """Print the rows of a SELECT, or write them to a CSV file."""
    import csv, sqlite3, sys
    if not sql.lstrip().lower().startswith(("select", "with")):
        raise ValueError("only SELECT is allowed")
    connection = sqlite3.connect("file:{DATABASE}?mode=ro", uri=True)
    cursor = connection.execute(sql)
    rows = [[c[0] for c in cursor.description], *cursor.fetchall()]
    connection.close()
    file = open(output_path, "w", newline="") if output_path else sys.stdout
    csv.writer(file, lineterminator="\\n").writerows(rows)
    if output_path:
        file.close()

def get_db_info():
    """Print the tables of the database."""
    execute_sql("SELECT sql FROM sqlite_master")
'''


@dataclass(frozen=True)
class RelativeNumber:
    """|answer - value| <= tolerance |value|."""

    value: float
    tolerance: float = TOLERANCE

    def __call__(self, answer: str, run: Runner) -> bool:
        try:
            number = float(answer.strip().rstrip("%")) if len(answer) <= 60 else math.nan
        except ValueError:
            return False
        bound = self.tolerance * abs(self.value) + 1e-9
        return math.isclose(number, self.value, rel_tol=0.0, abs_tol=bound)


@dataclass(frozen=True)
class OrderedItems:
    """The answer lists these items in this order."""

    items: tuple[str, ...]

    def __call__(self, answer: str, run: Runner) -> bool:
        return len(answer) <= MAX_ANSWER and tuple(items_of(answer.strip("\"'"))) == self.items


def check_of(answer: Answer) -> Check:
    """The check of answers to a question with this one."""
    if isinstance(answer, tuple):
        return OrderedItems(answer)
    return ExactText(answer) if isinstance(answer, str) else RelativeNumber(answer)


def answer_text(answer: Answer) -> str:
    """A right answer as a text."""
    if isinstance(answer, tuple):
        return ", ".join(answer)
    return answer if isinstance(answer, str) else f"{answer:.6g}"


def problem_of(question: TableQuestion, source: str, schema: bool) -> Problem:
    """The problem of a question whose rows are in a file or a database.

    Args:
        question: of a table.
        source: see `SOURCES`.
        schema: whether the question names the columns; else the expert looks at the rows first.
    """
    name, columns = question.table.kind.name, question.table.columns
    path = DATABASE if source == "sql" else f"{name}.{source}"
    place = f"the table {name} of the database" if source == "sql" else path
    listed = f" with the columns {', '.join(columns)}" if schema else ""
    look, program = _programs(question, source, path)
    return Problem(
        f"Each row of {place}{listed} is one {question.table.kind.row}. {question.text}",
        answer_text(question.answer),
        program,
        check_of(question.answer),
        question.thought,
        files={path: _file(question.table, source)},
        prelude=DATABASE_CODE if source == "sql" else "",
        look="" if schema else look,
    )


def _programs(question: TableQuestion, source: str, path: str) -> tuple[str, str]:
    """Code that shows the first rows, and code that answers."""
    if source == "sql":
        look = f'get_db_info()\nexecute_sql("SELECT * FROM {question.table.kind.name} LIMIT 3")'
        return look, f'execute_sql("{question.sql}")'
    if source == "csv":
        read = f"import csv\nrows = list(csv.DictReader(open('{path}')))"
        return f"print(open('{path}').read()[:300])", f"{read}\n{question.code}"
    read = f"import pyarrow.parquet as pq\nrows = pq.read_table('{path}').to_pylist()"
    return f"{read}\nprint(rows[:3])", f"{read}\n{question.code}"


def _file(table: Table, source: str) -> bytes:
    if source == "csv":
        return table.csv_bytes()
    return database_bytes(table) if source == "sql" else parquet_bytes(table)


def database_bytes(table: Table) -> bytes:
    """A SQLite database with the table."""
    numbers = {column.name for column in table.numbers}
    columns = [f"{name} {'REAL' if name in numbers else 'TEXT'}" for name in table.columns]
    with sqlite3.connect(":memory:") as connection:
        connection.execute(f"CREATE TABLE {table.kind.name} ({', '.join(columns)})")
        rows = [[row[name] for name in table.columns] for row in table.rows]
        marks = ", ".join("?" * len(columns))
        connection.executemany(f"INSERT INTO {table.kind.name} VALUES ({marks})", rows)
    image = connection.serialize()
    connection.close()
    return image


def parquet_bytes(table: Table) -> bytes:
    """A Parquet file with the table. Raises UserError where pyarrow is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise UserError(
            "tables in Parquet need pyarrow: pip install 'agentrl_jax[data]'"
        ) from error
    sink = pyarrow.BufferOutputStream()
    values = {name: [row[name] for row in table.rows] for name in table.columns}
    pyarrow.parquet.write_table(pyarrow.table(values), sink)
    return sink.getvalue().to_pybytes()
