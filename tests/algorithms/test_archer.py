"""ArCHer: a bandit of two turns, the policy's gradient by hand, offline weights, choosing, exact resume, meshes."""

import dataclasses
import functools
import json
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from hand_made import Averaging, counted_compilations, grown_groups, make_call, make_trajectory, make_turn, mesh_of, same_leaves
from tables import END, TOKENS, Cells, Descent, Even, Markov, TableCritic, logp_of, runtime_of

from agentrl_jax.algorithms.archer import Archer, ArcherConfig, Exponential, centred
from agentrl_jax.algorithms.auxiliary import Imitation
from agentrl_jax.algorithms.critics import CriticConfig
from agentrl_jax.algorithms.methods import archer
from agentrl_jax.algorithms.ranked_engine import RankedEngine
from agentrl_jax.algorithms.utterance_learner import ValuesConfig
from agentrl_jax.configfile import from_json, to_json
from agentrl_jax.configs.archer import get_config
from agentrl_jax.errors import UserError
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.utterance_critic import PolicyTrunk, UtteranceCriticConfig
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Group, Sampling, Trajectory

A, B, OTHER = [3, END], [4, END], [4, 11, END]
SHAPE: dict[str, Any] = {"optimizer": Descent(1.0), "bin_length": 16, "microbatch": 4}


def episode(first: list[int], second: list[int], reward: float) -> Trajectory:
    """In state 1 the first utterance leads to state 2 or 5, in which the second earns the reward."""
    one = make_call([9, 1], first)
    two = make_call([*one.ids.tolist(), 2 if first == A else 5], second)
    return make_trajectory(make_turn([one]), make_turn([two], reward, terminated=True))


BANDIT = [Group("", (episode(a, b, r),)) for a, b, r in ((A, A, 1.0), (A, B, 0.0), (B, A, -1.0), (B, B, 2.0))]


def tables(**settings: Any) -> ValuesConfig:
    given = {"states": (16,), "utterances": (4,), "batch": 8, "microbatch": 8, "optimizer": Descent(0.0), "polyak": 0.5, **settings}
    return archer.values(TableCritic(), Cells(), **given)


def built(config: ArcherConfig, steps: int = 4) -> tuple[Archer, Any]:
    algorithm = config.build(Markov(), mesh_of(), steps)
    table = np.random.default_rng(0).normal(size=(TOKENS, TOKENS)).astype(np.float32)
    return algorithm, algorithm.init(jax.random.key(3), {"table": table})


@pytest.fixture
def even() -> Iterator[Runtime]:
    with runtime_of(Even(A, B, B, B)) as runtime:  # the policy says A in a quarter of all cases
        yield runtime


def test_v_is_judged_by_a_new_utterance_for_every_exchange_of_the_iteration(even: Runtime):
    """Where the critic stands still, its V loss is that of Qbar(s, a') over the drawn states, with A in a quarter of the cases."""
    algorithm, state = built(archer.archer(tables(), archer.actor(**SHAPE), critic_steps=3, actor_steps=0))
    state, metrics = algorithm.step(known_values(state), ONE, even)
    assert even.engines["policy"].prompts == 3 * 8  # type: ignore[attr-defined]
    assert metrics["replay/turns"] == 1.0 and len(metrics["critic"]) == 3 and metrics["device"] == []
    for found in metrics["critic"]:  # Q(A) - V = 2.25, Q(B) - V = -.75, in both copies
        assert float(found["v_loss"]) / 8 == pytest.approx(2 * (0.25 * 2.25**2 + 0.75 * 0.75**2), rel=1e-5)
    _, metrics = algorithm.step(state, BANDIT, even)
    assert metrics["replay/turns"] == 9.0


