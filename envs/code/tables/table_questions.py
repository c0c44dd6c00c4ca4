"""`TableQuestions`: questions on tables that an agent answers with code and SQL."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from agentrl_jax.environment import Messages
from agentrl_jax.envs.code.code_problems import CodeProblems
from agentrl_jax.envs.code.generators import GeneratorEntry
from agentrl_jax.envs.code.problem import Problem
from agentrl_jax.envs.code.tables.problems import SOURCES, problem_of
from agentrl_jax.envs.code.tables.questions import draw_question, operations_of
from agentrl_jax.envs.options import checked_bool, checked_choice, checked_int
from agentrl_jax.messages import Message
from agentrl_jax.sandbox.ladder import SandboxConfig
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.python_tool import PythonTool


class TableQuestions(CodeProblems):
    """A question on a table in a file or a database: run code on it, then answer.

    The protocol of DataMind (arXiv 2509.25084): code in `<code>`, its output in `<interpreter>`, of
    a long one 1,024 characters of the head and of the tail, and the answer in `<answer>`. No
    process stays: each call runs the earlier code again, without its output. A turn with neither
    code nor an answer ends the episode. Numbers are right within 3 %. The reward is 1 for a right
    answer, 0 for a wrong one and -.1 for an episode without an answer.

    In a database the code has `execute_sql(sql, output_path="")`, which prints the rows of a SELECT
    or writes them to a CSV file, and `get_db_info()`.

    Scripted policies: those of `CodeProblems`.

    Args:
        source: of the rows: "csv", "parquet" (needs the extra `data`) or "sql".
        split: "train", or what is never trained on: "test" (texts of questions), "kinds" (of
            tables) or "operations".
        difficulty: from 0 to 1, or two numbers: rows, columns, empty cells, and how many selections
            precede the last task of a question.
        operations: last tasks (docs/tables.md); empty: all of the split.
        selections: exactly so many, from 0 to 2; -1: by difficulty.
        schema: whether the question names the columns; else the expert looks at the rows first.
        problems, horizon, short_errors, seconds, instruction: see `CodeProblems`.
    """

    def __init__(
        self,
        source: str = "csv",
        split: str = "train",
        difficulty: float | Sequence[float] = 0.3,
        operations: Sequence[str] = (),
        selections: int = -1,
        schema: bool = True,
        problems: int = 0,
        horizon: int = 10,
        short_errors: bool = False,
        seconds: float = 5.0,
        instruction: bool = True,
        render_mode: str | None = None,
    ) -> None:
        self.source = checked_choice("source", source, SOURCES)
        self.operations = (operations,) if isinstance(operations, str) else tuple(operations)
        operations_of(split, self.operations, source)
        self.selections = checked_int("selections", selections, -1, 2)
        self.schema = checked_bool("schema", schema)
        super().__init__(
            split=split,
            difficulty=difficulty,
            problems=problems,
            protocol="datamind",
            horizon=horizon,
            reward="datamind",
            replayed_session=True,
            short_errors=short_errors,
            seconds=seconds,
            instruction=instruction,
            render_mode=render_mode,
        )
        limits = SandboxLimits(seconds=seconds, cpu_seconds=max(seconds, 1.0), memory_mb=1024)
        modules = ("pyarrow",) if source == "parquet" else ()
        self._sandbox_config = SandboxConfig(limits=limits, modules=modules)
        self.python_tool = PythonTool(self._sandbox_config, replayed=True)

    def _entries(self, split: str, names: Sequence[str]) -> tuple[GeneratorEntry, ...]:
        return ()

    def _draw(self, rng: np.random.Generator, difficulty: float) -> tuple[str, Problem]:
        question = draw_question(
            rng, self.split, difficulty, self.source, self.operations, self.selections
        )
        return question.operation, problem_of(question, self.source, self.schema)

    def _step_message(self, message: Message) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super()._step_message(message)
        if not info["void"] or terminated or truncated:
            return observation, reward, terminated, truncated, info
        info |= {"success": False, "stopped": True}
        info["rewards"] = self._parts(self._counts(False, None))
        return (), sum(info["rewards"].values()), True, False, info
