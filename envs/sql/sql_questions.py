"""`SqlQuestions`: questions on databases that an agent answers with a query."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.forkable import Forkable
from agentrl_jax.envs.options import check_no_options, checked_bool, checked_choice, checked_int
from agentrl_jax.envs.sql.grammar import (
    INSTRUCTION,
    SqlAction,
    is_well_formed,
    observation_text,
    read_action,
    without_fence,
    written_text,
)
from agentrl_jax.envs.sql.question_source import QuestionSource, schema_text
from agentrl_jax.envs.sql.questions import Question
from agentrl_jax.envs.sql.read_only_database import (
    QueryLimits,
    QueryResult,
    ReadOnlyDatabase,
    checked_limits,
)
from agentrl_jax.envs.sql.results import COMPARISONS, equal_results, result_key, result_text
from agentrl_jax.envs.sql.scripted import SCRIPTED_POLICIES
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import Message, user
from agentrl_jax.tool_environment import ToolEnvironment
from agentrl_jax.tools import Tool, tool

SCHEMA_VIEWS = ("full", "tables", "none")
_NO_QUESTION = Question("", "", "")
_PREVIEW = 400  # characters of a solution's result, for a validator


class SqlQuestions(ToolEnvironment, Forkable):
    """A question on a database: query it with `<sql>`, then answer with a query in `<solution>`.

    The protocol of MARS-SQL (arXiv 2511.01008): a query's result comes back in `<observation>`,
    with a reminder of the turns that are left. A query may also be a call of the tool `sql`, which
    `grammar.SQL_TOOL_FORMAT` writes in the same tags. Queries only read, within limits; what a
    query does wrong, a limit too, is a message that the agent reads.

    The reward comes with the last turn: -1 for an episode that breaks the format
    (`grammar.is_well_formed`), else 1 if the solution returns what the reference query does, else
    0. Its parts are `format` and `result`.

    The reset option `tables`, names such as a grounding agent gives, are those whose statements the
    opening has, in place of `schema_view`.

    Scripted policies: `random`; `expert`, which looks at the rows, runs the reference query and
    answers; `recovering`, whose query may have an error that it mends; `mixture` and `weak`,
    `recovering` with probability .85 and .6.

    Args:
        businesses: whose databases; empty: all (docs/sql.md).
        split: "train", or what is never trained on: "schemas", "templates" or "entities".
        difficulty: from 0 to 1: levels of questions, and events in a database.
        schemas: different ones of each business.
        problems: only so many different questions occur; 0: unlimited.
        horizon: turns before truncation.
        schema_view: "full", all CREATE TABLE statements in the opening; "tables", those that the
            reference query needs, as from a perfect grounding agent; "none".
        evidence: whether the opening says what the content of columns means.
        dialect: "sqlite", or "duckdb", which needs the extra of that name.
        comparison: of results: "set" (MARS-SQL) or "strict" (docs/sql.md).
        format_penalty: whether an episode that breaks the format has the reward -1, not 0.
        reminder: whether the turns that are left are told.
        characters: of a shown result; of a longer one the first 10 rows are shown.
        instruction: whether the opening says how to query and answer.
        steps, seconds, rows: limits of a query (`QueryLimits`).
        folder: of databases and questions in the form of Spider or BIRD; empty: generated.
        questions_file: that file of the folder.
    """

    reward_bounds = (-1.0, 1.0)
    max_calls = 1
    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(SCRIPTED_POLICIES)

    def __init__(
        self,
        businesses: Sequence[str] = (),
        split: str = "train",
        difficulty: float = 0.3,
        schemas: int = 24,
        problems: int = 0,
        horizon: int = 5,
        schema_view: str = "full",
        evidence: bool = False,
        dialect: str = "sqlite",
        comparison: str = "set",
        format_penalty: bool = True,
        reminder: bool = True,
        characters: int = 2000,
        instruction: bool = True,
        steps: int = QueryLimits.steps,
        seconds: float = QueryLimits.seconds,
        rows: int = QueryLimits.rows,
        folder: str = "",
        questions_file: str = "",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.limits = checked_limits(steps, seconds, rows)
        self.source = QuestionSource(
            businesses,
            split,
            difficulty,
            schemas,
            problems,
            dialect,
            folder,
            questions_file,
            self.limits,
        )
        self.horizon = checked_int("horizon", horizon, 1, 1000)
        self.schema_view = checked_choice("schema_view", schema_view, SCHEMA_VIEWS)
        self.evidence = checked_bool("evidence", evidence)
        self.comparison = checked_choice("comparison", comparison, COMPARISONS)
        self.format_penalty = checked_bool("format_penalty", format_penalty)
        self.reminder = checked_bool("reminder", reminder)
        self.characters = checked_int("characters", characters, 20, 10**6)
        self.instruction = checked_bool("instruction", instruction)
        self.rules = (
            f"Answer the question with a query, in at most {horizon} turns. {INSTRUCTION} The "
            f"database ({dialect}) only answers SELECT."
        )
        self.question, self.shown_tables = _NO_QUESTION, ()
        self._database: ReadOnlyDatabase | None = None
        self._gold: QueryResult | None = None
        self._rewind()

    def __getstate__(self) -> dict[str, Any]:
        """A copy has a connection of its own."""
        return {**self.__dict__, "_database": None, "_gold": None}

    @property
    def turns_left(self) -> int:
        return self.horizon - len(self._step_history)

    @property
    def database(self) -> ReadOnlyDatabase:
        """The episode's database, which is opened at its first use."""
        if self._database is None:
            self._database = self.source.open(self.question)
        return self._database

    @property
    def gold(self) -> QueryResult:
        """What the reference query returns."""
        if self._gold is None:
            self._gold = self.database.query(self.question.sql)
            reason = self._gold.error or ("it has too many rows" if self._gold.is_cut else "")
            if reason:
                raise EnvironmentFailure(f"the query {self.question.sql!r} has no result: {reason}")
        return self._gold

    @property
    def table_names(self) -> tuple[str, ...]:
        return tuple(self.database.tables())

    def _tools(self) -> Sequence[Tool | Callable[..., Any]]:
        room = self.characters + 1000  # and the tags
        return (tool(self.sql, self.limits.seconds + 5.0, room),)

    def sql(self, query: str) -> str:
        """Run a SELECT on the database.

        Args:
            query: the SQL
        """
        return observation_text(self._run_query(query), self.turns_left - 1, self.reminder)

    def _run_query(self, query: str) -> str:
        result = self.database.query(without_fence(query).strip())
        self.queries, self.last_error = (*self.queries, query.strip()), result.error
        self.failed_queries += result.error is not None
        return result_text(result, self.characters)

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        self.shown_tables = _checked_tables(options.pop("tables", ()))
        check_no_options("SqlQuestions", options)
        self.question = self.source.draw(self.np_random)
        self.close()
        self._gold = None
        self._rewind()
        return (user(self._opening_text()),), {}

    def _opening_text(self) -> str:
        parts = []
        if self.shown_tables:
            parts.append(schema_text(self.database, self.shown_tables))
        elif self.schema_view != "none":
            tables = self.question.tables if self.schema_view == "tables" else ()
            parts.append(schema_text(self.database, tables))
        parts.append(self.question.text)
        if self.evidence and self.question.evidence:
            parts.append(f"Evidence: {self.question.evidence}.")
        if self.instruction:
            parts.append(INSTRUCTION)
        return "\n".join(parts)

    def _rewind(self) -> None:
        self.queries: tuple[str, ...] = ()  # that were run in the episode
        self.failed_queries = 0
        self.last_error: str | None = None

    def _step_message(self, message: Message) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        action, observation = read_action(message.text), ()
        info: dict[str, Any] = {}
        if message.tool_calls:
            before, action = len(self.queries), SqlAction("")
            observation, info = self._run_calls(message)
            if len(self.queries) > before:
                action = SqlAction("sql", self.queries[-1])
        turns_left = self.turns_left - 1
        terminated = action.kind == "solution"
        truncated = turns_left <= 0 and not terminated
        if not (terminated or truncated or message.tool_calls):
            observation = (user(self._answer_text(action, turns_left)),)
        info |= {
            "void": not action.kind,
            "formatted": bool(action.kind),
            "stopped": terminated,
            "answer": action.query if terminated else None,
            "gold": self.question.sql,
            "query_failed": action.kind == "sql" and self.last_error is not None,
        }
        parts = {"format": 0.0, "result": 0.0}
        if terminated or truncated:
            result = self.database.query(action.query) if terminated else None
            actions = [*(earlier for earlier, _ in self._step_history), message]
            well_formed = is_well_formed(list(map(written_text, actions)))
            success = result is not None and well_formed and self._is_right(result)
            parts["format"] = 0.0 if well_formed else -float(self.format_penalty)
            parts["result"] = float(success)
            info |= {"success": success, "well_formed": well_formed, **self._summary(result)}
        return observation, sum(parts.values()), terminated, truncated, {**info, "rewards": parts}

    def _summary(self, result: QueryResult | None) -> dict[str, Any]:
        """What a validator and a vote read of a finished episode."""
        has_rows = result is not None and result.error is None
        return {
            "question": self.question.text,
            "evidence": self.question.evidence if self.evidence else "",
            "preview": result_text(result, _PREVIEW) if result else "",
            "result": result_key(result.rows) if result and has_rows else None,
        }

    def _answer_text(self, action: SqlAction, turns_left: int) -> str:
        """The observation of a turn without tool calls."""
        output = f"Error: there is no complete query or solution. {INSTRUCTION}"
        if action.kind == "sql":
            output = self._run_query(action.query)
        return observation_text(output, turns_left, self.reminder)

    def _is_right(self, result: QueryResult) -> bool:
        """Whether a solution returned what the reference query does."""
        if result.error is not None or result.is_cut:
            return False
        rows, gold = result.rows, self.gold.rows
        return equal_results(rows, gold, self.comparison, self.question.is_ordered)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


def _checked_tables(tables: Any) -> tuple[str, ...]:
    if not isinstance(tables, list | tuple) or not all(isinstance(name, str) for name in tables):
        raise UserError(f"the reset option tables must be a list of names, not {tables!r}")
    return tuple(tables)
