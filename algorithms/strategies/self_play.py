"""`SelfPlay`: the seats of a game, by the policy and by its opponents (slot O7; MARS, arXiv 2510.15414)."""

import asyncio
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from agentrl_jax.errors import UserError
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Episode, Group, Key, Trajectory
from agentrl_jax.workers import Task


@runtime_checkable
class Opponents(Protocol):
    """Who sits in the other seats."""

    def seated(self, own: int, seats: int) -> tuple[dict[str, Any], dict[int, str]]:
        """The game's reset options, and the agents of seats that are played from outside, beside the policy in seat `own`."""
        ...


@dataclass
class ScriptedOpponent:
    """A scripted player of the game itself, in all other seats."""

    player: str = "expert"

    def seated(self, own: int, seats: int) -> tuple[dict[str, Any], dict[int, str]]:
        return {"seats": [own], "opponent": self.player}, {}


@dataclass
class SelfPlay:
    """`group_size` episodes of the same game, whose trainable seats' trajectories are the group's.

    Without `opponents` the policy plays all seats, each with its own random numbers. With them it plays one seat, of episode j seat
    number j mod `seats`, in the first `share` of the episodes, and all seats in the others. A game of one seat is any environment, and
    then this is `Independent`, bit for bit.
    """

    group_size: int = 8
    seats: int = 2
    agent: str = "policy"
    opponents: Opponents | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        if min(self.group_size, self.seats) < 1 or not 0 <= self.share <= 1 or (self.seats == 1 and self.opponents is not None):
            raise UserError(
                f"self-play needs group_size, seats >= 1, 0 <= share <= 1, and opponents only in a game of several seats: {self}"
            )

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        played = await asyncio.gather(*(self._episode(task, runtime, key, sample) for sample in range(self.group_size)))
        done = [trajectory for episode in played if episode is not None for trajectory in episode.seats]
        ours = tuple(trajectory for trajectory in done if runtime.agents[trajectory.agent].trainable)
        return Group(task.name, ours, dropped=sum(episode is None for episode in played))

    async def _episode(self, task: Task, runtime: Runtime, key: Key, sample: int) -> Episode | None:
        options: dict[str, Any] = {"seats": list(range(self.seats))} if self.seats > 1 else {}
        agents: Mapping[int, str] = dict.fromkeys(range(self.seats), self.agent)
        if self.opponents is not None and sample < self._against:
            own = sample % self.seats
            options, others = self.opponents.seated(own, self.seats)
            agents = {own: self.agent, **others}
        if options:
            task = dataclasses.replace(task, reset_options={**(task.reset_options or {}), **options})
        return await runtime.match(task, agents, key, sample)

    @property
    def _against(self) -> int:
        """How many of the group's episodes have opponents."""
        return round(self.share * self.group_size) if self.opponents is not None else 0


def outcome(trajectory: Trajectory) -> float:
    """1, 1/2 or 0 for a game that was won, drawn or lost: the sign of what it earned."""
    total = trajectory.total_reward
    return 0.5 * (1 + (total > 0) - (total < 0))
