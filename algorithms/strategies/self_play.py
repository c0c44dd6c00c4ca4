"""`SelfPlay`: the players of a game, by the policy and its opponents (MARS, arXiv 2510.15414)."""

import asyncio
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from agentrl_jax.errors import UserError
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Episode, Group, RandomKey, Trajectory
from agentrl_jax.workers.pool import Task


@runtime_checkable
class Opponents(Protocol):
    """Assigns agents to the players that the policy does not play."""

    def assign_players(
        self, policy_player: int, num_players: int
    ) -> tuple[dict[str, Any], dict[int, str]]:
        """The game's reset options, and agents by player index.

        Args:
            policy_player: The player index of the policy.
            num_players: Of the game. Those without an agent are played within the game.
        """
        ...


@dataclass
class ScriptedOpponent:
    """A scripted policy of the environment plays all other players."""

    player: str = "expert"

    def assign_players(
        self, policy_player: int, num_players: int
    ) -> tuple[dict[str, Any], dict[int, str]]:
        return {"seats": [policy_player], "opponent": self.player}, {}


@dataclass
class OtherAgent:
    """Another agent of the experiment plays all other players; the group holds its trajectories
    where the phase trains it too.
    """

    name: str

    def assign_players(
        self, policy_player: int, num_players: int
    ) -> tuple[dict[str, Any], dict[int, str]]:
        players = {i: self.name for i in range(num_players) if i != policy_player}
        return {"seats": list(range(num_players))}, players


@dataclass
class SelfPlay:
    """`group_size` episodes of a game; the group holds the trajectories of trainable agents.

    Without `opponents` the policy plays all players, each with its own random numbers. With them it
    plays one player, in episode j player number j mod `num_players`, in the first
    `opponent_fraction` of the episodes, and all players in the others. A game of one player is any
    environment, and then this is `IndependentEpisodes`, bit for bit.
    """

    group_size: int = 8
    num_players: int = 2
    agent: str = "policy"
    opponents: Opponents | None = None
    opponent_fraction: float = 1.0

    def __post_init__(self) -> None:
        if (
            min(self.group_size, self.num_players) < 1
            or not 0 <= self.opponent_fraction <= 1
            or (self.num_players == 1 and self.opponents is not None)
        ):
            raise UserError(
                "self-play needs group_size and num_players >= 1, 0 <= opponent_fraction <= 1, and "
                f"opponents only in a game of several players: {self}"
            )

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        episodes = await asyncio.gather(
            *(self._run_match(task, runtime, key, sample) for sample in range(self.group_size))
        )
        trainable = tuple(
            trajectory
            for episode in episodes
            if episode is not None
            for trajectory in episode.trajectories
            if runtime.agents[trajectory.agent].trainable
        )
        num_dropped = sum(episode is None for episode in episodes)
        return Group(task.name, trainable, num_dropped=num_dropped)

    async def _run_match(
        self, task: Task, runtime: Runtime, key: RandomKey, sample: int
    ) -> Episode | None:
        options: dict[str, Any] = (
            {"seats": list(range(self.num_players))} if self.num_players > 1 else {}
        )
        agents: Mapping[int, str] = dict.fromkeys(range(self.num_players), self.agent)
        if self.opponents is not None and sample < self._num_opponent_episodes:
            policy_player = sample % self.num_players
            options, opponents = self.opponents.assign_players(policy_player, self.num_players)
            agents = {policy_player: self.agent, **opponents}
        if options:
            task = dataclasses.replace(
                task, reset_options={**(task.reset_options or {}), **options}
            )
        return await runtime.match(task, agents, key, sample)

    @property
    def _num_opponent_episodes(self) -> int:
        """The number of the group's episodes with opponents."""
        return round(self.opponent_fraction * self.group_size) if self.opponents is not None else 0


def game_score(trajectory: Trajectory) -> float:
    """1, 1/2 or 0 for a game that was won, drawn or lost: the sign of its return."""
    total = trajectory.total_reward
    return 0.5 * (1 + (total > 0) - (total < 0))
