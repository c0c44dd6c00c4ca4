"""`Deadlines`: how long anything is waited for."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass

from agentrl_jax.errors import DeadlineExceeded, UserError


@dataclass
class Deadlines:
    """Seconds, each less than the next. What is late is given up, and its episode played again or dropped.

    Nothing here is about tools: no world runs any yet, and one that does keeps their time itself, within its `turn`.
    """

    turn: float = 300.0  # for one answer of a world, and for one call of an engine
    episode: float = 3600.0  # for one attempt at an episode, once it has its place at the engine
    group: float = 14400.0  # for all of a task's episodes with their retries, from the first one's start
    hosts: float = 18000.0  # for the other processes of the run, where all must meet
    silence: float = 60.0  # a process of the run that is not heard of for so long is gone
    watch: float = 30.0  # a wait of so long is reported, and again whenever it has doubled

    def check(self) -> "Deadlines":
        """Raises UserError where they do not nest."""
        nested, others = 0 < self.turn < self.episode < self.group < self.hosts < math.inf, (self.silence, self.watch)
        if not nested or not all(0 < seconds < math.inf for seconds in others):
            raise UserError(f"deadlines are finite seconds with 0 < turn < episode < group < hosts, silence and watch > 0, not {self}")
        return self


@contextlib.asynccontextmanager
async def within(seconds: float, what: str) -> AsyncIterator[None]:
    """Raises DeadlineExceeded, naming `what` took too long, where the block takes longer."""
    try:
        async with asyncio.timeout(seconds) as clock:
            yield
    except TimeoutError as error:
        if not clock.expired():
            raise
        raise DeadlineExceeded(f"{what} took longer than {seconds:g} s") from error
