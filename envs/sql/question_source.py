"""`QuestionSource`: which questions are drawn, and the database of each."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from agentrl_jax.envs.options import checked_fraction, checked_int
from agentrl_jax.envs.sampled_task import rng_of_task
from agentrl_jax.envs.sql.dialects import DIALECTS, checked_dialect
from agentrl_jax.envs.sql.folder import QuestionFolder, read_folder
from agentrl_jax.envs.sql.questions import DatabaseKey, Question, draw_question, split_schemas
from agentrl_jax.envs.sql.read_only_database import QueryLimits, ReadOnlyDatabase
from agentrl_jax.envs.sql.sqlite_database import SqliteDatabase
from agentrl_jax.errors import UserError

MAX_SCHEMA = 20_000  # characters of the statements in an opening


class QuestionSource:
    """Questions on generated databases, or of a folder.

    Args:
        businesses, split, difficulty, schemas, problems, dialect, folder, questions_file: as in
            `SqlQuestions`.
        limits: of a query.

    Raises:
        UserError: one of them is out of range, or they exclude each other.
    """

    def __init__(
        self,
        businesses: Sequence[str],
        split: str,
        difficulty: float,
        schemas: int,
        problems: int,
        dialect: str,
        folder: str,
        questions_file: str,
        limits: QueryLimits,
    ) -> None:
        names = [businesses] if isinstance(businesses, str) else businesses
        self.businesses, self.split = tuple(names), split
        self.difficulty = checked_fraction("difficulty", difficulty)
        self.num_schemas = checked_int("schemas", schemas, 1, 1000)
        split_schemas(split, self.businesses, self.num_schemas)
        self.num_problems = checked_int("problems", problems, 0, 10**9)
        self.limits = limits
        self.dialect = checked_dialect(dialect, limits, folder)
        self.folder: QuestionFolder | None = None
        if folder:
            if split != "train" or self.businesses:
                raise UserError("a folder has no split or businesses: set questions_file instead")
            self.folder = read_folder(folder, questions_file)

    def draw(self, rng: np.random.Generator) -> Question:
        """A question; where only some problems occur, one of them."""
        if self.num_problems:
            rng = rng_of_task(rng, self.num_problems)
        if self.folder is not None:
            return self.folder.questions[int(rng.integers(len(self.folder.questions)))]
        return draw_question(rng, self.split, self.difficulty, self.businesses, self.num_schemas)

    def open(self, question: Question) -> ReadOnlyDatabase:
        """The question's database."""
        key: Any = question.database
        if isinstance(key, DatabaseKey):
            return DIALECTS[self.dialect](key, self.limits)
        assert self.folder is not None
        return SqliteDatabase(self.folder.database_path(key), self.limits)


def schema_text(database: ReadOnlyDatabase, tables: Sequence[str] = ()) -> str:
    """CREATE TABLE of these tables, or of all."""
    statements = [s for name, s in database.tables().items() if not tables or name in tables]
    return ";\n".join(statements)[:MAX_SCHEMA] + ";"
