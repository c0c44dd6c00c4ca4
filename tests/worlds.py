"""Worlds played by hand."""

from typing import Any, TypeVar

import numpy as np

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.environment import Environment, make
from agentrl_jax.messages import Message, assistant
from agentrl_jax.trajectories import Group, Trajectory, Turn

World = TypeVar("World", bound=Environment)


def fresh(kind: type[World], **options: Any) -> World:
    """The registered world of this class, reset with seed 0."""
    env = make(f"agentrl/{kind.__name__}-v0", options)
    assert isinstance(env, kind)
    env.reset(seed=0)
    return env


def turn_of(env: Environment, action: str) -> Turn:
    observation, reward, terminated, truncated, info = env.step(action)
    rest = {name: value for name, value in info.items() if name != "rewards"}
    return Turn((), assistant(action), observation, reward, info["rewards"], terminated, truncated, rest)


def trajectory_of(turns: list[Turn], opening: tuple[Message, ...] = ()) -> Trajectory:
    return Trajectory(opening, tuple(turns), success=turns[-1].info.get("success"))


def by_hand(env: Environment, *actions: str) -> Trajectory:
    """The turns of these actions, from where the world is."""
    return trajectory_of([turn_of(env, action) for action in actions])


def played(env: Environment, player: str, seed: int) -> Trajectory:
    """A whole episode of a scripted player, whose stream is its own: the seed alone would repeat the world's draws."""
    opening, _ = env.reset(seed=seed)
    rng, turns = np.random.default_rng([seed, 1]), []
    while not turns or not (turns[-1].terminated or turns[-1].truncated):
        turns.append(turn_of(env, env.players[player](env, rng)))
    return trajectory_of(turns, opening)


def answers(trajectory: Trajectory) -> list[str]:
    """What the world said, a text a turn."""
    return [message.text for turn in trajectory.turns for message in turn.observation]


def facts(trajectory: Trajectory, name: str) -> list:
    return [turn.info[name] for turn in trajectory.turns]


def rewards(trajectory: Trajectory) -> list[float]:
    return [turn.reward for turn in trajectory.turns]


def group_of(*trajectories: Trajectory) -> Group:
    return Group("task", trajectories)
