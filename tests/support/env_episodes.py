"""Playing environments step by step."""

from typing import Any, TypeVar

import numpy as np

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.environment import Environment, make
from agentrl_jax.messages import Message, assistant
from agentrl_jax.trajectories import Group, Trajectory, Turn

EnvironmentType = TypeVar("EnvironmentType", bound=Environment)


def make_env(env_class: type[EnvironmentType], **options: Any) -> EnvironmentType:
    """The registered environment of this class, reset with seed 0."""
    env = make(f"agentrl/{env_class.__name__}-v0", options)
    assert isinstance(env, env_class)
    env.reset(seed=0)
    return env


def play_turn(env: Environment, action: Message | str) -> Turn:
    observation, reward, terminated, truncated, info = env.step(action)
    turn_info = {name: value for name, value in info.items() if name != "rewards"}
    return Turn(
        (),
        assistant(action) if isinstance(action, str) else action,
        observation,
        reward,
        info["rewards"],
        terminated,
        truncated,
        turn_info,
    )


def trajectory_of(turns: list[Turn], opening: tuple[Message, ...] = ()) -> Trajectory:
    return Trajectory(opening, tuple(turns), success=turns[-1].info.get("success"))


def play_actions(env: Environment, *actions: str) -> Trajectory:
    """The turns of these actions, from the current state."""
    return trajectory_of([play_turn(env, action) for action in actions])


def play_scripted_episode(env: Environment, player: str, seed: int) -> Trajectory:
    """An episode of a scripted policy.

    Its generator differs from the environment's, which is seeded with `seed` alone.
    """
    opening, _ = env.reset(seed=seed)
    rng, turns = np.random.default_rng([seed, 1]), []
    while not turns or not (turns[-1].terminated or turns[-1].truncated):
        turns.append(play_turn(env, env.scripted_policies[player](env, rng)))
    return trajectory_of(turns, opening)


def observation_texts(trajectory: Trajectory) -> list[str]:
    """The texts of all observations, in order."""
    return [message.text for turn in trajectory.turns for message in turn.observation]


def info_values(trajectory: Trajectory, field: str) -> list:
    return [turn.info[field] for turn in trajectory.turns]


def rewards(trajectory: Trajectory) -> list[float]:
    return [turn.reward for turn in trajectory.turns]


def group_of(*trajectories: Trajectory) -> Group:
    return Group("task", trajectories)