def known_values(state: Any) -> Any:
    """Twins that agree but for a constant, and V = E_pi Q where the policy says A in a quarter of all cases."""
    q = np.zeros((2, TOKENS, TOKENS), np.float32)
    q[:, 1, 3], q[:, 1, 4] = 2.0, -1.0
    q[1] += 1.0
    v = np.float32(0.25) * q[:, :, 3] + np.float32(0.75) * q[:, :, 4]
    both = {"encoder": {}, "q": q, "v": v}
    values = dataclasses.replace(state.extra.values, params=jax.tree.map(jax.numpy.array, {"critic": both, "target": both}))
    return dataclasses.replace(state, extra=dataclasses.replace(state.extra, values=values))


ONE = [Group("", (make_trajectory(make_turn([make_call([9, 1], A)], 1.0, terminated=True)),))]


def one_step(config: ArcherConfig, runtime: Runtime, data: list[Group] = ONE) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """(the policy's table, by how much a step moved it, the step's metrics)"""
    algorithm, state = built(config)
    state = known_values(state)
    before = np.asarray(state.params["table"], np.float64)
    state, metrics = algorithm.step(state, data, runtime)
    return before, np.asarray(state.params["table"], np.float64) - before, metrics


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum()


def test_the_policys_gradient_is_the_analytic_one_with_the_end_of_the_utterance(even: Runtime):
    """A(A) = 2 + .25 = 2.25 and A(B) = -.75 at frequencies 1/4 and 3/4: the sum over utterances of pi A grad log pi."""
    config = archer.archer(tables(), archer.actor(**SHAPE), critic_steps=1, actor_steps=1, batch=8, warmup=0)
    table, moved, metrics = one_step(config, even)
    expected = np.zeros_like(table)
    for frequency, advantage, (letter, end) in ((0.25, 2.25, A), (0.75, -0.75, B)):
        for before, token in ((1, letter), (letter, end)):
            expected[before] += frequency * advantage * (np.eye(TOKENS)[token] - softmax(table[before]))
    assert moved == pytest.approx(expected, abs=1e-5) and np.abs(moved[3, END]) > 0.1
    # E A = 0: at the first token what is left is pi A itself, without the policy's own probabilities.
    assert moved[1, [3, 4]] == pytest.approx([0.25 * 2.25, -0.75 * 0.75], abs=1e-5) and moved[1].sum() == pytest.approx(0, abs=1e-5)
    assert metrics["advantage/mean"] == pytest.approx(0.0, abs=1e-6)
    summed = dataclasses.replace(config, actor=dataclasses.replace(config.actor, aggregation=archer.StepSum(1 / 4)))
    assert one_step(summed, even)[1] == pytest.approx(4 * expected, abs=1e-4)


def test_utterances_of_mixed_lengths_are_scored_as_alone():
    with runtime_of(Even(A, OTHER, [3], B)) as runtime:
        config = archer.archer(tables(), archer.actor(**SHAPE), critic_steps=1, actor_steps=1, batch=4, warmup=0)
        table, _, metrics = one_step(config, runtime)
    losses = [-w * logp_of(table, [9, 1, *a], 2) for a, w in ((A, 2.25), (OTHER, -0.75), ([3], 2.25), (B, -0.75))]
    assert float(metrics["device"][0]["loss"]) == pytest.approx(np.mean(losses), rel=1e-5)


