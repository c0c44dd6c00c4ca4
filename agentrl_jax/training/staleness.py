"""`StalenessQueue`: which tasks may start, and which finished groups a step takes.

No group is too old, lost or used twice:

    a task starts while    started < groups_per_step (version + staleness + 1)
    a step takes           the groups that finished first, except that it takes those that must be
                           used now, so that every later step has room for what it must take

A group that started under version v may be used up to step v + staleness, its last step. By the
first rule at most groups_per_step (d + 1) groups with a last step <= d ever start, and steps
0, ..., d use that many. So the second rule can always be satisfied: a step never has to take more
than `groups_per_step` groups, and whenever it waits, a group that it can take is in flight.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentrl_jax.invariants import InvariantCheck
from agentrl_jax.trajectories import Group


@dataclass(eq=False)
class InFlight:
    """A group from its start to its use; times are of the event loop."""

    start_index: int  # rank in the order of starts
    version: int  # of the weights at its start; none of its tokens is older
    start_time: float
    end_time: float = 0.0
    finish_index: int = -1  # rank in the order of finishes
    group: Group | None = None


def select_groups(
    in_flight: Sequence[InFlight], groups_per_step: int, step: int, staleness: int
) -> list[InFlight] | None:
    """The groups that a step takes, in the order of their starts; None where it has to wait.

    For each d >= step, at most groups_per_step (d - step) of those with a last step <= d remain.
    """
    finished = sorted(
        (flight for flight in in_flight if flight.group is not None),
        key=lambda flight: flight.finish_index,
    )
    taken: list[InFlight] = []
    for last in range(step, step + staleness + 1):
        num_due = sum(flight.version + staleness <= last for flight in in_flight)
        num_required = num_due - groups_per_step * (last - step)
        candidates = [
            flight
            for flight in finished
            if flight.version + staleness <= last and flight not in taken
        ]
        num_missing = max(0, num_required - len(taken))
        if len(candidates) < num_missing:
            return None
        taken += candidates[:num_missing]
    rest = [flight for flight in finished if flight not in taken]
    taken += rest[: groups_per_step - len(taken)]
    if len(taken) != groups_per_step:
        return None
    return sorted(taken, key=lambda flight: flight.start_index)


class StalenessQueue:
    """Keeps tasks in flight, on one event loop; only `counts` may be read from other threads."""

    def __init__(
        self,
        groups_per_step: int,
        staleness: int,
        steps: int,
        play_group: Callable[[int], Coroutine[Any, Any, Group]],
        step: int = 0,
        drain_every: int = 0,
    ) -> None:
        """Nothing starts before `set_version` or `take`.

        Args:
            groups_per_step: that each step takes.
            staleness: versions by which a used group may lag behind.
            steps: of the whole phase.
            play_group: plays the task with a start index, from groups_per_step * step on.
            step: the first step that is taken.
            drain_every: no group is in flight at steps that are multiples of this; 0: never
                drained.
        """
        self._groups_per_step, self._staleness = groups_per_step, staleness
        self._total, self._drain_every = groups_per_step * steps, drain_every or steps
        self._play_group, self._version = play_group, step
        self._num_started = self._num_finished = groups_per_step * step
        self._num_taken, self.totals = groups_per_step * step, GroupTotals()
        self._in_flight: list[InFlight] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None
        self._changed = asyncio.Event()

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of groups that are being played, and that wait to be taken."""
        waiting = sum(flight.group is not None for flight in list(self._in_flight))
        return {"in_flight": len(self._in_flight) - waiting, "waiting": waiting}

    def set_version(self, version: int) -> None:
        """Weights of this version were published: start the tasks that may start now."""
        self._version = max(version, self._version)
        next_drain = (self._version // self._drain_every + 1) * self._drain_every
        end_step = min(self._version + self._staleness + 1, next_drain)
        while self._num_started < min(self._total, self._groups_per_step * end_step):
            flight = InFlight(self._num_started, self._version, asyncio.get_running_loop().time())
            self._num_started += 1
            self._in_flight.append(flight)
            task = asyncio.get_running_loop().create_task(
                self._run_group(flight), name=f"group {flight.start_index}"
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run_group(self, in_flight: InFlight) -> None:
        try:
            in_flight.group = await self._play_group(in_flight.start_index)
            in_flight.end_time = asyncio.get_running_loop().time()
            in_flight.finish_index = self._num_finished
            self._num_finished += 1
        except Exception as error:
            self._error = error
        self._changed.set()

    async def take(self, step: int) -> list[InFlight]:
        """Wait for the groups of a step, in the order of their starts; raises what playing any
        group raised.
        """
        self.set_version(self._version)
        taken = None
        while taken is None:
            self._changed.clear()
            if self._error is not None:
                raise self._error
            taken = select_groups(self._in_flight, self._groups_per_step, step, self._staleness)
            if taken is None:
                await self._changed.wait()
        self._in_flight = [flight for flight in self._in_flight if flight not in taken]
        self._num_taken += len(taken)
        counts = self.counts
        self.totals = GroupTotals(
            self._num_started, self._num_taken, counts["waiting"], counts["in_flight"]
        )
        return taken


class GroupTotals(NamedTuple):
    """Counts of groups from the start of a phase to a step."""

    started: int = 0
    taken: int = 0
    waiting: int = 0
    in_flight: int = 0


def conserved_groups(totals: GroupTotals) -> InvariantCheck:
    """Every group that was started was taken by a step, waits for one or is being played."""
    return InvariantCheck(
        "conserved_episodes",
        totals.started == totals.taken + totals.waiting + totals.in_flight,
        f"of {totals.started} groups that were started {totals.taken} were trained on, "
        f"{totals.waiting} are waiting and {totals.in_flight} in flight",
    )
