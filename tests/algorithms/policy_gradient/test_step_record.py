"""The record of a step holds what the loss was given, token by token, and rewards after their
transforms.
"""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from support.fixtures import (
    MeanEmbeddingPolicy,
    TurnShape,
    device_mesh,
    random_groups,
    with_sampler_logp,
)

from agentrl_jax.algorithms.experience.reward_metrics import trained_reward_metrics
from agentrl_jax.algorithms.experience.rewards import SingleTurnReward
from agentrl_jax.algorithms.losses.regularizers import KL
from agentrl_jax.algorithms.methods import dr_grpo, grpo
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradient, PolicyGradientConfig
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, Sampling, Trajectory
from agentrl_jax.trajectory_record import CallTraining, TrajectoryTraining
from agentrl_jax.workers.pool import InlinePool

POLICY = MeanEmbeddingPolicy()
PARAMS = POLICY.init(jax.random.key(0))
ADAM = AdamWConfig(learning_rate=0.03)
SHAPES: list[list[list[TurnShape]]] = [
    [[(3, 2, False, 1.0), (2, 3, False, 0.0)], [(3, 4, False, 0.0)]],
    [[(2, 2, False, 1.0)], [(2, 3, False, 1.0)]],  # equal returns
    [[(4, 3, False, -1.0)], [(4, 2, False, 0.5), (1, 1, False, 0.5)]],
    [[(4, 3, False, 2.0)], [(4, 5, False, 0.5)]],
]
GROUPS = with_sampler_logp(POLICY, PARAMS, random_groups(SHAPES, seed=3), noise_scale=0.2)


def step(config: PolicyGradientConfig, groups: Sequence[Group] = GROUPS) -> PolicyGradient:
    algorithm = config.build(POLICY, device_mesh(), steps=100)
    with Runtime({}, {}, InlinePool()) as runtime:
        algorithm.step(algorithm.init(jax.random.key(0), PARAMS), groups, runtime)
    return algorithm


def trajectories(groups: Sequence[Group] = GROUPS) -> list[Trajectory]:
    return [trajectory for group in groups for trajectory in group.trajectories]


def used(record: TrajectoryTraining | None) -> list[CallTraining]:
    assert record is not None
    return [call for turn in record.turns for call in turn.calls if call is not None]


def test_advantages_and_weights_are_those_of_the_loss():
    config = dr_grpo(80.0, optimizer=ADAM, rescore=True, regularizers={"kl": KL(0.1)})
    records = step(config).training_of(trajectories())
    for group in GROUPS:
        mean = np.mean([t.total_reward for t in group.trajectories])
        for trajectory in group.trajectories:
            calls = used(records[trajectories().index(trajectory)])
            assert len(calls) == len(trajectory.calls)
            for call, recorded in zip(calls, trajectory.calls):
                n = len(recorded.action)
                np.testing.assert_allclose(
                    call.advantage, np.full(n, trajectory.total_reward - mean)
                )
                np.testing.assert_allclose(call.weight, np.full(n, 1 / 80 / 8), rtol=1e-6)
                assert call.logp is not None and call.ref_logp is not None and call.value is None
                np.testing.assert_allclose(call.logp, call.ref_logp, rtol=1e-5)
                assert np.abs(call.logp - recorded.sampler_logp).max() > 0.01  # the noise


def test_weights_are_those_of_each_tokens_minibatch():
    """Two minibatches of two groups: each has half of the trajectories, so twice the weights."""
    records = step(dr_grpo(80.0, optimizer=ADAM, minibatches=2)).training_of(trajectories())
    weights = np.concatenate([call.weight for record in records for call in used(record)])
    np.testing.assert_allclose(weights, 1 / 80 / 4, rtol=1e-6)


def test_what_a_filter_leaves_out_has_rewards_and_no_weights():
    config = grpo(
        optimizer=ADAM,
        rewards=SingleTurnReward(0),
        filter=lambda groups: [x for x in groups if x.task != GROUPS[2].task],
    )
    algorithm = step(config)
    absent = Trajectory((), (), task="never seen")
    records = algorithm.training_of([*trajectories(GROUPS[2:3]), absent, *trajectories(GROUPS[:1])])
    first, second, unknown, *trained = records
    assert unknown is None
    assert first is not None and second is not None and used(first) == used(second) == []
    assert (first.total_reward, second.total_reward) == (-1.0, 0.5)  # of the first turn alone
    assert all(used(record) for record in trained)


def test_forced_tokens_have_no_weight():
    group = GROUPS[0]
    first, *others = group.trajectories
    call = dataclasses.replace(
        first.calls[0], sampling=Sampling(forced=tuple(first.calls[0].action[:1].tolist()))
    )
    turn = dataclasses.replace(first.turns[0], calls=(call,))
    forced = first.replace(turns=(turn,))
    groups = [dataclasses.replace(group, trajectories=(forced, *others))]
    (record,) = step(dr_grpo(80.0, optimizer=ADAM), groups).training_of([forced])
    (numbers,) = used(record)
    assert numbers.weight[0] == numbers.advantage[0] == 0 and (numbers.weight[1:] > 0).all()
    assert len(numbers.weight) == len(call.action)


def test_the_means_of_rewards_and_their_parts_after_transforms():
    group = SingleTurnReward(0)(GROUPS[0], 0)
    first, second = group.trajectories
    part = dataclasses.replace(first.turns[0], reward=1.5, rewards={"format": 0.5, "right": 1.0})
    group = dataclasses.replace(group, trajectories=(first.replace(turns=(part,)), second))
    assert trained_reward_metrics([group], ProcessGroup()) == {
        "trained_reward": 0.75, "trained_reward/format": 0.25, "trained_reward/right": 0.5,
    }  # fmt: skip
    assert trained_reward_metrics([], ProcessGroup()) == {}
