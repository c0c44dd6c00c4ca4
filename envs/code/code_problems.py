"""`CodeProblems`: problems that an agent solves by running code."""

import copy
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.code.checks import NumberCheck
from agentrl_jax.envs.code.critic import FEEDBACK, TurnSummary, feedback_text
from agentrl_jax.envs.code.episode_rewards import NO_COUNTS, REWARDS, EpisodeCounts, has_thought
from agentrl_jax.envs.code.generators import GeneratorEntry, draw_problem, split_generators
from agentrl_jax.envs.code.problem import Problem
from agentrl_jax.envs.code.protocols import PROTOCOLS, within_noise, without_fence
from agentrl_jax.envs.code.scripted import SCRIPTED_POLICIES
from agentrl_jax.envs.forkable import Forkable
from agentrl_jax.envs.options import (
    check_no_options,
    checked_bool,
    checked_choice,
    checked_fraction,
    checked_int,
)
from agentrl_jax.envs.sampled_task import rng_of_task
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, user
from agentrl_jax.sandbox.ladder import SandboxConfig
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.python_tool import PythonTool, shared_sandbox
from agentrl_jax.sandbox.snippet import Outcome, Snippet
from agentrl_jax.tool_environment import ToolEnvironment
from agentrl_jax.tool_servers.verl_python import VerlPython
from agentrl_jax.tools import Tool, tool

_NO_PROBLEM = Problem("", "", "", NumberCheck(0), "")


