"""A reward model learns to rank, and its loss is that of a loop over pairs."""

import jax
import numpy as np
import pytest
from hand_made import Averaging, grown, make_trajectory, mesh_of, whole

from agentrl_jax.algorithms.preferences import PreferenceConfig, Preferences, at_the_end, preferences
from agentrl_jax.algorithms.reward_models import best_of, preference_loss
from agentrl_jax.errors import UserError
from agentrl_jax.learner import fetch_metrics
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Group
from agentrl_jax.workers import InProcess

POLICY = Averaging()
HEAD = HeadConfig(layers=1, scale=1.0)


def ranked(count: int, seed: int) -> list[Group]:
    """Groups of three episodes; one is the better, the more often it wrote an even token."""
    rng, groups = np.random.default_rng(seed), []
    for i in range(count):
        members = []
        for _ in range(3):
            trajectory = grown([(3, 4, False, 0.0), (2, int(rng.integers(2, 5)), False, 0.0)], rng)
            even = np.mean(np.concatenate([call.action for call in trajectory.calls]) % 2 == 0)
            *first, last = trajectory.turns
            members.append(make_trajectory(*first, type(last)(last.calls, last.action, last.observation, float(even), terminated=True)))
        groups.append(Group(str(i), tuple(members)))
    return groups


def build(**fields) -> Preferences:
    settings = {"optimizer": AdamWConfig(0.03), "length": 20, "microbatch": 4, **fields}
    return PreferenceConfig(HEAD, **settings).build(POLICY, mesh_of(), 200)


def test_pairs_are_those_with_different_returns():
    (group,) = ranked(1, 3)
    returns = [t.total_reward for t in group.trajectories]
    want = sum(a > b for a in returns for b in returns)
    assert len(preferences(group)) == want > 0
    assert all(a.total_reward > b.total_reward for a, b in preferences(group))


@pytest.mark.slow
@pytest.mark.parametrize("loss", [at_the_end, preference_loss])
def test_the_first_loss_is_that_of_a_loop_over_pairs_and_then_it_ranks(loss):
    model = build(loss=loss)
    state = model.init(jax.random.key(0), POLICY.init(jax.random.key(1)))
    with Runtime({}, {}, InProcess()) as runtime:
        groups = ranked(3, 0)
        if loss is at_the_end:
            scores = iter(model.score(state, whole(groups)))
            by_id = {id(t): s for t, s in zip(whole(groups), scores)}
            pairs = [pair for group in groups for pair in preferences(group)]
            want = np.mean([np.log1p(np.exp(by_id[id(b)] - by_id[id(a)])) for a, b in pairs])
            _, metrics = model.step(model.init(jax.random.key(0), POLICY.init(jax.random.key(1))), groups, runtime)
            assert fetch_metrics(metrics["device"][0])["loss"] == pytest.approx(want, abs=1e-5)
        for step in range(150):
            state, _ = model.step(state, ranked(8, step), runtime)
        right = [
            best_of(model.score(state, group.trajectories)) == int(np.argmax([t.total_reward for t in group.trajectories]))
            for group in ranked(40, 1000)
        ]
        assert np.mean(right) > 0.6  # of three, so chance is a third
        state, metrics = model.step(state, [Group("alone", groups[0].trajectories[:1])], runtime)
        assert metrics["skipped"] == 1.0


def test_what_does_not_fit_is_told():
    model = build(length=4)
    with pytest.raises(UserError, match="raise length"), Runtime({}, {}, InProcess()) as runtime:
        model.step(model.init(jax.random.key(0), POLICY.init(jax.random.key(1))), ranked(1, 3), runtime)
