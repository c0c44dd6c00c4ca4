"""`Stream`: which tasks may start and which finished groups a step takes, so that none is too old, lost or used twice.

    a task starts while    started < count (version + staleness + 1)        count: groups a step
    a step takes           what finished first, but whatever must be used now, so that every later step has room for what it must take

A group that started under version v may be used up to step v + staleness, its last step. Of all groups with a last step <= d
at most count (d + 1) ever start, by the first rule, and steps 0, ..., d use so many. So the second rule can always be kept: a
step never has to take more than `count`, and there is always something to wait for that is on its way.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl_jax.trajectories import Group


@dataclass(eq=False)
class Flight:
    """A group from its start to its use; times are those of the event loop."""

    number: int  # the how manieth to start
    version: int  # of the weights at its start: none of its tokens is older
    began: float
    ended: float = 0.0
    place: int = -1  # the how manieth to finish
    group: Group | None = None


def chosen(flights: Sequence[Flight], count: int, step: int, staleness: int) -> list[Flight] | None:
    """The groups that a step takes, by number; None where it has to wait.

    Of those with a last step <= d, for each d >= step, at most count (d - step) are left over.
    """
    done = sorted((flight for flight in flights if flight.group is not None), key=lambda flight: flight.place)
    taken: list[Flight] = []
    for last in range(step, step + staleness + 1):
        must = sum(flight.version + staleness <= last for flight in flights) - count * (last - step)
        more = [flight for flight in done if flight.version + staleness <= last and flight not in taken]
        short = max(0, must - len(taken))
        if len(more) < short:
            return None
        taken += more[:short]
    taken += [flight for flight in done if flight not in taken][: count - len(taken)]
    return sorted(taken, key=lambda flight: flight.number) if len(taken) == count else None


class Stream:
    """Keeps tasks in flight. All of it runs on one event loop, but for the constructor."""

    def __init__(
        self, count: int, staleness: int, steps: int, play: Callable[[int], Coroutine[Any, Any, Group]], step: int = 0, fence: int = 0
    ) -> None:
        """`count` groups a step; `play` plays the n-th task, from n = count * step on.

        With a `fence` nothing is in flight at its multiples: the tasks of what follows start when these weights are there.
        """
        self._fence = fence or steps
        self._count, self._staleness, self._total = count, staleness, count * steps
        self._play, self._version, self._started, self._finished = play, step, count * step, count * step
        self._flights: list[Flight] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None
        self._news = asyncio.Event()

    @property
    def state(self) -> dict[str, int]:
        """How many groups are in flight, and how many wait to be used; other threads may ask too."""
        waiting = sum(flight.group is not None for flight in list(self._flights))
        return {"in_flight": len(self._flights) - waiting, "waiting": waiting}

    def renew(self, version: int) -> None:
        """New weights are there: more tasks may start."""
        self._version = max(version, self._version)
        fence = (self._version // self._fence + 1) * self._fence
        while self._started < min(self._total, self._count * min(self._version + self._staleness + 1, fence)):
            flight = Flight(self._started, self._version, asyncio.get_running_loop().time())
            self._started += 1
            self._flights.append(flight)
            task = asyncio.get_running_loop().create_task(self._fly(flight), name=f"group {flight.number}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _fly(self, flight: Flight) -> None:
        try:
            flight.group = await self._play(flight.number)
            flight.ended, flight.place = asyncio.get_running_loop().time(), self._finished
            self._finished += 1
        except Exception as error:
            self._error = error
        self._news.set()

    async def take(self, step: int) -> list[Flight]:
        """The groups of a step, in the order of their start; waits for them. Raises what the play of any group raised."""
        self.renew(self._version)
        taken = None
        while taken is None:
            self._news.clear()
            if self._error is not None:
                raise self._error
            taken = chosen(self._flights, self._count, step, self._staleness)
            if taken is None:
                await self._news.wait()
        self._flights = [flight for flight in self._flights if flight not in taken]
        return taken
