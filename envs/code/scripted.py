"""Scripted policies of `CodeProblems`; their demonstrations think, run code and mend it."""

import json
from typing import Protocol

import numpy as np

from agentrl_jax.envs.code.checks import UnitTests
from agentrl_jax.envs.code.problem import Problem
from agentrl_jax.envs.code.protocols import CodeProtocol
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.messages import Message, ToolCall

_ERROR_PROBABILITY = 0.3


class CodeEpisode(Protocol):
    """What the policies read of `CodeProblems`."""

    problem: Problem
    protocol: CodeProtocol
    tools_allowed: bool
    calls: int
    last_output: str
    last_failed: bool

    @property
    def calls_left(self) -> int: ...


def call_python(thought: str, code: str) -> Message:
    """A thought, and a call of the tool `python`."""
    call = ToolCall("call_0", "python", json.dumps({"code": code}))
    return Message("assistant", thought, (call,))


# Each program has one of them.
_NAMES = ("print", "def", "for", "import", "execute_sql")


def broken(code: str, rng: np.random.Generator) -> str:
    """The code with an error that Python reports: a misspelled name or an open bracket."""
    if rng.random() < 0.5 or not code.endswith(")"):
        name = next(word for word in _NAMES if word in code)
        return code.replace(name, name[:-1], 1)
    return code[:-1]


def program_to_run(env: CodeEpisode) -> str:
    """The problem's program; where that is a function, with a call that shows what it returns."""
    check = env.problem.check
    if not isinstance(check, UnitTests):
        return env.problem.program
    arguments = ", ".join(map(repr, check.cases[0][0]))
    return f"{env.problem.program}\nprint(f({arguments}))"


def computed_answer(env: CodeEpisode) -> str:
    """What the agent answers after its code has run: the output's last line, or the function."""
    if isinstance(env.problem.check, UnitTests):
        return env.problem.program
    lines = env.last_output.strip().splitlines()
    return lines[-1].strip() if lines else ""


def answer_text(env: CodeEpisode, thought: str, answer: str) -> str:
    """A thought and the answer; the answer alone where the protocol has no marks around it."""
    text = env.protocol.write_answer(answer)
    return f"{thought} {text}" if env.protocol.start else text


def has_look(env: CodeEpisode) -> bool:
    """Whether the expert looks at the files before its program, which needs a call for each."""
    return bool(env.problem.look) and env.calls + env.calls_left > 1


def expert_action(env: CodeEpisode, rng: np.random.Generator) -> Message | str:
    """Runs a program that solves the problem, and answers with what it prints."""
    if not env.tools_allowed:
        return direct_action(env, rng)
    looks = has_look(env)
    if looks and env.calls == 0:
        return call_python("I look at the rows.", env.problem.look)
    if env.calls_left and (env.calls == looks or env.last_failed):
        if env.calls == looks:
            return call_python(env.problem.thought, program_to_run(env))
        error = (env.last_output.strip().splitlines() or ["an error"])[-1].split(":")[0]
        return call_python(f"{error}: I mend the code.", program_to_run(env))
    return answer_text(env, "The code has the answer.", computed_answer(env))


def recovering_action(env: CodeEpisode, rng: np.random.Generator) -> Message | str:
    """The expert, whose first code has an error with probability .3; it is mended."""
    may_fail = env.tools_allowed and env.calls == has_look(env) and env.calls_left > 1
    if may_fail and rng.random() < _ERROR_PROBABILITY:
        return call_python(env.problem.thought, broken(program_to_run(env), rng))
    return expert_action(env, rng)


def direct_action(env: CodeEpisode, rng: np.random.Generator) -> str:
    """The right answer at once, without code."""
    return answer_text(env, "I know it.", env.problem.answer)


def give_up(env: CodeEpisode, rng: np.random.Generator) -> str:
    """Ends the episode without an answer."""
    return answer_text(env, "I give up.", "unknown")


def random_action(env: CodeEpisode, rng: np.random.Generator) -> Message | str:
    """Prints a uniform number, or answers with one."""
    number = int(rng.integers(100))
    if env.tools_allowed and env.calls_left and rng.random() < 0.5:
        return call_python("", f"print({number})")
    return env.protocol.write_answer(str(number))


SCRIPTED_POLICIES = {
    "random": random_action,
    "expert": expert_action,
    "recovering": recovering_action,
    "hasty": MixturePolicy(recovering_action, give_up, 0.85),
    "mixture": MixturePolicy(recovering_action, random_action, 0.85),
    "weak": MixturePolicy(recovering_action, random_action, 0.6),
    "direct": direct_action,
}
