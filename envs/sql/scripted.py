"""Scripted policies of `SqlQuestions`: they look at the content, query, mend a query and answer."""

import json
from typing import Protocol

import numpy as np

from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.envs.sql.grammar import solution_text, thought_text
from agentrl_jax.envs.sql.questions import Question
from agentrl_jax.messages import Message, ToolCall

_ERROR_PROBABILITY = 0.3


class SqlEpisode(Protocol):
    """What the policies read of `SqlQuestions`."""

    question: Question
    schema_view: str
    queries: tuple[str, ...]
    last_error: str | None

    @property
    def turns_left(self) -> int: ...

    @property
    def table_names(self) -> tuple[str, ...]: ...


def call_sql(thought: str, query: str) -> Message:
    """A thought, and a call of the tool `sql`."""
    call = ToolCall("call_0", "sql", json.dumps({"query": query}))
    return Message("assistant", thought_text(thought), (call,))


def planned_looks(env: SqlEpisode) -> list[str]:
    """The queries that the expert makes before that of the answer."""
    schema = [] if env.schema_view != "none" else ["SELECT sql FROM sqlite_master"]
    return [*schema, *env.question.looks[:1]]


def expert_action(env: SqlEpisode, rng: np.random.Generator) -> Message | str:
    """Looks at the schema and the content, runs the reference query, and answers with it."""
    question = env.question
    if env.turns_left <= 1 or question.sql in env.queries:
        return solution_text("The result answers the question.", question.sql)
    unseen = [query for query in planned_looks(env) if query not in env.queries]
    if unseen and env.turns_left > 2:
        thought = "I look at the tables." if "sqlite_master" in unseen[0] else "I look at the rows."
        return call_sql(thought, unseen[0])
    tables = f"I need {', '.join(question.tables)}." if question.tables else "I write the query."
    return call_sql(f"That failed; I mend it. {tables}" if env.last_error else tables, question.sql)


def recovering_action(env: SqlEpisode, rng: np.random.Generator) -> Message | str:
    """The expert, whose first own query fails with probability .3; it is mended."""
    action = expert_action(env, rng)
    is_first = isinstance(action, Message) and env.question.sql in _query_of(action)
    if is_first and env.turns_left > 2 and not env.last_error and rng.random() < _ERROR_PROBABILITY:
        assert isinstance(action, Message)
        return action.replace(tool_calls=call_sql("", broken(env.question.sql, rng)).tool_calls)
    return action


def _query_of(message: Message) -> str:
    return json.loads(message.tool_calls[0].arguments)["query"] if message.tool_calls else ""


def broken(sql: str, rng: np.random.Generator) -> str:
    """The query with an error that the database reports: an unknown column or a misspelled word."""
    if rng.random() < 0.5:
        return sql.replace("SELECT ", "SELECT nothing, ", 1)
    return sql.replace("FROM", "FORM", 1)


def give_up(env: SqlEpisode, rng: np.random.Generator) -> str:
    """Ends the episode without an answer."""
    return solution_text("I give up.", "SELECT NULL")


def random_action(env: SqlEpisode, rng: np.random.Generator) -> Message | str:
    """Counts the rows of a uniform table, by a query or as solution."""
    names = env.table_names or ("sqlite_master",)
    sql = f"SELECT COUNT(*) FROM {names[int(rng.integers(len(names)))]}"
    if env.turns_left > 1 and rng.random() < 0.5:
        return call_sql("I count.", sql)
    return solution_text("I count.", sql)


SCRIPTED_POLICIES = {
    "random": random_action,
    "expert": expert_action,
    "recovering": recovering_action,
    "hasty": MixturePolicy(recovering_action, give_up, 0.85),
    "mixture": MixturePolicy(recovering_action, random_action, 0.85),
}
