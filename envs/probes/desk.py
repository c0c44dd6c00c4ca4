"""`Desk`: small rewards for looking busy, and one for the work (G-RA, arXiv 2508.10548)."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Player
from agentrl_jax.envs.players import Mixed
from agentrl_jax.envs.probes.probe import Probe, Reply, amount, whole


def _random(env: Environment, rng: np.random.Generator) -> str:
    """Reads a page, writes a number or submits, each a third of the time."""
    assert isinstance(env, Desk)
    return (f"read {rng.integers(len(env.pages)) + 1}", f"write {rng.integers(19)}", "submit")[rng.integers(3)]


def _expert(env: Environment, rng: np.random.Generator) -> str:
    """Reads the two pages, writes their sum and submits it; where this is done in part, the rest of it."""
    assert isinstance(env, Desk)
    if env.draft == env.solution:
        return "submit"
    unread = [page for page in env.asked if page not in env.read]
    return f"read {unread[0]}" if unread else f"write {env.solution}"


def _farmer(env: Environment, rng: np.random.Generator) -> str:
    """Reads for ever and submits nothing."""
    assert isinstance(env, Desk)
    return f"read {rng.integers(len(env.pages)) + 1}"


class Desk(Probe):
    """ "p1+p3=?": each page holds a digit; read two of them, write down their sum, submit it.

    "read 1" is answered by the page's digit, "write 12" by "ok", and "submit" ends the episode; anything else by "?". The reward's
    parts: `outcome` is 1 where the sum written last is right when it is submitted, else 0; `format` pays `format_reward` for every
    turn in one of these forms, `tool` pays `tool_reward` for every read and write. With the default amounts reading until the horizon
    earns 2.4, the shortest solution 1.7: without a gate on the outcome it does not pay to submit before the last turns.

    `info` says `legal`, `formatted`, `tool_calls`, `stopped` (it was submitted) and `answer` (what was submitted, or None).
    """

    players: ClassVar[Mapping[str, Player]] = MappingProxyType(
        {"random": _random, "mixture": Mixed(_expert, _random, 0.8), "farmer": _farmer, "expert": _expert}
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
        self.pages = (0,) * whole("pages", pages, 2, 9)
        self.horizon = whole("horizon", horizon, 4, 1000)
        self.format_reward, self.tool_reward = amount("format_reward", format_reward), amount("tool_reward", tool_reward)
        self.reward_bounds = (0.0, 1.0 + self.format_reward + self.tool_reward)
        self.full_score = 1.0 + self.format_reward * horizon + self.tool_reward * (horizon - 1)
        self.rules = (
            f"Each of {pages} pages holds a digit. Find the sum of the two that are named; it takes at most {horizon} turns.\n"
            "read 1 shows a page, write 12 notes a sum, submit hands in the last one noted."
        )
        self._form = re.compile(rf"read ([1-{pages}])|write ([0-9]{{1,9}})|submit")
        self.asked = (1, 2)
        self.read: frozenset[int] = frozenset()
        self.draft: int | None = None

    @property
    def solution(self) -> int:
        return sum(self.pages[page - 1] for page in self.asked)

    def _draw(self) -> None:
        self.pages = tuple(map(int, self.np_random.integers(10, size=len(self.pages))))
        first, second = self.np_random.choice(len(self.pages), size=2, replace=False)
        self.asked = int(first) + 1, int(second) + 1

    def _begin(self) -> None:
        self.read, self.draft = frozenset(), None

    def _question(self) -> str:
        return "p{}+p{}=?".format(*self.asked)

    def _reply(self, text: str) -> Reply:
        form = self._form.fullmatch(text)
        page, number = form.groups() if form else (None, None)
        submitted, tool = text == "submit", page is not None or number is not None
        said = "?"
        if page is not None:
            self.read |= {int(page)}
            said = str(self.pages[int(page) - 1])
        elif number is not None:
            self.draft, said = int(number), "ok"
        success = self.draft == self.solution if submitted else None
        rewards = {"outcome": float(success or False), "format": self.format_reward * bool(form), "tool": self.tool_reward * tool}
        facts = {
            "legal": form is not None,
            "formatted": form is not None,
            "tool_calls": int(tool),
            "stopped": submitted,
            "answer": str(self.draft) if submitted and self.draft is not None else None,
        }
        return Reply("Done." if submitted else said, rewards, facts, success)
