"""`code`: the table of generators of problems, and environment steps per second with code.

Generates the tables of docs/code.md.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.environment import make
from agentrl_jax.envs.code.generators import GENERATORS
from agentrl_jax.envs.code.problem import Problem
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.rivals import round_significant
from agentrl_jax.launch.benchmarks.shapes import run_environment
from agentrl_jax.launch.dataclass_flags import option

ENVIRONMENT = "agentrl_jax.envs:agentrl/CodeProblems-v0"
# What is measured -> options of the environment.
SESSIONS: dict[str, dict[str, Any]] = {
    "answers without code": {"tools": False},
    "a session that stays": {},
    "a replayed session": {"replayed_session": True},
}
_CHECKS = {
    "NumberCheck": "number",
    "ExactText": "text",
    "ItemSet": "set",
    "Constraint": "any solution",
    "UnitTests": "unit tests",
}


def example(name: str) -> Problem:
    """An easy problem of a generator."""
    return GENERATORS[name].generate(np.random.default_rng(0), 0.0)


def generator_table() -> str:
    """A row for each generator: group, name, its split, how answers are checked, an example."""
    lines = ["| group | generator | held out | check | example |", "|---|---|---|---|---|"]
    for entry in GENERATORS.values():
        problem = example(entry.name)
        check = _CHECKS[type(problem.check).__name__]
        question = problem.question.replace("|", "\\|").replace("*", "\\*")
        is_out = "yes" if entry.is_held_out else ""
        lines.append(f"| {entry.group} | `{entry.name}` | {is_out} | {check} | {question} |")
    return "\n".join(lines)


@dataclass
class CodeProblemsBench:
    """Steps and resets of the expert's episodes, played one after another in this process."""

    seconds: float = option(5.0, "Seconds of each measurement.", 0.01)
    page: str = option("", "The page whose tables are replaced, docs/code.md; empty: none.")

    def prepare(self) -> None:
        """Uses none of this process's devices."""

    def run(self) -> dict[str, Any]:
        """Measure, print the tables and report.

        Raises:
            UserError: there is no sandbox here.
        """
        rates = {name: self.measure(options) for name, options in SESSIONS.items()}
        machine = run_environment()
        lines = [f"| {name} | {rate:,.0f} |" for name, rate in rates.items()]
        note = f"{machine['cores']} cores, load {machine['load']}."
        speed = "\n".join(["| | steps a second |", "|---|---|", *lines, "", note])
        if self.page:
            doc_tables.replace_section(Path(self.page), "generators", generator_table())
            doc_tables.replace_section(Path(self.page), "steps", speed)
        print(speed)
        return {"bench": "code", "steps_per_second": rates, **machine}

    def measure(self, options: dict[str, Any]) -> float:
        """Steps per second, what the first episode loads left out."""
        env, rng, seed, steps = make(ENVIRONMENT, options), np.random.default_rng(0), 0, 0
        start = time.perf_counter()
        while seed < 2 or time.perf_counter() - start < self.seconds:
            env.reset(seed=seed)
            is_over = False
            while not is_over:
                _, _, terminated, truncated, _ = env.step(env.scripted_policies["expert"](env, rng))
                is_over, steps = terminated or truncated, steps + 1
            if seed == 0:
                start, steps = time.perf_counter(), 0
            seed += 1
        rate = steps / (time.perf_counter() - start)
        env.close()
        return round_significant(rate)
