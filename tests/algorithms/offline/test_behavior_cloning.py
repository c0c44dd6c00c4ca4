"""Behavior cloning of groups that may be empty."""

import jax
import numpy as np
from support.fixtures import device_mesh, make_call, make_trajectory, make_turn, tiny_policy

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group
from agentrl_jax.workers.pool import InlinePool


def test_a_batch_without_episodes_is_a_counted_skip():
    policy = tiny_policy()
    config = BehaviorCloningConfig(optimizer=AdamWConfig(1e-2), bin_length=32, microbatch=8)
    algorithm = config.build(policy, device_mesh(), 1)
    state = algorithm.init(jax.random.key(0), policy.init(jax.random.key(1)))
    episode = make_trajectory(make_turn([make_call([1, 2], [3, 4])]))
    with Runtime({}, {}, InlinePool()) as runtime:
        before = jax.tree.map(np.asarray, state.params)
        state, metrics = algorithm.step(state, [Group("a", ()), Group("b", ())], runtime)
        assert metrics == {"skipped": 1.0, "tokens": 0.0, "device": []}
        jax.tree.map(np.testing.assert_array_equal, before, state.params)
        state, metrics = algorithm.step(state, [Group("a", ()), Group("b", (episode,))], runtime)
    assert metrics["tokens"] == 2.0
    changed = jax.tree.map(lambda a, b: bool((np.asarray(b) != a).any()), before, state.params)
    assert any(jax.tree.leaves(changed))
