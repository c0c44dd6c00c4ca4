"""What a step of a pairwise method trained of each token, and the invariants of reward models."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from support.fixtures import (
    MeanEmbeddingPolicy,
    device_mesh,
    make_call,
    make_trajectory,
    make_turn,
)

from agentrl_jax.algorithms.methods import dpo, refuel
from agentrl_jax.algorithms.pairwise import reward_model
from agentrl_jax.algorithms.pairwise.algorithm import PairwiseConfig
from agentrl_jax.algorithms.pairwise.preference_invariants import preferences
from agentrl_jax.algorithms.pairwise.reward_model import RewardModelConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, Sampling, Trajectory
from agentrl_jax.trajectory_record import CallTraining, TrajectoryTraining
from agentrl_jax.workers.pool import InlinePool

POLICY = MeanEmbeddingPolicy()
PARAMS = POLICY.init(jax.random.key(0))
SHAPE: dict[str, Any] = {
    "optimizer": AdamWConfig(learning_rate=0.03),
    "bin_length": 48,
    "microbatch": 4,
}


def dialogue(last: list[int], reward: float, branch_turn: int | None = None) -> Trajectory:
    """A turn that both of a pair share, and another reply; its first token is forced."""
    first = make_call([1, 2], [3, 4])
    call = make_call([*first.ids.tolist(), 5], last)
    call = dataclasses.replace(call, sampling=Sampling(forced=(last[0],)))
    trajectory = make_trajectory(
        make_turn([first], 0.5), make_turn([call], reward, terminated=True)
    )
    return trajectory.replace(branch_turn=branch_turn)


def pairs() -> list[Group]:
    return [
        Group("a", (dialogue([6, 7, 8], 1.0), dialogue([6, 9], -1.0, 1))),
        Group("b", (dialogue([6, 7], 2.0), dialogue([6, 8, 9, 9], 0.0, 1))),
        Group("c", (dialogue([6, 7], 2.0), dialogue([6, 7], 0.0, 1))),  # identical
    ]


def used(record: TrajectoryTraining | None) -> list[CallTraining | None]:
    assert record is not None
    return [call for turn in record.turns for call in turn.calls]


@pytest.mark.parametrize("method", [refuel, dpo])
def test_tokens_have_the_weight_and_the_difference_of_rewards_of_their_pair(
    method: Callable[..., PairwiseConfig],
):
    groups = pairs()
    algorithm = method(1.0, **SHAPE).build(POLICY, device_mesh(), 10)
    assert algorithm.training_of(groups[0].trajectories) == [None, None]
    with Runtime({}, {}, InlinePool()) as runtime:
        runtime.invariants.enabled = True
        algorithm.step(algorithm.init(jax.random.key(0), PARAMS), groups, runtime)
        assert runtime.invariants.take_violations() == []
    trajectories = [t for group in groups for t in group.trajectories]
    records = algorithm.training_of([*trajectories, dialogue([6], 0.0)])
    assert records[-1] is None
    assert [record.total_reward for record in records[:-1] if record] == [
        t.total_reward for t in trajectories
    ]
    for trajectory, record, sign in zip(trajectories[:4], records, (1, -1, 1, -1)):
        first, call = used(record)
        assert first is None and call is not None
        n = len(trajectory.calls[-1].action)
        np.testing.assert_allclose(call.weight, [0] + [0.5] * (n - 1))
        np.testing.assert_allclose(call.advantage, [0] + [2.0 * sign] * (n - 1), rtol=1e-6)
        assert call.logp is not None and (call.logp[1:] < 0).all() and call.logp[0] == 0
        assert (call.ref_logp is None) == (method is refuel)
        if call.ref_logp is not None:
            np.testing.assert_allclose(call.ref_logp, call.logp, rtol=1e-5)
    assert used(records[4]) == used(records[5]) == [None, None]


def test_preferences_are_in_order_and_there_once():
    low, high = dialogue([6, 7], 0.0), dialogue([6, 8], 1.0)
    assert preferences([(high, low)], 0.0).holds and preferences([(low, high)], 0.5).holds
    assert not preferences([(low, high)], 0.0).holds
    assert not preferences([(low, dialogue([6, 9], 0.0))], 0.5).holds
    assert not preferences([(high, low), (high, low)], 0.0).holds
    check = preferences([(high, low), (low, high)], 0.5)
    assert not check.holds and "1 are there twice" in check.detail


@pytest.mark.parametrize(
    ("module_name", "invariant"),
    [
        ("", ""),
        ("ranked_pairs", "preferences"),
        ("_trajectory_sequence", "trained_tokens"),
        ("split_bins", "packed_rows"),
    ],
)
def test_a_corrupted_batch_of_a_reward_model_is_a_violation(
    monkeypatch: pytest.MonkeyPatch, module_name: str, invariant: str
):
    changes = {
        "ranked_pairs": lambda pairs: [(b, a) for a, b in pairs],
        "_trajectory_sequence": lambda x: dataclasses.replace(
            x, action_mask=np.roll(x.action_mask, 1)
        ),
        "split_bins": lambda pieces: pieces[::-1],
    }
    if module_name:
        original = getattr(reward_model, module_name)
        monkeypatch.setattr(
            reward_model, module_name, lambda *args: changes[module_name](original(*args))
        )
    config = RewardModelConfig(HeadConfig(layers=1), max_length=20, microbatch=4)
    trainer = config.build(POLICY, device_mesh(), 10)
    group = Group(
        "a",
        tuple(dialogue([6, 7, i], float(i)) for i in range(8, 12)),
    )
    with Runtime({}, {}, InlinePool()) as runtime:
        runtime.invariants.enabled = True
        trainer.step(trainer.init(jax.random.key(0), PARAMS), [group], runtime)
        names = [violation.name for violation in runtime.invariants.take_violations()]
    assert names == ([invariant] if invariant else [])
