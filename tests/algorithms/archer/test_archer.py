"""ArCHer: a two-turn bandit, the policy gradient by hand, offline weights, best-of-n, exact resume,
meshes.
"""

import dataclasses
import functools
import json
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from support.credit_tables import (
    END_TOKEN,
    VOCAB_SIZE,
    MarkovPolicy,
    RoundRobinEngine,
    SGDConfig,
    TabularCritic,
    WeightlessEncoder,
    make_runtime,
    table_logp,
)
from support.fixtures import (
    MeanEmbeddingPolicy,
    device_mesh,
    make_call,
    make_trajectory,
    make_turn,
    random_groups,
    record_compilations,
    trees_equal,
)

from agentrl_jax.algorithms.archer.advantage_weights import ExponentialWeight, subtract_batch_mean
from agentrl_jax.algorithms.archer.algorithm import Archer, ArcherConfig
from agentrl_jax.algorithms.archer.best_of_n_engine import BestOfNEngine
from agentrl_jax.algorithms.archer.critic_trainer import UtteranceCriticTrainerConfig
from agentrl_jax.algorithms.methods import hierarchical
from agentrl_jax.algorithms.policy_gradient.auxiliary import Imitation
from agentrl_jax.algorithms.policy_gradient.critic import CriticConfig
from agentrl_jax.configs.archer import get_config
from agentrl_jax.errors import UserError
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.utterance_critic import PolicyTrunkEncoderConfig, UtteranceCriticConfig
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.storage.config_json import from_json, to_json
from agentrl_jax.trajectories import Group, Sampling, Trajectory

A, B, OTHER = [3, END_TOKEN], [4, END_TOKEN], [4, 11, END_TOKEN]
SHAPE: dict[str, Any] = {"optimizer": SGDConfig(1.0), "bin_length": 16, "microbatch": 4}


def episode(first: list[int], second: list[int], reward: float) -> Trajectory:
    """In state 1 the first utterance leads to state 2 or 5, in which the second one has the
    reward.
    """
    first_call = make_call([9, 1], first)
    second_call = make_call([*first_call.ids.tolist(), 2 if first == A else 5], second)
    return make_trajectory(
        make_turn([first_call]), make_turn([second_call], reward, terminated=True)
    )


BANDIT = [
    Group("", (episode(a, b, r),))
    for a, b, r in ((A, A, 1.0), (A, B, 0.0), (B, A, -1.0), (B, B, 2.0))
]


def tables(**settings: Any) -> UtteranceCriticTrainerConfig:
    loss_inputs = {
        "state_lengths": (16,),
        "utterance_lengths": (4,),
        "batch": 8,
        "microbatch": 8,
        "optimizer": SGDConfig(0.0),
        "polyak": 0.5,
        **settings,
    }
    return hierarchical.utterance_critic(TabularCritic(), WeightlessEncoder(), **loss_inputs)


def build_algorithm(config: ArcherConfig, steps: int = 4) -> tuple[Archer, Any]:
    algorithm = config.build(MarkovPolicy(), device_mesh(), steps)
    table = np.random.default_rng(0).normal(size=(VOCAB_SIZE, VOCAB_SIZE)).astype(np.float32)
    return algorithm, algorithm.init(jax.random.key(3), {"table": table})


@pytest.fixture
def quarter_a_runtime() -> Iterator[Runtime]:
    with make_runtime(
        RoundRobinEngine(A, B, B, B)
    ) as runtime:  # the policy samples A with probability 1/4
        yield runtime


@pytest.mark.slow
def test_the_target_of_v_is_a_new_utterance_for_every_transition_of_the_iteration(
    quarter_a_runtime: Runtime,
):
    """With a fixed critic, its V loss is that of Qbar(s, a') over the drawn states, where a' is A
    with probability 1/4.
    """
    algorithm, state = build_algorithm(
        hierarchical.archer(
            tables(), hierarchical.reinforce_actor(**SHAPE), critic_steps=3, actor_steps=0
        )
    )
    state, metrics = algorithm.step(known_values(state), ONE_TURN_GROUP, quarter_a_runtime)
    assert quarter_a_runtime.engines["policy"].num_prompts == 3 * 8  # type: ignore[attr-defined]
    assert (
        metrics["replay/turns"] == 1.0 and len(metrics["critic"]) == 3 and metrics["device"] == []
    )
    for step_metrics in metrics["critic"]:  # Q(A) - V = 2.25, Q(B) - V = -.75, in both copies
        assert float(step_metrics["v_loss"]) / 8 == pytest.approx(
            2 * (0.25 * 2.25**2 + 0.75 * 0.75**2), rel=1e-5
        )
    _, metrics = algorithm.step(state, BANDIT, quarter_a_runtime)
    assert metrics["replay/turns"] == 9.0


