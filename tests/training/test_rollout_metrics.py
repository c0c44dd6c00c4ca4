"""The metrics of a step's rollouts."""

import dataclasses

from support.fixtures import make_call, make_trajectory, make_turn

from agentrl_jax.training.rollout_metrics import episode_stats, rollout_metrics
from agentrl_jax.trajectories import Group, Trajectory


def episode(*rewards: dict[str, float]) -> Trajectory:
    """A turn for each dict of reward parts."""
    turns = (make_turn([make_call([1], [2])], sum(parts.values())) for parts in rewards)
    return make_trajectory(
        *(dataclasses.replace(turn, rewards=parts) for turn, parts in zip(turns, rewards))
    )


def test_each_part_of_the_reward_has_its_mean_over_episodes():
    """1 and 3 of the task; 2 - .5 of the model in the first episode, none in the second."""
    episodes = episode({"task": 1.0, "model": 2.0}, {"model": -0.5}), episode({"task": 3.0})
    metrics = rollout_metrics(episode_stats([Group("t", episodes)]))
    parts = {name: x for name, x in metrics.items() if name.startswith("rollout/reward/")}
    assert parts == {"rollout/reward/task": 2.0, "rollout/reward/model": 0.75}
    assert metrics["rollout/return"] == 2.75
