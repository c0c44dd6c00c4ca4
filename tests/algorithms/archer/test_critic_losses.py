"""Utterance critics: every loss in numpy, fixed points on a chain, which parameters move, and no
recompilation.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from support.credit_tables import MarkovPolicy, SGDConfig, TabularCritic, WeightlessEncoder
from support.fixtures import MeanEmbeddingPolicy, device_mesh, record_compilations

from agentrl_jax.algorithms.archer.critic_losses import (
    IQLLoss,
    MonteCarloLoss,
    OnPolicyTDLoss,
    UtteranceCriticLoss,
)
from agentrl_jax.algorithms.archer.critic_trainer import (
    UtteranceCriticTrainer,
    UtteranceCriticTrainerConfig,
)
from agentrl_jax.algorithms.archer.replay_buffer import TokenizedText, Transition
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.utterance_critic import PolicyTrunkEncoderConfig, UtteranceCriticConfig

STILL = SGDConfig(0.0)


def text(*ids: int) -> TokenizedText:
    return TokenizedText(np.array(ids, np.int32), "")


def turn(
    state: int, action: int, reward: float, after: int, end: str = "", to_go: float = 0.0
) -> Transition:
    return Transition(
        text(9, state),
        text(action, 10),
        reward,
        text(9, after),
        end == "terminated",
        end == "truncated",
        to_go,
    )


def built(steps: int = 1, **settings: Any) -> tuple[UtteranceCriticTrainer, Any]:
    config = UtteranceCriticTrainerConfig(
        critic=TabularCritic(),
        encoder=WeightlessEncoder(),
        **{
            "state_lengths": (4,),
            "utterance_lengths": (4,),
            "batch": 8,
            "microbatch": 8,
            **settings,
        },
    )
    trainer = config.build(MarkovPolicy(), device_mesh(), steps)
    return trainer, trainer.init(jax.random.key(1), {})


def other_target(state: Any) -> Any:
    """A target network that differs from the critic."""
    return dataclasses.replace(
        state,
        params={
            **state.params,
            "target": jax.tree.map(lambda x: 1.0 - 0.5 * x, state.params["target"]),
        },
    )


@pytest.mark.parametrize("loss", [OnPolicyTDLoss(0.9), IQLLoss(0.9, 0.8), MonteCarloLoss(0.9)])
def test_the_loss_equals_the_equations_in_numpy(loss: UtteranceCriticLoss):
    rng = np.random.default_rng(0)
    ends = ("", "terminated", "truncated")
    data = [
        turn(s, a, rng.normal(), after, ends[i % 3], rng.normal())
        for i, (s, a, after) in enumerate(rng.integers(0, 9, (7, 3)).tolist())
    ]
    value_utterances = [text(int(a), 10) for a in rng.integers(0, 9, 7)]
    trainer, state = built(
        loss=loss,
        batch=7,
        loss_scale=2.0,
        microbatch=4,
        truncation_is_terminal=False,
        optimizer=STILL,
    )
    state = other_target(state)
    online, target = (
        jax.tree.map(lambda x: np.asarray(x, np.float64), state.params[name])
        for name in ("critic", "target")
    )
    total = 0.0
    for t, sampled in zip(data, value_utterances):
        s, a, after = t.state.ids[-1], t.utterance.ids[0], t.next_state.ids[-1]
        for k in range(2):
            q, v = online["q"][k, s, a], online["v"][k, s]
            y = t.reward + (0.0 if t.terminated else 0.9 * target["v"][k, after])
            z = target["q"][k, s, sampled.ids[0]]
            if isinstance(loss, MonteCarloLoss):
                y = z = t.return_to_go
            weight = 1.0 if not isinstance(loss, IQLLoss) else 0.8 if z > v else 0.2
            total += ((y - q) ** 2 + weight * (z - v) ** 2) / 7
    _, metrics = trainer.update(state, data, value_utterances, ProcessGroup())
    assert (
        float(metrics["loss"]) == pytest.approx(2.0 * total, rel=1e-5)
        and float(metrics["tokens"]) == 7
    )


GAMMA = 0.8
CHAIN = [
    turn(1, 3, 0.0, 2),
    turn(2, 3, 0.0, 5),
    turn(5, 3, 1.0, 0, "terminated"),
    turn(6, 3, 0.5, 5, "truncated", 0.5),
]
CHAIN = [dataclasses.replace(t, return_to_go=g) for t, g in zip(CHAIN, (GAMMA**2, GAMMA, 1.0, 0.5))]


@pytest.mark.parametrize(
    ("loss", "truncation_is_terminal", "value_at_cut"),
    [
        (OnPolicyTDLoss(GAMMA), True, 0.5),
        (OnPolicyTDLoss(GAMMA), False, 0.5 + GAMMA),
        (IQLLoss(GAMMA, 0.9), False, 0.5 + GAMMA),
        (MonteCarloLoss(GAMMA), False, 0.5),
    ],
)
def test_on_a_chain_values_are_those_of_bellmans_equations(
    loss: UtteranceCriticLoss, truncation_is_terminal: bool, value_at_cut: float
):
    trainer, state = built(
        loss=loss,
        truncation_is_terminal=truncation_is_terminal,
        optimizer=SGDConfig(1.0),
        polyak=0.5,
    )
    for _ in range(80):
        state, _ = trainer.update(state, CHAIN * 2, [text(3, 10)] * 8, ProcessGroup())
    for name in ("critic", "target"):
        params = jax.tree.map(np.asarray, state.params[name])
        for k in range(2):
            expected = [GAMMA**2, GAMMA, 1.0, value_at_cut]
            assert params["q"][k, [1, 2, 5, 6], 3] == pytest.approx(expected, abs=1e-3)
            assert params["v"][k, [1, 2, 5, 6]] == pytest.approx(expected, abs=1e-3)


def test_on_a_two_turn_bandit_v_is_the_mean_of_q_under_the_policy():
    """In state 1 A leads to 2 and B to 5; their rewards there are 1 and 0, -1 and 2; the policy
    samples A with probability 1/4.
    """
    second = [
        turn(s, a, r, 0, "terminated")
        for s, a, r in ((2, 3, 1.0), (2, 4, 0.0), (5, 3, -1.0), (5, 4, 2.0))
    ]
    data = [turn(1, 3, 0.0, 2), turn(1, 4, 0.0, 5), *second]
    exchanges = [(t, text(a, 10)) for t in data for a in (3, 4, 4, 4)]
    trainer, state = built(
        loss=OnPolicyTDLoss(0.9), batch=24, microbatch=24, optimizer=SGDConfig(2.0), polyak=0.5
    )
    for _ in range(60):
        state, _ = trainer.update(
            state, [t for t, _ in exchanges], [a for _, a in exchanges], ProcessGroup()
        )
    params = jax.tree.map(np.asarray, state.params["critic"])
    v2, v5 = 0.25, -0.25 + 0.75 * 2.0
    for q, v in zip(params["q"], params["v"]):
        assert q[[2, 2, 5, 5], [3, 4, 3, 4]] == pytest.approx([1.0, 0.0, -1.0, 2.0], abs=1e-3)
        assert q[1, [3, 4]] == pytest.approx([0.9 * v2, 0.9 * v5], abs=1e-3)
        assert v[[1, 2, 5]] == pytest.approx([0.9 * (0.25 * v2 + 0.75 * v5), v2, v5], abs=1e-3)


def test_the_target_network_tracks_the_critic_and_is_not_trained_itself():
    trainer, state = built(polyak=0.25, optimizer=SGDConfig(0.1))
    state = other_target(state)
    before = jax.tree.map(np.asarray, state.params)
    state, _ = trainer.update(state, CHAIN, [text(4, 10)] * 4, ProcessGroup())
    after = jax.tree.map(np.asarray, state.params)
    assert not np.array_equal(before["critic"]["q"], after["critic"]["q"])
    moved = jax.tree.map(
        lambda old, new: old + 0.25 * (new - old), before["target"], after["critic"]
    )
    assert jax.tree.all(
        jax.tree.map(lambda x, y: np.allclose(x, y, atol=1e-6), moved, after["target"])
    )


@pytest.mark.slow
def test_texts_of_any_length_are_scored_as_alone_without_recompilation():
    """One text at a time, or many of mixed lengths together; buckets of two lengths, all compiled
    at the start.
    """
    config = UtteranceCriticTrainerConfig(
        critic=UtteranceCriticConfig(head=HeadConfig(layers=0, scale=1.0)),
        encoder=PolicyTrunkEncoderConfig(),
        state_lengths=(4, 8),
        utterance_lengths=(6,),
        batch=6,
        microbatch=4,
    )
    policy, rng = MeanEmbeddingPolicy(), np.random.default_rng(0)
    trainer = config.build(policy, device_mesh(), 10)
    state = trainer.init(jax.random.key(1), policy.init(jax.random.key(2)))
    state, _ = trainer.update(state, [_wordy(1, 1, rng)], [text(1)], ProcessGroup())
    data = [_wordy(m, n, rng) for m, n in ((3, 1), (8, 2), (1, 6), (12, 5), (4, 4), (2, 9))]
    with record_compilations() as compiled:
        together = trainer.advantage(
            state, [t.state for t in data], [t.utterance for t in data], ProcessGroup()
        )
        alone = [
            trainer.advantage(state, [t.state], [t.utterance], ProcessGroup())[0] for t in data
        ]
        for some in (data[:1], data, data[2:3]):
            state, _ = trainer.update(state, some, [t.utterance for t in some], ProcessGroup())
    assert (
        together == pytest.approx(alone, abs=1e-5) and len({round(float(x), 4) for x in alone}) == 6
    )
    assert compiled == []
    assert trainer.advantage(state, [], [], ProcessGroup()).shape == (0,)


def _wordy(m: int, n: int, rng: np.random.Generator) -> Transition:
    state, utterance, after = (
        TokenizedText(rng.integers(0, 24, size, np.int32), "") for size in (m, n, m + n)
    )
    return Transition(state, utterance, float(rng.normal()), after, False, False, 0.0)


def test_the_advantage_is_min_q_minus_min_v_and_target_q_the_minimum_over_copies():
    trainer, state = built()
    state = other_target(state)
    params = jax.tree.map(np.asarray, state.params)
    pairs = [(s, a) for s in (1, 2) for a in (3, 4, 5)]
    states, utterances = [text(9, s) for s, _ in pairs], [text(a, 10) for _, a in pairs]
    q = np.array(
        [params["critic"]["q"][:, s, a].min() - params["critic"]["v"][:, s].min() for s, a in pairs]
    )
    assert trainer.advantage(state, states, utterances, ProcessGroup()) == pytest.approx(
        q, abs=1e-6
    )
    slow = [params["target"]["q"][:, s, a].min() for s, a in pairs]
    assert trainer.min_target_q(state.params["target"], states, utterances) == pytest.approx(
        slow, abs=1e-6
    )


def test_invalid_settings_are_refused():
    wrong: dict[str, Any] = {
        "polyak": 0.0,
        "loss_scale": 0.0,
        "loss": OnPolicyTDLoss(1.5),
        "state_lengths": (),
        "utterance_lengths": (0,),
        "batch": 0,
    }
    for name, value in wrong.items():
        with pytest.raises(UserError, match="values need"):
            built(**{name: value})
