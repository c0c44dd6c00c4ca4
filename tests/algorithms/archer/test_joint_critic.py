"""Joint critics: packed rows with branches read as texts alone, every loss in numpy, fixed points,
and no recompilation.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest
from support.branch_policies import BranchingMarkovPolicy, BranchingPolicy, TabularJointCritic
from support.credit_tables import MarkovPolicy, SGDConfig, TabularCritic, WeightlessEncoder
from support.fixtures import device_mesh, record_compilations, tiny_policy

from agentrl_jax.algorithms.archer.critic_losses import (
    IQLLoss,
    LambdaReturnLoss,
    MonteCarloLoss,
    OnPolicyTDLoss,
    UtteranceCriticLoss,
)
from agentrl_jax.algorithms.archer.joint_trainer import (
    JointCriticTrainer,
    JointCriticTrainerConfig,
)
from agentrl_jax.algorithms.archer.replay_buffer import TokenizedText, Transition
from agentrl_jax.algorithms.methods import hierarchical
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.joint_critic import JointCriticConfig
from agentrl_jax.policy import PolicyInputs

HEAD = HeadConfig(layers=1, hidden=6, scale=1.0)
ALONE = ProcessGroup()


def text(ids: Sequence[int] | np.ndarray) -> TokenizedText:
    return TokenizedText(np.array(ids, np.int32), "")


def episode(
    rng: np.random.Generator,
    turns: int,
    end: str = "terminated",
    rewritten: Sequence[int] = (),
    vocabulary: int = 9,
    letters: int = 1,
) -> list[Transition]:
    """Turns of a context that grows, but where `rewritten`; utterances of `letters` tokens and an
    end token.
    """
    state = text(rng.integers(0, vocabulary, 2))
    transitions = []
    for t in range(turns):
        utterance = text([*rng.integers(0, vocabulary, letters), 10])
        observation = rng.integers(0, vocabulary, rng.integers(1, 4)).tolist()
        history = [] if t in rewritten else [*state.ids.tolist(), *utterance.ids.tolist()]
        last = t + 1 == turns
        after = text([]) if last and end == "terminated" else text([*history, *observation])
        reward, to_go = rng.normal(size=2)
        ended = last and end == "terminated"
        transitions.append(
            Transition(
                state, utterance, reward, after, ended, last and end == "truncated", float(to_go)
            )
        )
        state = after
    return transitions


def tabular_trainer(steps: int = 1, **settings: Any) -> tuple[JointCriticTrainer, Any]:
    config = JointCriticTrainerConfig(
        critic=TabularJointCritic(),
        **{
            "row_length": 32,
            "utterance_lengths": (2,),
            "branch_tokens": 8,
            "microbatch": 2,
            "optimizer": SGDConfig(0.0),
            **settings,
        },
    )
    trainer = config.build(BranchingMarkovPolicy(), device_mesh(), steps)
    return trainer, trainer.init(jax.random.key(1), {})


def with_other_target(state: Any) -> Any:
    target = jax.tree.map(lambda x: 1.0 - 0.5 * x, state.params["target"])
    return dataclasses.replace(state, params={**state.params, "target": target})


def some_turns(rng: np.random.Generator) -> list[Transition]:
    """Two whole episodes, one that a limit cut, one with a rewritten context, one that exceeds a
    row, and a turn alone.
    """
    return [
        *episode(rng, 3),
        *episode(rng, 2, end="truncated"),
        *episode(rng, 4, rewritten=(1, 2)),
        *episode(rng, 6),
        episode(rng, 3)[1],
        *episode(rng, 1),
    ]


@pytest.mark.parametrize(
    ("loss", "truncation_is_terminal"),
    [
        (OnPolicyTDLoss(0.9), False),
        (OnPolicyTDLoss(0.9), True),
        (IQLLoss(0.9, 0.8), False),
        (MonteCarloLoss(0.9), False),
        (LambdaReturnLoss(0.9, 0.0), False),
    ],
)
def test_the_loss_equals_the_equations_in_numpy(
    loss: UtteranceCriticLoss, truncation_is_terminal: bool
):
    rng = np.random.default_rng(0)
    turns = some_turns(rng)
    value_utterances = [text([int(a), 10]) for a in rng.integers(0, 9, len(turns))]
    trainer, state = tabular_trainer(
        loss=loss, loss_scale=2.0, truncation_is_terminal=truncation_is_terminal
    )
    state = with_other_target(state)
    online, target = (
        jax.tree.map(lambda x: np.asarray(x, np.float64), state.params[name])
        for name in ("critic", "target")
    )
    total = 0.0
    for t, sampled in zip(turns, value_utterances):
        s, a = t.state.ids[-1], t.utterance.ids[0]
        done = t.terminated or (t.truncated and truncation_is_terminal)
        for k in range(2):
            q, v = online["q"][k, s, a], online["v"][k, s]
            y = t.reward + (0.0 if done else 0.9 * target["v"][k, t.next_state.ids[-1]])
            z = target["q"][k, s, sampled.ids[0] if loss.needs_policy_utterances else a]
            if isinstance(loss, MonteCarloLoss):
                y = z = t.return_to_go
            weight = 1.0 if not isinstance(loss, IQLLoss) else 0.8 if z > v else 0.2
            total += ((y - q) ** 2 + weight * (z - v) ** 2) / len(turns)
    _, metrics = trainer.update(state, turns, value_utterances, ALONE)
    assert float(metrics["loss"]) == pytest.approx(2.0 * total, rel=1e-5)
    assert float(metrics["tokens"]) == len(turns)


def test_a_lambda_return_mixes_the_targets_of_all_later_turns():
    """Hand-worked: an episode of three turns, cut by a limit, and another of one."""
    gamma, lam = 0.9, 0.6
    rng = np.random.default_rng(1)
    turns = [*episode(rng, 3, end="truncated"), *episode(rng, 1)]
    trainer, state = tabular_trainer(
        loss=LambdaReturnLoss(gamma, lam), truncation_is_terminal=False
    )
    state = with_other_target(state)
    online, target = (jax.tree.map(np.asarray, state.params[x]) for x in ("critic", "target"))
    total = 0.0
    for k in range(2):
        v = [target["v"][k, t.next_state.ids[-1]] for t in turns[:3]]
        third = turns[2].reward + gamma * v[2]
        second = turns[1].reward + gamma * ((1 - lam) * v[1] + lam * third)
        first = turns[0].reward + gamma * ((1 - lam) * v[0] + lam * second)
        for t, y in zip(turns, (first, second, third, turns[3].reward)):
            total += (y - online["q"][k, t.state.ids[-1], t.utterance.ids[0]]) ** 2 / 4
    _, metrics = trainer.update(state, turns, [t.utterance for t in turns], ALONE)
    assert float(metrics["q_loss"]) / 4 == pytest.approx(total, rel=1e-5)


GAMMA = 0.8


def chain_turn(state: int, action: int, reward: float, after: int | None) -> Transition:
    """Two tokens a state, the second of which tells it."""
    following = text([9, state, action, 10, after]) if after is not None else text([])
    return Transition(
        text([9, state]), text([action, 10]), reward, following, after is None, False, 0.0
    )


def test_on_a_two_turn_bandit_the_values_are_those_of_dynamic_programming():
    """In state 1 A leads to 2 and B to 5; their rewards there are 1 and 0, -1 and 2; the policy
    samples A with probability 1/4.
    """

    def bandit_episode(first: int, second: int) -> list[Transition]:
        middle = 2 if first == 3 else 5
        reward = {(2, 3): 1.0, (2, 4): 0.0, (5, 3): -1.0, (5, 4): 2.0}[middle, second]
        start = chain_turn(1, first, 0.0, middle)
        last = Transition(
            start.next_state, text([second, 10]), reward, text([]), True, False, reward
        )
        return [start, last]

    episodes = [bandit_episode(a, b) for a in (3, 4) for b in (3, 4)]
    turns = [t for e in episodes for _ in range(4) for t in e]
    # of each turn's four copies one has A as the policy's utterance
    sampled = [text([3 if i // 2 % 4 == 0 else 4, 10]) for i in range(len(turns))]
    trainer, state = tabular_trainer(
        loss=OnPolicyTDLoss(GAMMA), optimizer=SGDConfig(1.0), polyak=0.5
    )
    for _ in range(60):
        state, _ = trainer.update(state, turns, sampled, ALONE)
    v2, v5 = 0.25, -0.25 + 0.75 * 2.0
    params = jax.tree.map(np.asarray, state.params["critic"])
    for q, v in zip(params["q"], params["v"]):
        assert q[[2, 2, 5, 5], [3, 4, 3, 4]] == pytest.approx([1.0, 0.0, -1.0, 2.0], abs=1e-3)
        assert q[1, [3, 4]] == pytest.approx([GAMMA * v2, GAMMA * v5], abs=1e-3)
        assert v[[1, 2, 5]] == pytest.approx([GAMMA * (v2 + 3 * v5) / 4, v2, v5], abs=1e-3)


@pytest.mark.parametrize(
    "policy", [BranchingPolicy(), pytest.param(tiny_policy(layers=1), marks=pytest.mark.slow)]
)
def test_packed_values_are_those_of_each_text_read_alone(policy: Any):
    """A trunk reads states with utterances of different lengths as branches of shared rows, and
    each state with each utterance in a row of its own.
    """
    rng = np.random.default_rng(0)
    config = JointCriticTrainerConfig(
        critic=JointCriticConfig(head=HEAD),
        row_length=40,
        utterance_lengths=(2, 5),
        branch_tokens=20,
        microbatch=2,
    )
    trainer = config.build(policy, device_mesh(), 1)
    state = trainer.init(jax.random.key(1), policy.init(jax.random.key(2)))
    turns = [
        t
        for n, rewritten in ((4, ()), (3, (1,)), (6, ()))
        for t in episode(rng, n, rewritten=rewritten, vocabulary=24)
    ]
    states = [t.state for t in turns]
    utterances = [
        [t.utterance, text(rng.integers(0, 24, rng.integers(1, 6))), text([])] for t in turns
    ]
    state, _ = trainer.update(state, turns[:1], [utterances[0][0]], ALONE)
    params = jax.tree.map(jax.numpy.copy, state.params["critic"])
    with record_compilations() as compiled:
        values = trainer.values(state, states, utterances, ALONE)
        subset = trainer.values(state, states[3:5], utterances[3:5], ALONE)
        state, _ = trainer.update(state, turns, [u[1] for u in utterances], ALONE)
        state, _ = trainer.update(state, turns[:2], [u[1] for u in utterances[:2]], ALONE)
    assert compiled == []
    critic = JointCriticConfig(head=HEAD).build(policy)

    @jax.jit
    def read(ids: Any, length: Any) -> Any:
        segments = (np.arange(40) < length).astype(np.int32)[None]
        inputs = PolicyInputs(tokens=ids, positions=np.arange(40)[None], segment_ids=segments)
        hidden, _ = critic.read(params, inputs)
        columns = (length - 1).reshape(1, 1)
        return critic.q(params, hidden, columns), critic.v(params, hidden, columns)

    def alone(ids: np.ndarray) -> list[float]:
        padded = np.zeros((1, 40), np.int32)
        padded[0, : len(ids)] = ids
        return [float(np.min(x)) for x in read(padded, np.int32(len(ids)))]

    v = [alone(s.ids)[1] for s in states]
    q = [
        [alone(np.concatenate([s.ids, text.ids]))[0] for text in texts]
        for s, texts in zip(states, utterances)
    ]
    assert values.v == pytest.approx(np.array(v), abs=1e-5)
    assert values.q == pytest.approx(np.array(q), abs=1e-5)
    assert subset.q == pytest.approx(values.q[3:5], abs=1e-5) and np.std(values.q) > 0.05


@functools.cache
def joint_critic_on(**sizes: int) -> Any:
    """Values, then the critic and its target network after three updates on a decoder's trunk."""
    policy = tiny_policy(layers=1)
    config = JointCriticTrainerConfig(
        critic=JointCriticConfig(head=HEAD),
        row_length=40,
        utterance_lengths=(2, 5),
        branch_tokens=20,
        microbatch=8,
        optimizer=AdamWConfig(0.01, eps=1e-3),
        polyak=0.5,
    )
    trainer = config.build(policy, device_mesh(**sizes), 3)
    state = trainer.init(jax.random.key(1), policy.init(jax.random.key(2)))
    rng = np.random.default_rng(0)
    turns = [t for n in (4, 3, 6, 1, 5) for t in episode(rng, n, vocabulary=24)]
    other = [text(rng.integers(0, 24, rng.integers(1, 6))) for _ in turns]
    for i in range(3):
        with record_compilations() as compiled:
            state, _ = trainer.update(state, turns[i:], other[i:], ALONE)
        assert i == 0 or compiled == []
    values = trainer.values(
        state, [t.state for t in turns], [[t.utterance, u] for t, u in zip(turns, other)], ALONE
    )
    return jax.tree.map(np.asarray, ([values.q, values.v], state.params))


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [{"data": 8}, {"fsdp": 4, "tensor": 2}])
def test_eight_devices_learn_the_same_as_one_and_recompile_nothing(mesh: dict[str, int]):
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, atol=2e-5),
        joint_critic_on(),
        joint_critic_on(**mesh),
    )
    before = tiny_policy(layers=1).init(jax.random.key(2))
    trunk = joint_critic_on()[1]["critic"]["trunk"]
    assert np.abs(trunk["embedding"] - before["embedding"]).max() > 0.01


