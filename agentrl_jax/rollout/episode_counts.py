"""`EpisodeCounts`: what became of the episodes that were started, and that none was lost."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from agentrl_jax.invariants import InvariantCheck
from agentrl_jax.trajectories import Episode, Group, Trajectory

MAX_NEWEST = 32  # episodes that are kept for whoever watches the run


class EpisodeTotals(NamedTuple):
    """Counts of episodes."""

    started: int = 0
    finished: int = 0  # by their environment
    truncated: int = 0  # by a horizon or a limit
    empty: int = 0  # an agent was never to act, or had no room for it
    failed: int = 0  # dropped after their retries
    cancelled: int = 0  # with their group, or by an error

    def since(self, before: "EpisodeTotals") -> "EpisodeTotals":
        """The difference to earlier counts."""
        return EpisodeTotals(*(now - then for now, then in zip(self, before)))


class EpisodeCounts:
    """Counts the episodes of agents; a scripted policy's are no experience and not counted."""

    def __init__(self) -> None:
        self.totals = EpisodeTotals()
        self.newest: deque[Trajectory] = deque(maxlen=MAX_NEWEST)  # that ended, the last one last

    def _add(self, outcome: str) -> None:
        self.totals = self.totals._replace(**{outcome: getattr(self.totals, outcome) + 1})

    @contextmanager
    def episode(self) -> Iterator["EpisodeEnd"]:
        """Count an episode's start, and how it ended: the caller sets the result."""
        self._add("started")
        end = EpisodeEnd()
        try:
            yield end
        except BaseException:
            self._add("cancelled")
            raise
        self._add(outcome_of(end.result))
        if isinstance(end.result, Episode):
            self.newest.append(end.result.trajectories[0])
        elif end.result is not None:
            self.newest.append(end.result)


@dataclass
class EpisodeEnd:
    """What playing an episode returned; None: it was dropped."""

    result: Trajectory | Episode | None = None


def outcome_of(result: Trajectory | Episode | None) -> str:
    """The name of the count of an episode with this result; of a match, its first player's."""
    if result is None:
        return "failed"
    trajectories = result.trajectories if isinstance(result, Episode) else (result,)
    if not all(trajectory.turns for trajectory in trajectories):
        return "empty"
    return "truncated" if trajectories[0].truncated else "finished"


def conserved_episodes(totals: EpisodeTotals, groups: Sequence[Group]) -> InvariantCheck:
    """Every episode that was started has ended, and those that ended are in the groups, unless a
    strategy discarded some and counted their turns.

    Args:
        totals: of the time in which the groups were collected; no episode goes on.
        groups: all of them, before any filter.
    """
    ended = totals.finished + totals.truncated + totals.failed
    in_flight = totals.started - ended - totals.empty - totals.cancelled
    in_groups = sum(
        len({trajectory.sample for trajectory in group.trajectories}) + group.num_dropped
        for group in groups
    )
    has_discarded = any(group.discarded_turns for group in groups)
    return InvariantCheck(
        "conserved_episodes",
        in_flight == 0 and (has_discarded or in_groups >= ended),
        f"{totals.started} episodes started: {totals.finished} finished, {totals.truncated} were "
        f"truncated, {totals.empty} had no turn, {totals.failed} failed, {totals.cancelled} were "
        f"cancelled and {in_flight} are still in flight, and the groups hold {in_groups}",
    )