def test_offline_weights_are_exponential_and_imitation_stands_beside(even: Runtime):
    data = [Group("", (make_trajectory(make_turn([make_call([9, 1], a)], 1.0, terminated=True)),)) for a in (A,)]
    config = archer.archer_offline(tables(goal=archer.OnData()), archer.actor(**SHAPE), 0.5, batch=4)
    table, moved, _ = one_step(config, even, data)
    gradient = np.zeros_like(table)
    for before, token in ((1, 3), (3, END)):
        gradient[before] += np.eye(TOKENS)[token] - softmax(table[before])
    assert moved == pytest.approx(np.exp(0.5 * 2.25) * gradient, abs=1e-5)
    assert Exponential(2.0, most=5.0)(np.array([0.0, 9.0, -1.0])).tolist() == [1.0, 5.0, pytest.approx(np.exp(-2.0))]
    assert centred(np.array([1.0, 2.0, 6.0])).tolist() == [-2.0, -1.0, 3.0] and centred(np.zeros(0)).shape == (0,)
    engine = even.engines["policy"]
    assert engine.prompts == 0  # type: ignore[attr-defined] # nothing is sampled offline
    beside = archer.actor(auxiliaries=(Imitation(0.3),), **SHAPE)
    config = archer.reinforce_offline(tables(goal=archer.OnData()), beside, batch=4, imitated=4)
    _, moved, _ = one_step(config, even, data)
    own = np.zeros_like(table)
    for frequency, advantage, utterance in ((0.25, 2.25, A), (0.75, -0.75, B)):
        for before, token in ((1, utterance[0]), (utterance[0], END)):
            own[before] += frequency * advantage * (np.eye(TOKENS)[token] - softmax(table[before]))
    assert moved == pytest.approx(own + 0.3 * gradient / 2, abs=1e-5)  # a mean over two tokens


def test_a_token_baseline_takes_what_it_expects_off_the_weights(even: Runtime):
    baseline = archer.baseline_actor(HeadConfig(layers=0, bias=0.5), **SHAPE)
    assert isinstance(baseline.critic, CriticConfig) and baseline.critic.clip == float("inf")
    table, moved, metrics = one_step(archer.archer(tables(), baseline, critic_steps=1, actor_steps=1, batch=4, warmup=0), even)
    expected = np.zeros_like(table)
    for frequency, advantage, utterance in ((0.25, 2.25, A), (0.75, -0.75, B)):
        for before, token in ((1, utterance[0]), (utterance[0], END)):
            expected[before] += frequency * (advantage - 0.5) * (np.eye(TOKENS)[token] - softmax(table[before]))
    assert moved == pytest.approx(expected, abs=1e-5)
    squares = [0.5 * (advantage - 0.5) ** 2 for advantage in (2.25, -0.75, -0.75, -0.75)]
    assert float(metrics["device"][0]["baseline/value_loss"]) / 8 == pytest.approx(np.mean(squares), rel=1e-5)


def test_while_it_warms_up_the_policy_stays_and_nothing_to_replay_is_a_skip(even: Runtime):
    config = archer.archer(tables(), archer.actor(**SHAPE), critic_steps=1, actor_steps=1, batch=4, warmup=1)
    algorithm, state = built(config)
    state, metrics = algorithm.step(known_values(state), [Group("", ())], even)
    assert metrics["skipped"] == 1.0
    algorithm, state = built(config)
    before = np.asarray(state.params["table"])
    state, _ = algorithm.step(known_values(state), ONE, even)
    assert np.array_equal(before, state.params["table"])
    state, metrics = algorithm.step(state, [], even)
    assert not np.array_equal(before, state.params["table"]) and metrics["skipped"] == 0.0
    assert even.engines["policy"].published == 1  # type: ignore[attr-defined] # the engine gets what the policy became


def test_a_run_that_goes_on_draws_and_learns_the_same(even: Runtime):
    config = archer.archer(tables(optimizer=Descent(0.1)), archer.actor(**SHAPE), critic_steps=2, actor_steps=2, batch=4, warmup=0)
    algorithm, state = built(config)
    state, _ = algorithm.step(state, BANDIT, even)
    host, kept = json.loads(json.dumps(algorithm.host_state())), jax.tree.map(jax.numpy.copy, state)
    whole, _ = algorithm.step(state, ONE, even)
    again, _ = built(config)
    again.load_host_state(host)
    resumed, _ = again.step(kept, ONE, even)
    assert same_leaves(whole.params, resumed.params) and same_leaves(whole.extra.values.params, resumed.extra.values.params)


