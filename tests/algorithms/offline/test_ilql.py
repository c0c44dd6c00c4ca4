"""ILQL: targets against loops, the loss against numpy, tabular fixed points, which parameters move,
meshes.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array
from support.fixtures import (
    MeanEmbeddingPolicy,
    batch_shapes,
    device_mesh,
    make_call,
    make_credit_inputs,
    make_trajectory,
    make_turn,
    random_groups,
)

from agentrl_jax.algorithms.offline.ilql import TokenValueTrainer, TokenValueTrainerConfig
from agentrl_jax.algorithms.offline.token_value_targets import (
    ExpectileTarget,
    MonteCarloTarget,
    TokenValueReadout,
)
from agentrl_jax.errors import UserError
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.learner.sequences import collate
from agentrl_jax.learner.unique_sequences import unique_sequences
from agentrl_jax.models.heads import CriticEnsemble, HeadConfig
from agentrl_jax.models.value_guided import ValueGuidedPolicy
from agentrl_jax.policy import KVCache, PolicyInputs, PolicyOutput
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, Trajectory
from agentrl_jax.workers.pool import InlinePool

SHAPE: dict[str, Any] = {"bin_length": 32, "microbatch": 8}


@dataclass(frozen=True, eq=False)
class Table(MeanEmbeddingPolicy):
    """A hidden state is the one-hot vector of the last token, so that Q is a table over (token
    before, token).
    """

    vocab_size: int = 6
    width: int = 6

    def apply(
        self,
        params: Any,
        inputs: PolicyInputs,
        cache: KVCache | None = None,
        key: Array | None = None,
    ) -> PolicyOutput:
        return PolicyOutput(
            hidden=jax.nn.one_hot(inputs.tokens, self.width) + 0.0 * params["embedding"].sum()
        )


def value_guided_policy(
    policy: MeanEmbeddingPolicy,
    num_q_heads: int = 2,
    layers: int = 0,
    scale: float = 0.0,
    bias: float = 0.0,
) -> ValueGuidedPolicy:
    head = HeadConfig(layers=layers, scale=scale, bias=bias)
    return ValueGuidedPolicy(
        policy,
        CriticEnsemble(head.build(policy.width, policy.vocab_size), num_q_heads),
        head.build(policy.width),
        1.0,
    )


def config(target: Any, rate: float = 0.05, **fields: Any) -> TokenValueTrainerConfig:
    return TokenValueTrainerConfig(
        target,
        **{
            "cql_weight": 0.0,
            "polyak": 0.1,
            "optimizer": AdamWConfig(rate, warmup_steps=0, final_fraction=0.01),
            **SHAPE,
            **fields,
        },
    )


def build_trainer(
    trainer_config: TokenValueTrainerConfig, policy: ValueGuidedPolicy, **mesh: int
) -> tuple[TokenValueTrainer, Any]:
    algorithm = trainer_config.build(policy, device_mesh(**mesh), steps=400)
    return algorithm, algorithm.init(jax.random.key(7), policy.init(jax.random.key(1)))


@pytest.fixture(scope="module")
def runtime():
    with Runtime({}, {}, InlinePool()) as runtime:
        yield runtime


def episode(
    states: list[int], actions: list[int], rewards: list[float], truncated: bool = False
) -> Trajectory:
    """Each observation is one token, the state; each action is one token."""
    context, turns = [], []
    for state, action, reward in zip(states, actions, rewards):
        context = [*context, state]
        turns.append(make_turn([make_call(context, [action])], reward))
        context = [*context, action]
    return make_trajectory(*turns).replace(stop_reason="truncated" if truncated else "terminated")


def trained_values(
    trainer_config: TokenValueTrainerConfig,
    data: list[Trajectory],
    runtime: Runtime,
    steps: int = 400,
) -> tuple[np.ndarray, np.ndarray]:
    """(the first Q [state, action], V [state]) after training on the data."""
    policy = value_guided_policy(Table())
    algorithm, state = build_trainer(trainer_config, policy)
    groups = [Group(str(i), (trajectory,)) for i, trajectory in enumerate(data)]
    for _ in range(steps):
        state, _ = algorithm.step(state, groups, runtime)
    cells = jnp.eye(6)
    values = state.params["values"]
    return np.asarray(policy.q.apply(values["q"], cells))[0], np.asarray(
        policy.v.apply(values["v"], cells)
    )


CHAIN = [
    episode([0, 1, 2], [3, 4, 5], [0.0, 0.0, 1.0]),
    episode([0, 1, 2], [3, 4, 4], [0.0, 0.0, 0.0]),
    episode([0, 1], [3, 5], [0.0, 0.5]),
]


@pytest.mark.slow
def test_on_a_chain_values_are_those_of_iterated_equations(runtime: Runtime):
    """V(2) is the expectile of 1 and 0, Q(1, 4) = gamma V(2), V(1) that of Q(1, 4) twice and .5,
    Q(0, 3) = gamma V(1).
    """
    gamma, tau = 0.9, 0.7
    q, v = trained_values(config(ExpectileTarget(gamma, tau)), CHAIN, runtime)
    v2 = tau / (tau + (1 - tau))  # tau (1 - V) = (1 - tau) V
    q14 = gamma * v2
    # .5 is below Q(1, 4) = .63 and so below V(1): tau 2 (Q - V) = (1 - tau) (V - .5)
    v1 = (2 * tau * q14 + (1 - tau) * 0.5) / (2 * tau + 1 - tau)
    assert q[2, [5, 4]] == pytest.approx([1.0, 0.0], abs=0.02)
    assert v[[2, 1, 0]] == pytest.approx([v2, v1, gamma * v1], abs=0.02)
    assert q[1, [4, 5]] == pytest.approx([q14, 0.5], abs=0.02) and q[0, 3] == pytest.approx(
        gamma * v1, abs=0.02
    )


@pytest.mark.slow
def test_with_tau_one_half_v_is_the_mean_so_q_is_sarsas(runtime: Runtime):
    q, v = trained_values(config(ExpectileTarget(0.9, 0.5)), CHAIN, runtime)
    v1 = (2 * 0.45 + 0.5) / 3
    assert v[[2, 1, 0]] == pytest.approx([0.5, v1, 0.9 * v1], abs=0.02) and q[
        0, 3
    ] == pytest.approx(0.9 * v1, abs=0.02)


@pytest.mark.slow
def test_monte_carlo_is_the_mean_discounted_return(runtime: Runtime):
    q, v = trained_values(config(MonteCarloTarget(0.9)), CHAIN, runtime)
    assert q[0, 3] == pytest.approx((0.81 + 0.0 + 0.45) / 3, abs=0.02) and q[1, 4] == pytest.approx(
        0.45, abs=0.02
    )
    assert (
        q[2, [5, 4]] == pytest.approx([1.0, 0.0], abs=0.02) and v.tolist() == [0.0] * 6
    )  # V is not trained


@pytest.mark.slow
def test_repeated_sequences_are_computed_once_and_weighted_by_their_count(runtime: Runtime):
    """Two episodes of the same tokens change the values as two of their mean reward do; with a
    third one each has its share.
    """
    data = [episode([0, 1], [3, 5], [0.0, reward]) for reward in (0.0, 2.0)] + [
        episode([0, 1], [3, 4], [0.0, -1.0])
    ]
    mean = [episode([0, 1], [3, 5], [0.0, 1.0])] * 2 + data[2:]
    for target in (MonteCarloTarget(0.9), ExpectileTarget(0.9, 0.7)):
        got, expected = (
            trained_values(config(target, cql_weight=0.1), episodes, runtime, steps=3)
            for episodes in (data, mean)
        )
        np.testing.assert_allclose(got[0], expected[0], atol=1e-6)
        np.testing.assert_allclose(got[1], expected[1], atol=1e-6)
    rows, index = unique_sequences(
        collate([Group("", (trajectory,)) for trajectory in data]).sequences
    )
    assert index.tolist() == [0, 0, 1] and [row.tokens.tolist() for row in rows] == [
        [0, 3, 1, 5],
        [0, 3, 1, 4],
    ]


@pytest.mark.slow
def test_a_large_cql_weight_makes_q_the_log_frequencies_of_the_data(runtime: Runtime):
    q, _ = trained_values(config(MonteCarloTarget(0.9), cql_weight=1000.0), CHAIN, runtime)
    assert scipy.special.softmax(q[1])[[4, 5]] == pytest.approx([2 / 3, 1 / 3], abs=0.02)


def test_a_truncated_episode_ends_in_0_or_bootstraps_from_its_last_value():
    credit_inputs = make_credit_inputs(
        [
            Group(
                "a", (episode([0, 1], [3, 4], [0.0, 1.0], truncated=True), episode([0], [3], [2.0]))
            )
        ]
    )
    readout = TokenValueReadout(np.array([1.0, 2.0, 3.0]), np.array([0.0, 10.0, 20.0]), np.zeros(3))
    assert ExpectileTarget(0.5, 0.7)(credit_inputs, lambda: readout).q.tolist() == [1.0, 1.0, 2.0]
    assert ExpectileTarget(0.5, 0.7, bootstrap_truncated=True)(
        credit_inputs, lambda: readout
    ).q.tolist() == [1.0, 6.0, 2.0]


@given(shapes=batch_shapes, gamma=st.floats(0, 1), seed=st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_targets_are_those_of_a_loop(shapes: list, gamma: float, seed: int):
    credit_inputs = make_credit_inputs(random_groups(shapes, seed))
    n, rng = len(credit_inputs.token_sequence), np.random.default_rng(seed)
    readout = TokenValueReadout(*rng.normal(size=(3, n)))
    ilql: list[float] = []
    monte_carlo: list[float] = []
    at = 0
    for trajectory in credit_inputs.trajectories:
        rewards = [
            r
            for turn in trajectory.turns
            for r in [0.0] * (len(turn.calls[0].action) - 1) + [turn.reward]
        ]
        for i, reward in enumerate(rewards):
            last = i == len(rewards) - 1
            ilql.append(reward + (0.0 if last else gamma * readout.v[at + i + 1]))
            monte_carlo.append(sum(gamma**k * r for k, r in enumerate(rewards[i:])))
        at += len(rewards)
    got = ExpectileTarget(gamma, 0.7)(credit_inputs, lambda: readout)
    assert got.q == pytest.approx(ilql, abs=1e-9) and got.v is readout.min_target_q
    assert MonteCarloTarget(gamma)(
        credit_inputs, lambda: pytest.fail("values were read")
    ).q == pytest.approx(monte_carlo, abs=1e-6)


@pytest.mark.slow
def test_the_loss_is_the_equations_in_numpy(runtime: Runtime):
    policy = value_guided_policy(MeanEmbeddingPolicy(), layers=1, scale=1.0)
    trainer_config = config(ExpectileTarget(0.9, 0.8), cql_weight=0.3)
    algorithm, state = build_trainer(trainer_config, policy)
    other = policy.init(jax.random.key(5))  # so that the target network differs from the values
    state = dataclasses.replace(
        state,
        params={**state.params, "target": {"trunk": other["policy"], "q": other["target"]["q"]}},
    )
    params = jax.tree.map(np.asarray, state.params)
    groups = random_groups(
        [[[(2, 3, False, 1.0), (1, 2, False, -0.5)], [(3, 1, False, 2.0)]]], seed=3
    )
    _, metrics = algorithm.step(state, groups, runtime)
    losses = []
    for trajectory in groups[0].trajectories:
        ids = trajectory.turns[-1].calls[0].ids
        inputs = PolicyInputs(
            tokens=ids[None],
            positions=np.arange(len(ids))[None],
            segment_ids=np.ones((1, len(ids)), np.int32),
        )
        hidden, target_hidden = (
            policy.policy.apply(params[name]["trunk"], inputs).hidden[0]
            for name in ("values", "target")
        )
        q, target_q = (
            np.asarray(policy.q.apply(params[name]["q"], h), np.float64)
            for name, h in (("values", hidden), ("target", target_hidden))
        )
        v = np.asarray(policy.v.apply(params["values"]["v"], hidden), np.float64)
        action_positions, rewards, end = [], [], 0
        for turn in trajectory.turns:
            start, end = len(turn.calls[0].prompt), len(turn.calls[0].ids)
            action_positions += range(start, end)
            rewards += [0.0] * (end - start - 1) + [turn.reward]
        for i, (t, reward) in enumerate(zip(action_positions, rewards)):
            before, token = t - 1, ids[t]
            y = reward + (
                0.9 * v[action_positions[i + 1] - 1] if i + 1 < len(action_positions) else 0.0
            )
            z = target_q[:, before, token].min()
            weight = 0.8 if z >= v[before] else 0.2
            cross = -scipy.special.log_softmax(q[:, before], axis=-1)[:, token]
            losses.append(
                (0.5 * (q[:, before, token] - y) ** 2).sum()
                + 0.5 * weight * (v[before] - z) ** 2
                + 0.3 * cross.sum()
            )
    assert float(metrics["device"][0]["loss"]) == pytest.approx(np.mean(losses), rel=1e-4)


@pytest.mark.slow
def test_only_values_are_trained_and_the_target_network_tracks_them(runtime: Runtime):
    policy = value_guided_policy(MeanEmbeddingPolicy(), layers=1, scale=1.0)
    algorithm, state = build_trainer(config(ExpectileTarget(), polyak=0.25), policy)
    before = jax.tree.map(np.asarray, state.params)
    state, _ = algorithm.step(state, random_groups([[[(2, 3, False, 1.0)]]]), runtime)
    after = jax.tree.map(np.asarray, state.params)
    assert jax.tree.all(jax.tree.map(np.array_equal, before["policy"], after["policy"]))
    assert all(
        not np.array_equal(x, y)
        for x, y in zip(
            jax.tree.leaves(before["values"]["q"]), jax.tree.leaves(after["values"]["q"])
        )
    )
    expected_target = jax.tree.map(
        lambda old, new: old + 0.25 * (new - old),
        before["target"],
        {n: after["values"][n] for n in ("trunk", "q")},
    )
    assert jax.tree.all(
        jax.tree.map(lambda x, y: np.allclose(x, y, atol=1e-6), expected_target, after["target"])
    )


def test_training_starts_from_the_policys_trunk():
    policy = value_guided_policy(MeanEmbeddingPolicy())
    params = policy.init(jax.random.key(1))
    params["policy"] = jax.tree.map(lambda x: x + 1.0, params["policy"])
    state = (
        config(ExpectileTarget()).build(policy, device_mesh(), 1).init(jax.random.key(0), params)
    )
    for name in ("values", "target"):
        assert jax.tree.all(
            jax.tree.map(np.array_equal, state.params[name]["trunk"], params["policy"])
        )


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [{"data": 8}, {"fsdp": 4, "tensor": 2}])
def test_eight_devices_learn_the_same_as_one(mesh: dict[str, int], runtime: Runtime):
    ends = []
    for sizes in ({}, mesh):
        algorithm, state = build_trainer(
            config(ExpectileTarget(0.9, 0.7), cql_weight=0.1),
            value_guided_policy(MeanEmbeddingPolicy(), layers=1, scale=1.0),
            **sizes,
        )
        for step in range(2):
            groups = random_groups(
                [[[(2, 3, False, 1.0), (1, 2, False, 0.5)], [(1, 1, False, -1.0)]]] * 5, seed=step
            )
            state, _ = algorithm.step(state, groups, runtime)
        ends.append(jax.tree.map(np.asarray, state.params))
    assert jax.tree.all(jax.tree.map(lambda x, y: np.allclose(x, y, atol=1e-5), *ends))


def test_invalid_settings_are_refused_and_an_empty_batch_is_a_counted_skip(runtime: Runtime):
    with pytest.raises(UserError, match="ValueGuidedConfig"):
        config(ExpectileTarget()).build(MeanEmbeddingPolicy(), device_mesh(), 1)
    for wrong in ({"polyak": 0.0}, {"cql_weight": -1.0}):
        with pytest.raises(UserError, match="polyak"):
            config(ExpectileTarget(), **wrong).build(
                value_guided_policy(MeanEmbeddingPolicy()), device_mesh(), 1
            )
    with pytest.raises(UserError, match="tau"):
        ExpectileTarget(tau=1.0)
    algorithm, state = build_trainer(
        config(ExpectileTarget()), value_guided_policy(MeanEmbeddingPolicy())
    )
    after, metrics = algorithm.step(state, [Group("a", ())], runtime)
    assert metrics["skipped"] == 1.0 and after is state
