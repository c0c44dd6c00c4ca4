"""`Desk`: small rewards for activity and one for the result (G-RA, arXiv 2508.10548)."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import ScriptedPolicy
from agentrl_jax.envs.options import checked_fraction, checked_int
from agentrl_jax.envs.sampled_task import SampledTaskEnvironment, StepResult
from agentrl_jax.envs.scripted_mixture import MixturePolicy


def _random_action(env: "Desk", rng: np.random.Generator) -> str:
    """Reads a page, writes a number or submits, each with probability 1/3."""
    return (f"read {rng.integers(len(env.pages)) + 1}", f"write {rng.integers(19)}", "submit")[
        rng.integers(3)
    ]


def _expert_action(env: "Desk", rng: np.random.Generator) -> str:
    """Reads the two pages, writes their sum and submits it, skipping what is done already."""
    if env.draft == env.solution:
        return "submit"
    unread = [page for page in env.question_pages if page not in env.pages_read]
    return f"read {unread[0]}" if unread else f"write {env.solution}"


def _reward_farming_action(env: "Desk", rng: np.random.Generator) -> str:
    """Reads in every turn and never submits."""
    return f"read {rng.integers(len(env.pages)) + 1}"


class Desk(SampledTaskEnvironment):
    """The observation is "p1+p3=?"; each page holds a digit, and the sum of two is to be submitted.

    "read 1" is answered by the digit of page 1, "write 12" by "ok"; "submit" ends the episode; any
    other text is answered by "?". The reward has the components `outcome` (1 if the last written
    sum is right when it is submitted, else 0), `format` (`format_reward` for each turn in one of
    these forms) and `tool` (`tool_reward` for each read and write). By default, reading until the
    horizon returns 2.4 and the shortest solution 1.7: without a gate on the outcome it is better
    not to submit before the last turns. `info` holds `legal`, `formatted`, `called_tools`,
    `stopped` (submitted) and `answer` (what was submitted, or None).

    Scripted policies: `random`, `expert` (the shortest solution), `mixture` (the expert with
    probability 0.8) and `farmer` (reads in every turn).

    Args:
        pages: how many pages there are.
        horizon: turns before truncation.
        format_reward: reward for a well-formed turn, in [0, 1].
        tool_reward: reward for a read or a write, in [0, 1].
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "mixture": MixturePolicy(_expert_action, _random_action, 0.8),
            "farmer": _reward_farming_action,
            "expert": _expert_action,
        }
    )

    def __init__(
        self,
        pages: int = 4,
        horizon: int = 12,
        format_reward: float = 0.1,
        tool_reward: float = 0.1,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.pages = (0,) * checked_int("pages", pages, 2, 9)
        self.horizon = checked_int("horizon", horizon, 4, 1000)
        self.format_reward, self.tool_reward = (
            checked_fraction("format_reward", format_reward),
            checked_fraction("tool_reward", tool_reward),
        )
        self.reward_bounds = (0.0, 1.0 + self.format_reward + self.tool_reward)
        self.full_score = 1.0 + self.format_reward * horizon + self.tool_reward * (horizon - 1)
        self.rules = (
            f"Each of {pages} pages holds a digit. Find the sum of the two that are named; it "
            f"takes at most {horizon} turns.\n"
            "read 1 shows a page, write 12 notes a sum, submit hands in the last one noted."
        )
        self._action_pattern = re.compile(rf"read ([1-{pages}])|write ([0-9]{{1,9}})|submit")
        self.question_pages = (1, 2)
        self.pages_read: frozenset[int] = frozenset()
        self.draft: int | None = None

    @property
    def solution(self) -> int:
        return sum(self.pages[page - 1] for page in self.question_pages)

    def _sample_task(self) -> None:
        self.pages = tuple(map(int, self.np_random.integers(10, size=len(self.pages))))
        first, second = self.np_random.choice(len(self.pages), size=2, replace=False)
        self.question_pages = int(first) + 1, int(second) + 1

    def _reset_state(self) -> None:
        self.pages_read, self.draft = frozenset(), None

    def _opening_text(self) -> str:
        return "p{}+p{}=?".format(*self.question_pages)

    def _respond(self, text: str) -> StepResult:
        action = self._action_pattern.fullmatch(text)
        page, number = action.groups() if action else (None, None)
        submitted = text == "submit"
        tools = [] if action is None or submitted else [text.split()[0]]
        answer = "?"
        if page is not None:
            self.pages_read |= {int(page)}
            answer = str(self.pages[int(page) - 1])
        elif number is not None:
            self.draft, answer = int(number), "ok"
        success = self.draft == self.solution if submitted else None
        rewards = {
            "outcome": float(success or False),
            "format": self.format_reward * bool(action),
            "tool": self.tool_reward * len(tools),
        }
        info = {
            "legal": action is not None,
            "formatted": action is not None,
            "called_tools": tools,
            "stopped": submitted,
            "answer": str(self.draft) if submitted and self.draft is not None else None,
        }
        return StepResult("Done." if submitted else answer, rewards, info, success)
