"""Tool calls of the environments reach the rewards, filters and replay of the configs."""

import dataclasses

import pytest
from support.strategy_runs import AGENT, ListEngine, collect_group, expert_actions

from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.algorithms.policy_gradient.auxiliary import SelfImitation
from agentrl_jax.configs import keydoor_spear, lookup_arpo
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.config import Experiment
from agentrl_jax.trajectories import Group, Sampling
from agentrl_jax.workers.pool import Task


def method_of(config: Experiment) -> PolicyGradientConfig:
    algorithm = config.phases["rl"].algorithm
    assert isinstance(algorithm, PolicyGradientConfig)
    return algorithm


def episode_of(task: Task, *texts: str) -> Group:
    """One episode of these actions, cut by a limit where they do not end it."""
    agent = dataclasses.replace(
        AGENT,
        sampling=Sampling(budget=16),
        limits=dataclasses.replace(AGENT.limits, turns=len(texts)),
    )
    return collect_group(IndependentEpisodes(1), ListEngine(*texts), task, agent)


def test_arpo_rewards_a_right_answer_that_used_both_tools():
    config = lookup_arpo.get_config("tools")
    reward = method_of(config).rewards
    assert reward is not None

    def rewarded(task: Task, *texts: str) -> float:
        return reward(episode_of(task, *texts), 0).trajectories[0].total_reward

    totals = {}
    for seed in range(8):
        task = config.environment.task(seed)
        *calls, answer = expert_actions(task)
        assert rewarded(task, answer) == 1.0  # right without a call
        totals[len({call.split()[0] for call in calls})] = rewarded(task, *calls, answer)
        name = calls[0].split()[1]
        both = (f"boss {name}", f"pal {name}")
        assert rewarded(task, *both, answer) == pytest.approx(1.1)
        assert rewarded(task, *both) == 0.0  # cut before the answer
        assert rewarded(task, *both, "answer nobody") == 0.0
    assert totals == pytest.approx({1: 1.0, 2: 1.1})  # questions of one relation and of two


def test_spear_rewards_and_replays_episodes_that_used_the_key():
    config = keydoor_spear.get_config()
    method = method_of(config)
    assert method.rewards is not None and method.filter is not None
    task = config.environment.task(3)
    actions = expert_actions(task)
    solved, idle, void = (
        episode_of(task, *actions),
        episode_of(task, *(["left"] * 20)),
        episode_of(task, *actions[:-1], "hm", actions[-1]),
    )
    totals = [method.rewards(group, 0).trajectories[0].total_reward for group in (solved, idle)]
    assert totals == pytest.approx([1.2, 0.0])  # the key and the door, .1 each
    at_the_end = method.rewards(solved, 200).trajectories[0].total_reward
    assert at_the_end == pytest.approx(1.0)
    (replay,) = (x for x in method.auxiliaries if isinstance(x, SelfImitation))
    assert replay.replay.require_tool_call
    varied = Group("varied", (*solved.trajectories, *idle.trajectories, *void.trajectories))
    (best_group,) = method.filter([idle, void, varied])  # the better of the two that are left
    assert best_group.trajectories == (*solved.trajectories, *idle.trajectories)
