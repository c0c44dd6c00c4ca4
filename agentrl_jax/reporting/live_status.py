"""`LiveStatus`: what a run is doing at a moment, for the dashboard."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Queue(NamedTuple):
    """Something that is waited for, and how much of it there is."""

    name: str
    depth: str


class EnvironmentTime(NamedTuple):
    """Seconds of a step of an environment."""

    name: str
    mean: float
    longest: float


class Wait(NamedTuple):
    """An episode that waits."""

    task: str
    target: str  # what it waits for
    seconds: float  # so far


class Excerpt(NamedTuple):
    """The end of an episode."""

    title: str
    messages: Sequence[tuple[str, str]]  # role and text, as they are: not yet safe for a terminal


@dataclass(frozen=True)
class LiveStatus:
    """A snapshot, which is cheap to make and takes no lock."""

    episodes: int = 0  # that have ended since the run began
    queues: Sequence[Queue] = ()
    environments: Sequence[EnvironmentTime] = ()  # the slowest first
    waits: Sequence[Wait] = ()  # the longest first
    excerpt: Excerpt | None = None  # of the last finished episode