def known_values(state: Any) -> Any:
    """Twins that differ by a constant, and V = E_pi Q where the policy samples A with probability
    1/4.
    """
    q = np.zeros((2, VOCAB_SIZE, VOCAB_SIZE), np.float32)
    q[:, 1, 3], q[:, 1, 4] = 2.0, -1.0
    q[1] += 1.0
    v = np.float32(0.25) * q[:, :, 3] + np.float32(0.75) * q[:, :, 4]
    both = {"encoder": {}, "q": q, "v": v}
    critic = dataclasses.replace(
        state.extra.critic, params=jax.tree.map(jax.numpy.array, {"critic": both, "target": both})
    )
    return dataclasses.replace(state, extra=dataclasses.replace(state.extra, critic=critic))


ONE_TURN_GROUP = [
    Group("", (make_trajectory(make_turn([make_call([9, 1], A)], 1.0, terminated=True)),))
]


def run_one_step(
    config: ArcherConfig, runtime: Runtime, data: list[Group] = ONE_TURN_GROUP
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """(the policy's table, its change in one step, the step's metrics)"""
    algorithm, state = build_algorithm(config)
    state = known_values(state)
    before = np.asarray(state.params["table"], np.float64)
    state, metrics = algorithm.step(state, data, runtime)
    return before, np.asarray(state.params["table"], np.float64) - before, metrics


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum()


@pytest.mark.slow
def test_the_policys_gradient_is_the_analytic_one_with_the_end_of_the_utterance(
    quarter_a_runtime: Runtime,
):
    """A(A) = 2 + .25 = 2.25 and A(B) = -.75 at frequencies 1/4 and 3/4: the sum over utterances of
    pi A grad log pi.
    """
    config = hierarchical.archer(
        tables(),
        hierarchical.reinforce_actor(**SHAPE),
        critic_steps=1,
        actor_steps=1,
        batch=8,
        warmup=0,
    )
    table, update, metrics = run_one_step(config, quarter_a_runtime)
    expected = np.zeros_like(table)
    for frequency, advantage, (letter, end) in ((0.25, 2.25, A), (0.75, -0.75, B)):
        for before, token in ((1, letter), (letter, end)):
            expected[before] += (
                frequency * advantage * (np.eye(VOCAB_SIZE)[token] - softmax(table[before]))
            )
    assert update == pytest.approx(expected, abs=1e-5) and np.abs(update[3, END_TOKEN]) > 0.1
    # E A = 0: at the first token pi A itself remains, without the term in the policy's own
    # probabilities.
    assert update[1, [3, 4]] == pytest.approx([0.25 * 2.25, -0.75 * 0.75], abs=1e-5) and update[
        1
    ].sum() == pytest.approx(0, abs=1e-5)
    assert metrics["advantage/mean"] == pytest.approx(0.0, abs=1e-6)
    summed = dataclasses.replace(
        config, actor=dataclasses.replace(config.actor, aggregation=hierarchical.StepSum(1 / 4))
    )
    assert run_one_step(summed, quarter_a_runtime)[1] == pytest.approx(4 * expected, abs=1e-4)


def test_utterances_of_mixed_lengths_have_the_log_probs_that_they_have_alone():
    with make_runtime(RoundRobinEngine(A, OTHER, [3], B)) as runtime:
        config = hierarchical.archer(
            tables(),
            hierarchical.reinforce_actor(**SHAPE),
            critic_steps=1,
            actor_steps=1,
            batch=4,
            warmup=0,
        )
        table, _, metrics = run_one_step(config, runtime)
    losses = [
        -w * table_logp(table, [9, 1, *a], 2)
        for a, w in ((A, 2.25), (OTHER, -0.75), ([3], 2.25), (B, -0.75))
    ]
    assert float(metrics["device"][0]["loss"]) == pytest.approx(np.mean(losses), rel=1e-5)


@pytest.mark.slow
def test_offline_weights_are_exponential_and_imitation_is_added(quarter_a_runtime: Runtime):
    data = [
        Group("", (make_trajectory(make_turn([make_call([9, 1], a)], 1.0, terminated=True)),))
        for a in (A,)
    ]
    config = hierarchical.archer_offline(
        tables(loss=hierarchical.IQLLoss()), hierarchical.reinforce_actor(**SHAPE), 0.5, batch=4
    )
    table, update, _ = run_one_step(config, quarter_a_runtime, data)
    gradient = np.zeros_like(table)
    for before, token in ((1, 3), (3, END_TOKEN)):
        gradient[before] += np.eye(VOCAB_SIZE)[token] - softmax(table[before])
    assert update == pytest.approx(np.exp(0.5 * 2.25) * gradient, abs=1e-5)
    assert ExponentialWeight(2.0, max_weight=5.0)(np.array([0.0, 9.0, -1.0])).tolist() == [
        1.0,
        5.0,
        pytest.approx(np.exp(-2.0)),
    ]
    assert subtract_batch_mean(np.array([1.0, 2.0, 6.0])).tolist() == [
        -2.0,
        -1.0,
        3.0,
    ] and subtract_batch_mean(np.zeros(0)).shape == (0,)
    engine = quarter_a_runtime.engines["policy"]
    assert engine.num_prompts == 0  # type: ignore[attr-defined] # nothing is sampled offline
    imitating_actor = hierarchical.reinforce_actor(auxiliaries=(Imitation(0.3),), **SHAPE)
    config = hierarchical.reinforce_offline(
        tables(loss=hierarchical.IQLLoss()), imitating_actor, batch=4, imitation_batch=4
    )
    _, update, _ = run_one_step(config, quarter_a_runtime, data)
    policy_gradient = np.zeros_like(table)
    for frequency, advantage, utterance in ((0.25, 2.25, A), (0.75, -0.75, B)):
        for before, token in ((1, utterance[0]), (utterance[0], END_TOKEN)):
            policy_gradient[before] += (
                frequency * advantage * (np.eye(VOCAB_SIZE)[token] - softmax(table[before]))
            )
    assert update == pytest.approx(
        policy_gradient + 0.3 * gradient / 2, abs=1e-5
    )  # a mean over two tokens


@pytest.mark.slow
def test_a_token_baseline_is_subtracted_from_the_weights(quarter_a_runtime: Runtime):
    baseline = hierarchical.token_baseline_actor(HeadConfig(layers=0, bias=0.5), **SHAPE)
    assert isinstance(baseline.critic, CriticConfig) and baseline.critic.clip == float("inf")
    table, update, metrics = run_one_step(
        hierarchical.archer(tables(), baseline, critic_steps=1, actor_steps=1, batch=4, warmup=0),
        quarter_a_runtime,
    )
    expected = np.zeros_like(table)
    for frequency, advantage, utterance in ((0.25, 2.25, A), (0.75, -0.75, B)):
        for before, token in ((1, utterance[0]), (utterance[0], END_TOKEN)):
            expected[before] += (
                frequency * (advantage - 0.5) * (np.eye(VOCAB_SIZE)[token] - softmax(table[before]))
            )
    assert update == pytest.approx(expected, abs=1e-5)
    squares = [0.5 * (advantage - 0.5) ** 2 for advantage in (2.25, -0.75, -0.75, -0.75)]
    assert float(metrics["device"][0]["baseline/value_loss"]) / 8 == pytest.approx(
        np.mean(squares), rel=1e-5
    )


@pytest.mark.slow
def test_during_warmup_the_policy_is_unchanged_and_an_empty_replay_buffer_skips_the_step(
    quarter_a_runtime: Runtime,
):
    config = hierarchical.archer(
        tables(),
        hierarchical.reinforce_actor(**SHAPE),
        critic_steps=1,
        actor_steps=1,
        batch=4,
        warmup=1,
    )
    algorithm, state = build_algorithm(config)
    state, metrics = algorithm.step(known_values(state), [Group("", ())], quarter_a_runtime)
    assert metrics["skipped"] == 1.0
    algorithm, state = build_algorithm(config)
    before = np.asarray(state.params["table"])
    state, _ = algorithm.step(known_values(state), ONE_TURN_GROUP, quarter_a_runtime)
    assert np.array_equal(before, state.params["table"])
    state, metrics = algorithm.step(state, [], quarter_a_runtime)
    assert not np.array_equal(before, state.params["table"]) and metrics["skipped"] == 0.0
    # the engine gets the updated policy
    assert quarter_a_runtime.engines["policy"].num_published == 1  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_resumed_run_samples_and_learns_the_same(quarter_a_runtime: Runtime):
    config = hierarchical.archer(
        tables(optimizer=SGDConfig(0.1)),
        hierarchical.reinforce_actor(**SHAPE),
        critic_steps=2,
        actor_steps=2,
        batch=4,
        warmup=0,
    )
    algorithm, state = build_algorithm(config)
    state, _ = algorithm.step(state, BANDIT, quarter_a_runtime)
    host, saved_state = (
        json.loads(json.dumps(algorithm.host_state())),
        jax.tree.map(jax.numpy.copy, state),
    )
    uninterrupted, _ = algorithm.step(state, ONE_TURN_GROUP, quarter_a_runtime)
    resumed_algorithm, _ = build_algorithm(config)
    resumed_algorithm.load_host_state(host)
    resumed, _ = resumed_algorithm.step(saved_state, ONE_TURN_GROUP, quarter_a_runtime)
    assert trees_equal(uninterrupted.params, resumed.params) and trees_equal(
        uninterrupted.extra.critic.params, resumed.extra.critic.params
    )


def test_best_of_n_returns_the_utterance_of_the_largest_target_q():
    with make_runtime(engine := RoundRobinEngine(A, B)) as runtime:
        algorithm, state = build_algorithm(
            hierarchical.chai(tables(), best_of_n=4, critic_steps=1, batch=4)
        )
        state = known_values(state)  # in state 1 A has the largest Q, elsewhere all are equal
        algorithm.begin_phase(state, runtime)
        ranked = runtime.engines["policy"]
        assert isinstance(ranked, BestOfNEngine) and ranked.num_slots == 2
        futures = [ranked.submit(np.array([9, 1]), Sampling(), (7, i)) for i in range(3)]
        calls = [future.result(timeout=60) for future in futures]
        assert engine.num_prompts == 12 and all(call.action.tolist() in (A, B) for call in calls)
        mixed = [make_call([9, s], a) for s in (1, 2) for a in (B, OTHER, A, B)]
        assert algorithm._selector is not None and algorithm._selector([mixed[:4], mixed[4:]]) == [
            2,
            0,
        ]
        table = np.asarray(state.params["table"])
        state, _ = algorithm.step(state, ONE_TURN_GROUP, runtime)
        assert np.array_equal(table, state.params["table"])
        # V is trained on utterances of the policy without best-of-n
        assert engine.num_prompts == 12 + 8


def test_an_error_of_the_selector_reaches_the_pending_call():
    def choose(choices: Any) -> Any:
        raise ValueError("no")

    engine = BestOfNEngine(RoundRobinEngine(A), 2, choose, max_calls=4)
    given_up = engine.submit(np.array([1]), Sampling(), (0, 0))
    with pytest.raises(ValueError, match="no"):
        given_up.result(timeout=60)
    engine.close()
    with pytest.raises(UserError, match="at once"):
        BestOfNEngine(RoundRobinEngine(A), 8, choose, max_calls=4)


@functools.cache
def trained_on(**sizes: int) -> Any:
    """Policy and twin critics after two iterations; the critic's encoder is the policy's trunk."""
    adam, policy = AdamWConfig(0.01, eps=1e-3), MeanEmbeddingPolicy()
    critic = UtteranceCriticConfig(head=HeadConfig(layers=1, hidden=8, scale=1.0))
    values = hierarchical.utterance_critic(
        critic,
        PolicyTrunkEncoderConfig(),
        batch=12,
        microbatch=8,
        state_lengths=(16,),
        utterance_lengths=(4,),
        optimizer=adam,
    )
    low = hierarchical.reinforce_actor(optimizer=adam, bin_length=16, microbatch=8)
    config = hierarchical.archer(values, low, critic_steps=2, actor_steps=1, batch=12, warmup=0)
    with make_runtime(
        RoundRobinEngine([3, END_TOKEN], [4, 5, END_TOKEN], [6], [7, 8, 9, END_TOKEN])
    ) as runtime:
        algorithm = config.build(policy, device_mesh(**sizes), 4)
        state = algorithm.init(jax.random.key(7), policy.init(jax.random.key(1)))
        for step in range(2):
            groups = random_groups(
                [[[(2, 2, False, 1.0), (1, 3, False, 0.5)], [(3, 1, False, -1.0)]]] * 3, seed=step
            )
            with record_compilations() as compiled:
                state, _ = algorithm.step(state, groups, runtime)
        assert compiled == []
    return jax.tree.map(np.asarray, (state.params, state.extra.critic.params))


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [{"data": 8}, {"fsdp": 4, "tensor": 2}])
def test_eight_devices_learn_the_same_as_one_and_recompile_nothing(mesh: dict[str, int]):
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), trained_on(), trained_on(**mesh)
    )


def test_invalid_settings_are_refused_and_configs_round_trip():
    for wrong in ({"critic_steps": 0}, {"best_of_n": 0}, {"warmup": -1}, {"imitation_batch": 4}):
        with pytest.raises(UserError, match=r"ArCHer needs|Imitation"):
            build_algorithm(
                hierarchical.archer(tables(), hierarchical.reinforce_actor(**SHAPE), **wrong)
            )
    for variant in (
        "archer",
        "shared",
        "clipped",
        "baseline",
        "monte_carlo",
        "chai",
        "iql_awr",
        "iql_reinforce_bc",
        "ppo",
        "filtered",
    ):
        config = get_config(f"subset-{variant}")
        assert to_json(from_json(json.loads(json.dumps(to_json(config))))) == to_json(config)