class CodeProblems(ToolEnvironment, Forkable):
    """A question whose answer is computed: call the tool `python`, then answer.

    The code runs in a sandbox, in a session of the episode. A turn with an answer is a proposal:
    a right one ends the episode with success, a wrong one ends it once `proposals` of them were
    made. `protocol` says how answers are written and outputs shown (docs/code.md).

    Scripted policies: `random`; `expert`, which runs a program and answers; `recovering`, whose
    first program may have an error that it mends; `mixture`, `recovering` with probability .85;
    `direct`, which answers without code.

    Args:
        generators: names of generators or groups; empty: all of the split.
        split: "train", "test" (their held-out texts) or "held_out" (generators never trained on).
        difficulty: from 0 to 1; two numbers: uniform between them.
        problems: only so many different problems occur; 0: unlimited.
        protocol: "plain", "boxed", "mint", "r1ci", "retool", "artist", "datamind" or
            "simpletir".
        tools: whether there is a tool.
        horizon: turns before truncation (MINT's k).
        proposals: answers that may be given.
        calls: of the tool in an episode; 0: unlimited.
        budget_notice: whether turns and proposals that are left are told after each turn.
        feedback: of a critic by rules: "none", "binary" or "textual".
        critic_knows_answer: whether that critic knows the answer.
        reward: "outcome", "artist", "retool" or "datamind" (docs/code.md).
        replayed_session: each call runs all earlier code again, in a new process.
        short_errors: of a traceback only the last line is shown, whatever the protocol.
        noise: characters of noise around each output.
        seconds: of a call.
        instruction: whether the opening says how to write code and answer.
    """

    max_calls = 1
    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(SCRIPTED_POLICIES)

    def __init__(
        self,
        generators: Sequence[str] = (),
        split: str = "train",
        difficulty: float | Sequence[float] = 0.3,
        problems: int = 0,
        protocol: str = "boxed",
        tools: bool = True,
        horizon: int = 6,
        proposals: int = 1,
        calls: int = 0,
        budget_notice: bool = False,
        feedback: str = "none",
        critic_knows_answer: bool = True,
        reward: str = "outcome",
        replayed_session: bool = False,
        short_errors: bool = False,
        noise: int = 0,
        seconds: float = 5.0,
        instruction: bool = True,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        names = [generators] if isinstance(generators, str) else list(generators)
        self.entries, self.split = self._entries(split, names), split
        bounds = [difficulty] * 2 if isinstance(difficulty, int | float) else list(difficulty)
        if len(bounds) != 2:
            raise UserError(f"difficulty must be a number or two of them, not {difficulty!r}")
        self.easiest, self.hardest = (checked_fraction("difficulty", bound) for bound in bounds)
        self.num_problems = checked_int("problems", problems, 0, 10**9)
        self.protocol = PROTOCOLS[checked_choice("protocol", protocol, PROTOCOLS)]
        self.tools_allowed = checked_bool("tools", tools)
        self.horizon = checked_int("horizon", horizon, 1, 1000)
        self.proposals = checked_int("proposals", proposals, 1, 1000)
        self.max_tool_calls = checked_int("calls", calls, 0, 1000) or 1000
        self.budget_notice = checked_bool("budget_notice", budget_notice)
        self.feedback = checked_choice("feedback", feedback, FEEDBACK)
        self.critic_knows_answer = checked_bool("critic_knows_answer", critic_knows_answer)
        self._parts, self.reward_bounds = REWARDS[checked_choice("reward", reward, REWARDS)]
        self.short_errors = checked_bool("short_errors", short_errors)
        self.noise = checked_int("noise", noise, 0, 10_000)
        self.instruction = checked_bool("instruction", instruction)
        limits = SandboxLimits(seconds=seconds, cpu_seconds=max(seconds, 1.0))
        self._sandbox_config = SandboxConfig(limits=limits)
        self.python_tool: PythonTool | VerlPython = PythonTool(
            self._sandbox_config, replayed=checked_bool("replayed_session", replayed_session)
        )
        self.rules = (
            f"Answer the question in at most {horizon} turns and {proposals} answers. "
            f"{self.protocol.instruction}"
        )
        self.problem, self.generator = _NO_PROBLEM, ""
        self._rewind()

    def _entries(self, split: str, names: Sequence[str]) -> tuple[GeneratorEntry, ...]:
        """The generators that problems are drawn from."""
        return split_generators(split, names)

    def __getstate__(self) -> dict[str, Any]:
        """A copy has a session of its own."""
        return {**self.__dict__, "python_tool": copy.copy(self.python_tool)}

    def _tools(self) -> Sequence[Tool | Callable[..., Any]]:
        if not self.tools_allowed:
            return ()
        room = len(self.protocol.output) + self.protocol.max_characters + self.noise + 200
        return (tool(self.python, self.python_tool.seconds, room),)

    @property
    def calls_left(self) -> int:
        """How many calls of the tool are left; the last turn is for the answer."""
        turns = self.horizon - len(self._step_history) - 1
        return max(0, min(self.max_tool_calls - self.calls, turns))

    def python(self, code: str) -> str:
        """Run Python code.

        Args:
            code: the code
        """
        if self.calls >= self.max_tool_calls:
            self.calls, self.failed_calls = self.calls + 1, self.failed_calls + 1
            self.last_failed = True
            return f"Error: at most {self.max_tool_calls} calls are run in an episode"
        prelude = self.problem.prelude or self.protocol.prelude
        if prelude and not self.python_tool.history:
            self.python_tool.python(prelude)
        text = self.python_tool.python(without_fence(code))
        outcome = self.python_tool.last_outcome
        assert outcome is not None
        self.calls, self.last_failed = self.calls + 1, not outcome.succeeded
        self.failed_calls += self.last_failed
        if outcome.exit_code == 1 and (self.short_errors or self.protocol.last_line):
            text = outcome.stdout + (outcome.stderr.strip().splitlines() or [""])[-1]
        self.last_output = text.strip() if text != "(no output)" else ""
        text = self.protocol.show_output(self.last_output)
        return within_noise(text, self.noise, f"{self.problem.question}{self.calls}")

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        check_no_options("CodeProblems", options)
        rng = self.np_random
        if self.num_problems:
            rng = rng_of_task(rng, self.num_problems)
        difficulty = self.easiest + float(rng.random()) * (self.hardest - self.easiest)
        self.generator, self.problem = self._draw(rng, difficulty)
        self._rewind()
        instruction = f" {self.protocol.instruction}" if self.instruction else ""
        return (user(f"{self.problem.question}{instruction}"),), {}

    def _draw(self, rng: np.random.Generator, difficulty: float) -> tuple[str, Problem]:
        """The name of a generator, and a problem of it."""
        entry, problem = draw_problem(rng, self.entries, self.split, difficulty)
        return entry.name, problem

    def _rewind(self) -> None:
        self.calls = self.failed_calls = self.tool_turns = self.num_proposals = 0
        self.malformed_turns = self.silent_turns = 0
        self.last_output, self.last_failed = "", False
        if self.tools_allowed and self.problem is not _NO_PROBLEM:
            self.python_tool.restart(files=self.problem.files)

    def run_code(self, code: str) -> Outcome:
        """Run a program by itself, as the check of an answer that is code."""
        return shared_sandbox(self._sandbox_config).run(Snippet(code))

    def _step_message(self, message: Message) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        answer, observation = self.protocol.answer_of(message.text), ()
        info: dict[str, Any] = {"called_tools": []}
        if (
            message.tool_calls
            and self.tools_allowed
            and (answer is None or not self.protocol.start)
        ):
            before = self.calls
            observation, info = self._run_calls(message)
            ran = self.calls > before
            self.tool_turns += 1
            info["called_tools"] = ["python"] * ran
            answer = self._printed_answer() if ran else None
        elif message.tool_calls and not self.protocol.start:
            answer = None
        is_void = answer is None and not info["called_tools"]
        self.malformed_turns += is_void
        self.silent_turns += not has_thought(message.text)
        is_right = answer is not None and self._is_right(answer)
        self.num_proposals += answer is not None
        turns = len(self._step_history) + 1
        terminated = is_right or self.num_proposals >= self.proposals
        truncated = turns >= self.horizon and not terminated
        info.update(
            void=is_void,
            formatted=not is_void,
            answer=answer,
            gold=self.problem.answer,
            stopped=answer is not None and terminated,
            code_failed=bool(info["called_tools"]) and self.last_failed,
        )
        parts = dict.fromkeys(self._parts(NO_COUNTS), 0.0)
        if terminated or truncated:
            info["success"], parts = is_right, self._parts(self._counts(is_right, answer))
        else:
            observation = self._with_remarks(observation, answer, is_void, turns)
        info["rewards"] = parts
        return observation, sum(parts.values()), terminated, truncated, info

    def _printed_answer(self) -> str | None:
        """The answer in what the code printed, where the protocol reads it there."""
        if not self.protocol.answer_in_output or self.last_failed:
            return None
        return self.protocol.answer_of(self.last_output)

    def _is_right(self, answer: str) -> bool:
        return self.problem.check(without_fence(answer), self.run_code)

    def _counts(self, is_right: bool, answer: str | None) -> EpisodeCounts:
        return EpisodeCounts(
            is_right,
            answer is not None,
            self.calls,
            self.failed_calls,
            self.tool_turns,
            self.malformed_turns,
            self.silent_turns,
        )

    def _with_remarks(
        self, observation: Messages, answer: str | None, is_void: bool, turns: int
    ) -> Messages:
        """The observation, with what the environment and the critic say to an unfinished turn."""
        remarks = []
        if answer is not None:
            remarks.append("Your answer is wrong.")
        elif is_void and not observation:
            remarks.append(f"Invalid action. {self.protocol.instruction}")
        if self.budget_notice:
            steps, chances = self.horizon - turns, self.proposals - self.num_proposals
            remarks.append(
                f"You have {steps} steps left and {chances} chances to propose solution left."
            )
            if steps == 1:
                remarks.append("You should take the last step to propose a solution.")
        if self.feedback != "none":
            remarks.append(f"Expert feedback:\n{self._feedback(answer)}")
        text = "\n".join(remarks)
        if not observation:
            return (user(text),)
        last = observation[-1]
        return (*observation[:-1], last.replace(content=f"{last.text}\n{text}".rstrip("\n")))

    def _feedback(self, answer: str | None) -> str:
        lines = self.last_output.splitlines()
        known = self.critic_knows_answer
        summary = TurnSummary(
            answer,
            self.last_output if self.calls else None,
            self.last_failed,
            self.problem.answer if known else None,
            bool(known and lines and self._is_right(lines[-1].strip())),
        )
        return feedback_text(self.feedback, summary)

    def close(self) -> None:
        self.python_tool.close()