def test_where_it_chooses_it_says_what_the_target_thinks_most_of():
    with runtime_of(engine := Even(A, B)) as runtime:
        algorithm, state = built(archer.chai(tables(), choices=4, critic_steps=1, batch=4))
        state = known_values(state)  # in state 1 A is worth the most, elsewhere all is alike
        algorithm.act(state, runtime)
        ranked = runtime.engines["policy"]
        assert isinstance(ranked, RankedEngine) and ranked.places == 2
        asked = [ranked.submit(np.array([9, 1]), Sampling(), (7, i)) for i in range(3)]
        said = [future.result(timeout=60) for future in asked]
        assert engine.prompts == 12 and all(call.action.tolist() in (A, B) for call in said)
        mixed = [make_call([9, s], a) for s in (1, 2) for a in (B, OTHER, A, B)]
        assert algorithm._chooser is not None and algorithm._chooser([mixed[:4], mixed[4:]]) == [2, 0]
        table = np.asarray(state.params["table"])
        state, _ = algorithm.step(state, ONE, runtime)
        assert np.array_equal(table, state.params["table"])
        assert engine.prompts == 12 + 8  # V is judged by what the policy says by itself


def test_a_choice_that_cannot_be_made_is_told_to_who_waits():
    def choose(choices: Any) -> Any:
        raise ValueError("no")

    engine = RankedEngine(Even(A), 2, choose, at_once=4)
    given_up = engine.submit(np.array([1]), Sampling(), (0, 0))
    with pytest.raises(ValueError, match="no"):
        given_up.result(timeout=60)
    engine.close()
    with pytest.raises(UserError, match="at once"):
        RankedEngine(Even(A), 8, choose, at_once=4)


@functools.cache
def learnt_on(**sizes: int) -> Any:
    """Policy and twins after two iterations, with a policy's trunk as the critic's encoder."""
    adam, policy = AdamWConfig(0.01, eps=1e-3), Averaging()
    critic = UtteranceCriticConfig(head=HeadConfig(layers=1, hidden=8, scale=1.0))
    values = archer.values(critic, PolicyTrunk(), batch=12, microbatch=8, states=(16,), utterances=(4,), optimizer=adam)
    low = archer.actor(optimizer=adam, bin_length=16, microbatch=8)
    config = archer.archer(values, low, critic_steps=2, actor_steps=1, batch=12, warmup=0)
    with runtime_of(Even([3, END], [4, 5, END], [6], [7, 8, 9, END])) as runtime:
        algorithm = config.build(policy, mesh_of(**sizes), 4)
        state = algorithm.init(jax.random.key(7), policy.init(jax.random.key(1)))
        for step in range(2):
            groups = grown_groups([[[(2, 2, False, 1.0), (1, 3, False, 0.5)], [(3, 1, False, -1.0)]]] * 3, seed=step)
            with counted_compilations() as compiled:
                state, _ = algorithm.step(state, groups, runtime)
        assert compiled == []
    return jax.tree.map(np.asarray, (state.params, state.extra.values.params))


@pytest.mark.parametrize("mesh", [{"data": 8}, {"fsdp": 4, "tensor": 2}])
def test_eight_devices_learn_what_one_does_and_compile_nothing_later(mesh: dict[str, int]):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), learnt_on(), learnt_on(**mesh))


def test_what_cannot_be_is_refused_and_configs_are_remembered():
    for wrong in ({"critic_steps": 0}, {"choices": 0}, {"warmup": -1}, {"imitated": 4}):
        with pytest.raises(UserError, match=r"ArCHer needs|Imitation"):
            built(archer.archer(tables(), archer.actor(**SHAPE), **wrong))
    for variant in ("archer", "shared", "clipped", "baseline", "monte_carlo", "chai", "iql_awr", "iql_reinforce_bc", "ppo", "filtered"):
        config = get_config(f"subset-{variant}")
        assert to_json(from_json(json.loads(json.dumps(to_json(config))))) == to_json(config)
