"""A reward model as a scorer of a run, and noise in its preferences."""

import dataclasses

import jax
import numpy as np
import pytest
from support.fixtures import MeanEmbeddingPolicy, device_mesh, random_trajectory

from agentrl_jax.algorithms.pairwise.reward_model import (
    RewardModelConfig,
    ranked_pairs,
)
from agentrl_jax.algorithms.pairwise.reward_scorer import value_at_end
from agentrl_jax.errors import UserError
from agentrl_jax.inference.batch_scorer import BatchScorer
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.policy import PolicyInputs
from agentrl_jax.trajectories import Group

POLICY = MeanEmbeddingPolicy()
CONFIG = RewardModelConfig(
    HeadConfig(layers=1, scale=1.0), optimizer=AdamWConfig(0.03), max_length=32, microbatch=4
)


def group_of(count: int, seed: int) -> Group:
    """Episodes of two turns with different returns, each with keys of its own."""
    rng, members = np.random.default_rng(seed), []
    for sample in range(count):
        shape = [(3, 4, False, 0.0), (2, int(rng.integers(2, 5)), False, float(sample))]
        trajectory = random_trajectory(shape, rng)
        turns = tuple(
            dataclasses.replace(
                turn,
                calls=tuple(
                    dataclasses.replace(call, key=(seed, 0, 0, sample, 0, i)) for call in turn.calls
                ),
            )
            for i, turn in enumerate(trajectory.turns)
        )
        members.append(trajectory.replace(turns=turns, sample=sample))
    return Group("t", tuple(members))


@pytest.mark.slow
def test_a_score_is_the_value_at_the_last_token():
    model = CONFIG.build(POLICY, device_mesh(), 10).model
    params, trajectories = model.init(jax.random.key(0)), group_of(7, 1).trajectories
    scorer = BatchScorer(
        value_at_end(model), model.axes(), lambda: params, EngineConfig(positions=32), rows=4
    )
    texts = [trajectory.calls[-1].ids for trajectory in trajectories]
    futures = [scorer.submit(ids, np.zeros(len(ids), bool)) for ids in texts]
    for ids, future in zip(texts, futures):
        row = ids[None]
        inputs = PolicyInputs(
            tokens=row,
            positions=np.arange(len(ids), dtype=np.int32)[None],
            segment_ids=np.ones_like(row),
        )
        hidden = POLICY.apply(params["trunk"], inputs).hidden
        values = np.asarray(model.head.apply(params["head"], hidden))
        assert future.result(60) == pytest.approx(float(values[0, -1]), abs=1e-4)
    assert len({round(future.result(), 4) for future in futures}) == 7
    scorer.close()


def reversed_pairs(noise: float) -> float:
    """The fraction of 435 preferences that the trainer reads the other way around."""
    trainer = dataclasses.replace(CONFIG, label_noise=noise).build(POLICY, device_mesh(), 10)
    group = group_of(30, 4)
    pairs = trainer.annotated_pairs([group])
    assert len(pairs) == len(ranked_pairs(group)) == 435
    return float(np.mean([a.total_reward < b.total_reward for a, b in pairs]))


def test_label_noise_reverses_that_fraction_of_the_preferences_and_always_the_same():
    assert reversed_pairs(0.0) == 0.0
    assert reversed_pairs(0.3) == reversed_pairs(0.3) == pytest.approx(0.3, abs=0.07)
    with pytest.raises(UserError, match="label_noise is a fraction"):
        reversed_pairs(1.5)
