"""A reward model learns to rank, and its loss is that of a loop over pairs."""

from collections.abc import Sequence

import jax
import numpy as np
import pytest
from support.fixtures import (
    MeanEmbeddingPolicy,
    device_mesh,
    make_trajectory,
    random_trajectory,
    trajectories_with_turns,
)

from agentrl_jax.algorithms.pairwise.bradley_terry import best_of_n_index, preference_loss
from agentrl_jax.algorithms.pairwise.reward_model import (
    RewardModelConfig,
    RewardModelTrainer,
    final_token_loss,
    ranked_pairs,
)
from agentrl_jax.algorithms.pairwise.reward_scorer import value_at_end
from agentrl_jax.errors import UserError
from agentrl_jax.inference.batch_scorer import BatchScorer
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.learner import fetch_metrics
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, Trajectory
from agentrl_jax.workers.pool import InlinePool

POLICY = MeanEmbeddingPolicy()
HEAD = HeadConfig(layers=1, scale=1.0)
ENGINE = EngineConfig(positions=20)


def ranked(count: int, seed: int) -> list[Group]:
    """Groups of three episodes; an episode's return is the fraction of even tokens."""
    rng, groups = np.random.default_rng(seed), []
    for i in range(count):
        members = []
        for _ in range(3):
            trajectory = random_trajectory(
                [(3, 4, False, 0.0), (2, int(rng.integers(2, 5)), False, 0.0)], rng
            )
            even = np.mean(np.concatenate([call.action for call in trajectory.calls]) % 2 == 0)
            *first, last = trajectory.turns
            members.append(
                make_trajectory(
                    *first,
                    type(last)(
                        last.calls, last.action, last.observation, float(even), terminated=True
                    ),
                )
            )
        groups.append(Group(str(i), tuple(members)))
    return groups


def build(**fields) -> RewardModelTrainer:
    settings = {"optimizer": AdamWConfig(0.03), "max_length": 20, "microbatch": 4, **fields}
    return RewardModelConfig(HEAD, **settings).build(POLICY, device_mesh(), 200)


def scores_of(
    model: RewardModelTrainer, state: TrainState, trajectories: Sequence[Trajectory]
) -> list[float]:
    """The scores that a run's scorer gives."""
    scorer = BatchScorer(
        value_at_end(model.model), model.model.axes(), lambda: state.params, ENGINE, rows=8
    )
    texts = [trajectory.calls[-1].ids for trajectory in trajectories]
    futures = [scorer.submit(ids, np.zeros(len(ids), bool)) for ids in texts]
    scores = [future.result(60) for future in futures]
    scorer.close()
    return scores


def test_pairs_are_those_with_different_returns():
    (group,) = ranked(1, 3)
    returns = [t.total_reward for t in group.trajectories]
    want = sum(a > b for a in returns for b in returns)
    assert len(ranked_pairs(group)) == want > 0
    assert all(a.total_reward > b.total_reward for a, b in ranked_pairs(group))


@pytest.mark.slow
@pytest.mark.parametrize("loss", [final_token_loss, preference_loss])
def test_the_first_loss_matches_a_loop_over_pairs_and_training_learns_to_rank(loss):
    model = build(loss=loss)
    state = model.init(jax.random.key(0), POLICY.init(jax.random.key(1)))
    with Runtime({}, {}, InlinePool()) as runtime:
        groups = ranked(3, 0)
        if loss is final_token_loss:
            scores = iter(scores_of(model, state, trajectories_with_turns(groups)))
            by_id = {id(t): s for t, s in zip(trajectories_with_turns(groups), scores)}
            pairs = [pair for group in groups for pair in ranked_pairs(group)]
            want = np.mean([np.log1p(np.exp(by_id[id(b)] - by_id[id(a)])) for a, b in pairs])
            _, metrics = model.step(
                model.init(jax.random.key(0), POLICY.init(jax.random.key(1))), groups, runtime
            )
            assert fetch_metrics(metrics["device"][0])["loss"] == pytest.approx(want, abs=1e-5)
        for step in range(150):
            state, _ = model.step(state, ranked(8, step), runtime)
        held_out = ranked(40, 1000)
        scores = np.reshape(scores_of(model, state, trajectories_with_turns(held_out)), (40, 3))
        right = [
            best_of_n_index(row.tolist())
            == int(np.argmax([t.total_reward for t in group.trajectories]))
            for row, group in zip(scores, held_out, strict=True)
        ]
        assert np.mean(right) > 0.6  # of three answers, so chance is a third
        state, metrics = model.step(state, [Group("alone", groups[0].trajectories[:1])], runtime)
        assert metrics["skipped"] == 1.0


def test_unsuitable_settings_are_refused():
    model = build(max_length=4)
    with (
        pytest.raises(UserError, match="raise max_length"),
        Runtime({}, {}, InlinePool()) as runtime,
    ):
        model.step(
            model.init(jax.random.key(0), POLICY.init(jax.random.key(1))), ranked(1, 3), runtime
        )