def test_min_target_q_is_the_least_of_the_target_networks_copies():
    trainer, state = tabular_trainer()
    state = with_other_target(state)
    target = jax.tree.map(np.asarray, state.params["target"])
    pairs = [(s, a) for s in (1, 2) for a in (3, 4, 5)]
    states, utterances = [text([9, s]) for s, _ in pairs], [text([a, 10]) for _, a in pairs]
    got = trainer.min_target_q(state.params["target"], states, utterances)
    assert got == pytest.approx([target["q"][:, s, a].min() for s, a in pairs], abs=1e-6)
    assert trainer.max_pairs == 8
    nothing = trainer.values(state, [], [], ALONE)
    assert nothing.q.shape == (0, 0) and nothing.v.shape == (0,)


def test_the_trunk_starts_from_the_policys_weights_or_fresh():
    policy = BranchingPolicy()
    params, same = policy.init(jax.random.key(1)), []
    for fresh in (False, True):
        config = JointCriticConfig(head=HEAD, fresh_trunk=fresh)
        critic = config.build(policy)
        trunk = config.initial_params(critic, params, jax.random.key(2))["trunk"]
        same.append(trunk is params or np.array_equal(trunk["kernel"], params["kernel"]))
    assert same == [True, False]


def test_what_a_joint_critic_cannot_read_is_refused():
    with pytest.raises(UserError, match="does not support rows with branches"):
        JointCriticTrainerConfig(critic=TabularJointCritic()).build(
            MarkovPolicy(), device_mesh(), 1
        )
    with pytest.raises(UserError, match="branch_tokens for one"):
        tabular_trainer(branch_tokens=1)
    with pytest.raises(UserError, match="reads whole episodes"):
        hierarchical.utterance_critic(
            TabularCritic(), WeightlessEncoder(), loss=LambdaReturnLoss()
        ).build(MarkovPolicy(), device_mesh(), 1)
    trainer, state = tabular_trainer()
    long = episode(np.random.default_rng(0), 12, end="truncated")
    with pytest.raises(UserError, match=r"rows of a joint critic hold 32.*EncoderUtteranceCritic"):
        trainer.values(state, [long[-1].next_state], [[text([1])]], ALONE)
    with pytest.raises(UserError, match="utterance has 3 tokens"):
        trainer.values(state, [text([1])], [[text([1, 2, 3])]], ALONE)
