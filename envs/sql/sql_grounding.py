"""`SqlGrounding`: which tables of a database a question needs."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import ScriptedPolicy
from agentrl_jax.envs.options import checked_bool
from agentrl_jax.envs.sampled_task import SampledTaskEnvironment, StepResult
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.envs.sql.grammar import thought_text
from agentrl_jax.envs.sql.question_source import QuestionSource, schema_text
from agentrl_jax.envs.sql.questions import Question
from agentrl_jax.envs.sql.read_only_database import DEFAULT_LIMITS
from agentrl_jax.envs.sql.sqlite_database import SqliteDatabase
from agentrl_jax.errors import EnvironmentFailure

INSTRUCTION = "Think in <think>...</think>; then name the tables in <tables>a, b</tables>."
_ANSWER = re.compile(
    r"<think>(?:(?!</?(?:think|tables)>).)*</think>\s*<tables>([^<>]*)</tables>", re.S
)


def tables_text(tables: Sequence[str]) -> str:
    """An answer."""
    return f"{thought_text('I need them.')}\n<tables>{', '.join(tables)}</tables>"


def read_tables(text: str) -> list[str] | None:
    """The names in an answer, in its order and each once; None: it breaks the format."""
    match = _ANSWER.fullmatch(text.strip())
    if match is None:
        return None
    return list(dict.fromkeys(filter(None, map(str.strip, match[1].split(",")))))


class GroundingPolicy:
    """Names the tables that are needed, or a random number of random ones."""

    def __init__(self, knows: bool) -> None:
        self.knows = knows

    def __call__(self, env: "SqlGrounding", rng: np.random.Generator) -> str:
        if self.knows:
            return tables_text(env.needed_tables)
        names = list(env.all_tables)
        count = int(rng.integers(1, len(names) + 1))
        return tables_text([names[i] for i in rng.permutation(len(names))[:count]])


_EXPERT, _RANDOM = GroundingPolicy(True), GroundingPolicy(False)


class SqlGrounding(SampledTaskEnvironment):
    """The schema of a database and a question: name the tables that its query needs, in one turn.

    The task of MARS-SQL's grounding agent (arXiv 2511.01008), whose training is not published; form
    and reward are our own. Needed are the tables that the reference query reads, and of generated
    databases that of the columns' meanings. The reward is 0 where the answer has another form or a
    needed table is missing, or else the fraction of the named tables that are needed. Success:
    exactly the needed ones. `info["tables"]` are the named tables that exist.

    With the same options and seed as `SqlQuestions` the question is the same.

    Scripted policies: `random`; `expert`; `mixture`, the expert with probability .85.

    Args:
        businesses, split, difficulty, schemas, problems, evidence, dialect, folder,
            questions_file: as in `SqlQuestions`.
        instruction: whether the opening says how to answer.
    """

    horizon = 1
    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {"random": _RANDOM, "expert": _EXPERT, "mixture": MixturePolicy(_EXPERT, _RANDOM, 0.85)}
    )

    def __init__(
        self,
        businesses: Sequence[str] = (),
        split: str = "train",
        difficulty: float = 0.3,
        schemas: int = 24,
        problems: int = 0,
        evidence: bool = False,
        dialect: str = "sqlite",
        folder: str = "",
        questions_file: str = "",
        instruction: bool = True,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.source = QuestionSource(
            businesses,
            split,
            difficulty,
            schemas,
            problems,
            dialect,
            folder,
            questions_file,
            DEFAULT_LIMITS,
        )
        self.evidence = checked_bool("evidence", evidence)
        self.instruction = checked_bool("instruction", instruction)
        self.rules = f"Which tables does the query need that answers the question? {INSTRUCTION}"
        self.question = Question("", "", "")
        self._schema = ""
        self.all_tables: tuple[str, ...] = ()
        self.needed_tables: tuple[str, ...] = ()

    def _sample_task(self) -> None:
        self.question = self.source.draw(self.np_random)
        database = self.source.open(self.question)
        try:
            self._schema, self.all_tables = schema_text(database), tuple(database.tables())
            self.needed_tables = self.question.tables
            if not self.needed_tables and isinstance(database, SqliteDatabase):
                self.needed_tables = database.tables_read(self.question.sql)
        finally:
            database.close()
        if not self.needed_tables:
            raise EnvironmentFailure(f"the query {self.question.sql!r} reads no table")

    def _reset_state(self) -> None:
        """The turn is all of the state."""

    def _opening_text(self) -> str:
        evidence = f"Evidence: {self.question.evidence}." if self.evidence else ""
        instruction = INSTRUCTION if self.instruction else ""
        parts = (self._schema, self.question.text, evidence, instruction)
        return "\n".join(filter(None, parts))

    def _respond(self, text: str) -> StepResult:
        answer = read_tables(text)
        needed, named = set(self.needed_tables), set(answer or ())
        reward = len(needed) / len(named) if needed <= named else 0.0
        tables = [name for name in answer or () if name in self.all_tables]
        info: dict[str, Any] = {"tables": tables, "gold": list(self.needed_tables)}
        return StepResult("", {"grounding": reward}, info, named == needed)
