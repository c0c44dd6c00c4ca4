"""`Timeouts`: how long each kind of wait may take."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass

from agentrl_jax.errors import DeadlineExceeded, UserError


@dataclass
class Timeouts:
    """Seconds; the first four increase. An episode that exceeds one is retried or dropped.

    Tools have no timeout here: no environment runs any yet, and one that does limits them itself,
    within its `turn`.
    """

    turn: float = 300.0  # for one step of an environment, and for one call of an engine
    episode: float = 3600.0  # for one attempt at an episode, once it has its engine slot
    group: float = 14400.0  # for a task's episodes with their retries, from the first one's start
    barrier: float = 18000.0  # for the other processes of the run to reach a barrier
    heartbeat: float = 60.0  # a process without a heartbeat for this long is lost
    stall_report: float = 30.0  # a wait of this length is reported, and again whenever it doubles

    def validate(self) -> "Timeouts":
        """These timeouts. Raises UserError where they do not nest."""
        nested = 0 < self.turn < self.episode < self.group < self.barrier < math.inf
        positive = all(0 < x < math.inf for x in (self.heartbeat, self.stall_report))
        if not nested or not positive:
            raise UserError(
                "timeouts are finite seconds with 0 < turn < episode < group < barrier, "
                f"heartbeat and stall_report > 0, not {self}"
            )
        return self


@contextlib.asynccontextmanager
async def time_limit(seconds: float, description: str) -> AsyncIterator[None]:
    """Raises DeadlineExceeded, with `description` in its message, where the block takes longer."""
    try:
        async with asyncio.timeout(seconds) as clock:
            yield
    except TimeoutError as error:
        if not clock.expired():
            raise
        raise DeadlineExceeded(f"{description} took longer than {seconds:g} s") from error
