"""Advantages of utterances: groups of one state, returns with a baseline from Q, measured beta, the
trust region, pretraining on demonstrations, exact resume.
"""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from support.branch_policies import BranchingMarkovPolicy, TabularJointCritic
from support.credit_tables import END_TOKEN, VOCAB_SIZE, SameStateEngine, SGDConfig, make_runtime
from support.fixtures import (
    device_mesh,
    make_call,
    make_trajectory,
    make_turn,
    record_compilations,
    trees_equal,
    with_sampler_logp,
)

from agentrl_jax.algorithms.advantages.returns import reward_to_go
from agentrl_jax.algorithms.archer.advantage_weights import divide_by_std
from agentrl_jax.algorithms.archer.algorithm import Archer, ArcherConfig
from agentrl_jax.algorithms.archer.joint_trainer import JointCriticTrainerConfig
from agentrl_jax.algorithms.archer.own_turns import correlation, state_share
from agentrl_jax.algorithms.archer.replay_buffer import RecentShare
from agentrl_jax.algorithms.archer.twin_trainer import UtteranceValues
from agentrl_jax.algorithms.archer.utterance_advantages import (
    AnchoredAdvantage,
    MeasuredBeta,
    SameStateGroups,
    ScheduledBeta,
)
from agentrl_jax.algorithms.experience.schedules import Linear
from agentrl_jax.algorithms.methods import hierarchical
from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import CreditInputs
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, Trajectory

A, B = [3, END_TOKEN], [4, END_TOKEN]
SHAPE: dict[str, Any] = {"optimizer": SGDConfig(1.0), "bin_length": 16, "microbatch": 4}
POLICY = BranchingMarkovPolicy()
TABLE = np.random.default_rng(0).normal(size=(VOCAB_SIZE, VOCAB_SIZE)).astype(np.float32)


def episode(first: list[int], second: list[int], reward: float, source: str = "sampled") -> Group:
    """In state 1 the first utterance leads to state 2 or 5; the first turn costs .5, the second has
    the reward.
    """
    opening = make_call([9, 1], first)
    following = make_call([*opening.ids.tolist(), 2 if first == A else 5], second)
    opening, following = (dataclasses.replace(call, source=source) for call in (opening, following))
    turns = make_turn([opening], -0.5), make_turn([following], reward, terminated=True)
    return Group("", (make_trajectory(*turns),))


def episode_turns() -> list[Group]:
    """Four episodes that the policy sampled, with its log-probs."""
    bandit = ((A, A, 1.0), (A, B, 0.0), (B, A, -1.0), (B, B, 2.0))
    groups = [episode(a, b, r) for a, b, r in bandit]
    return with_sampler_logp(POLICY, {"table": TABLE}, groups)


DEMONSTRATIONS = [episode(A, B, 3.0, source="demonstration") for _ in range(3)]


def critic(**settings: Any) -> JointCriticTrainerConfig:
    shape = {"row_length": 24, "utterance_lengths": (2,), "branch_tokens": 32, "microbatch": 2}
    return hierarchical.joint_critic(
        TabularJointCritic(), **{**shape, "optimizer": SGDConfig(0.0), "batch": 8, **settings}
    )


def anchored(critic_settings: dict[str, Any] | None = None, **settings: Any) -> ArcherConfig:
    actor = hierarchical.anchored_actor(transforms=(), minibatches=1, **SHAPE)
    defaults = {"critic_steps": 2, "pretrain_steps": 0, "actor": actor}
    actor = {**defaults, **settings}.pop("actor")
    rest = {name: x for name, x in {**defaults, **settings}.items() if name != "actor"}
    return hierarchical.anchored_archer(critic(**(critic_settings or {})), actor, **rest)


def build(config: ArcherConfig) -> tuple[Archer, Any]:
    algorithm = config.build(POLICY, device_mesh(), 4)
    return algorithm, algorithm.init(jax.random.key(3), {"table": TABLE})


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    """In every state three of four utterances are B."""
    with make_runtime(SameStateEngine(A, B, B, B)) as runtime:
        yield runtime


def critic_q(state: Any) -> np.ndarray:
    """min_k Q_k of the critic, [state, first token]."""
    return np.asarray(state.extra.critic.params["critic"]["q"], np.float64).min(axis=0)


def turns_of(groups: list[Group]) -> list[tuple[int, int]]:
    """(last token of the state, first token of the utterance) of each turn."""
    calls = [call for group in groups for t in group.trajectories for call in t.calls]
    return [(int(call.prompt[-1]), int(call.action[0])) for call in calls]


def by_hand(state: Any, groups: list[Group], beta: float, gamma: float) -> np.ndarray:
    """beta (G - m) + (1 - beta) (Q - m) of each turn; m over four utterances of `runtime`."""
    q = critic_q(state)
    m = np.array([(q[s, 3] + 3 * q[s, 4]) / 4 for s, _ in turns_of(groups)])
    taken = np.array([q[s, a] for s, a in turns_of(groups)])
    rewards = [turn.reward for group in groups for turn in group.trajectories[0].turns]
    owner = np.repeat(np.arange(len(groups)), 2)
    returns = reward_to_go(np.array(rewards), owner, gamma)
    return beta * (returns - m) + (1 - beta) * (taken - m)


def updated_table(algorithm: Any, state: Any, groups: list[Group], runtime: Runtime) -> np.ndarray:
    state, _ = algorithm.step(state, groups, runtime)
    return np.asarray(state.params["table"])


@pytest.mark.parametrize(
    ("beta", "gamma"), [(1.0, None), pytest.param(0.3, 0.5, marks=pytest.mark.slow)]
)
def test_the_actors_step_is_ppos_with_the_anchored_advantage_of_each_turn(
    runtime: Runtime, beta: float, gamma: float | None
):
    """With beta 1 it is PPO with the baseline m, token for token."""
    groups = episode_turns()
    algorithm, state = build(anchored(beta=beta, group_size=4, gamma=gamma))
    expected = by_hand(state, groups, beta, 0.95 if gamma is None else gamma)

    def advantage(inputs: CreditInputs) -> np.ndarray:
        return expected[inputs.token_turn]

    reference = dataclasses.replace(
        hierarchical.anchored_actor(transforms=(), minibatches=1, **SHAPE), advantage=advantage
    ).build(POLICY, device_mesh(), 4)
    reference_state = reference.init(jax.random.key(3), {"table": TABLE})
    want = updated_table(reference, reference_state, groups, runtime)
    got = updated_table(algorithm, state, groups, runtime)
    assert np.abs(want - TABLE).max() > 0.05 and got == pytest.approx(want, abs=1e-6)


def test_advantages_of_a_state_sum_to_zero_and_are_scaled_by_the_batch():
    rng = np.random.default_rng(0)
    values = UtteranceValues(rng.normal(size=(5, 3)).astype(np.float32), rng.normal(size=5))
    advantage = SameStateGroups(3)(values)
    assert np.abs(advantage.sum(axis=1)).max() < 1e-6
    assert advantage[1, 2] == pytest.approx(values.q[1, 2] - values.q[1].mean(), abs=1e-6)
    scaled = divide_by_std(advantage.ravel())
    assert scaled.std() == pytest.approx(1.0) and divide_by_std(np.zeros(3)).tolist() == [0] * 3
    assert divide_by_std(np.zeros(0)).shape == (0,)
    with pytest.raises(UserError, match="at least 2"):
        SameStateGroups(1)


@pytest.mark.slow
def test_an_actor_step_compares_utterances_of_the_same_replayed_state(runtime: Runtime):
    algorithm, state = build(
        hierarchical.archer(
            critic(),
            hierarchical.reinforce_actor(**SHAPE),
            advantage=SameStateGroups(4),
            critic_steps=1,
            actor_steps=1,
            batch=9,
            warmup=0,
        )
    )
    groups, q = [episode(A, A, 1.0)], critic_q(state)
    with_one_state = [dataclasses.replace(groups[0], trajectories=(first_turn(groups[0]),))]
    state, metrics = algorithm.step(state, with_one_state, runtime)
    # two states of four utterances each, of which one is A; the state is always 1
    m = (q[1, 3] + 3 * q[1, 4]) / 4
    probabilities = np.exp(TABLE) / np.exp(TABLE).sum(axis=1, keepdims=True)
    expected = np.zeros_like(TABLE, np.float64)
    for share, first in ((0.25, 3), (0.75, 4)):
        for before, token in ((1, first), (first, END_TOKEN)):
            gradient = np.eye(VOCAB_SIZE)[token] - probabilities[before]
            expected[before] += share * (q[1, first] - m) * gradient
    assert np.asarray(state.params["table"]) - TABLE == pytest.approx(expected, abs=1e-5)
    assert metrics["advantage/mean"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["advantage/state_share"] == 0.0 and metrics["kl_from_start"] > 0.0


def first_turn(group: Group) -> Trajectory:
    """The first turn of an episode as all of it."""
    turn = dataclasses.replace(group.trajectories[0].turns[0], terminated=True)
    return make_trajectory(turn)


def test_the_share_between_states_is_that_of_a_variance_decomposition():
    rng = np.random.default_rng(1)
    between, within = rng.normal(size=(20_000, 1)), rng.normal(size=(20_000, 4))
    assert state_share(2 * between + within) == pytest.approx(0.8, abs=0.02)
    assert state_share(within) == pytest.approx(0.0, abs=0.02)
    assert state_share(np.ones((3, 2))) == 0.0 == state_share(np.zeros((0, 0)))


def test_beta_follows_the_critics_correlation():
    rule = MeasuredBeta(floor=0.2, possible=0.5, decay=0.5)
    assert rule(0, -0.4) == 1.0  # no better than chance
    assert rule(1, 0.8) == pytest.approx(1 - 0.8 * 0.2 / 0.5)
    assert rule(2, 1.8) == pytest.approx(0.2)  # the average is 1.0
    again = MeasuredBeta(floor=0.2, possible=0.5, decay=0.5)
    again.load(json.loads(json.dumps(rule.state())))
    assert again(3, 0.0) == rule(3, 0.0) == pytest.approx(0.2)
    assert ScheduledBeta(Linear(0.0, 1.0, 4))(2, 0.9) == 0.5
    assert AnchoredAdvantage(0.3).beta_at(7, 0.9) == 0.3
    assert correlation(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0])) == pytest.approx(1.0)
    assert correlation(np.ones(3), np.arange(3.0)) == 0.0 == correlation(np.zeros(0), np.zeros(0))
    for wrong in ({"floor": 2.0}, {"possible": 0.0}, {"decay": 1.0}):
        with pytest.raises(UserError, match="measured beta"):
            MeasuredBeta(**wrong)
    with pytest.raises(UserError, match="beta in"):
        AnchoredAdvantage(1.5)


def test_the_critic_is_measured_on_turns_before_it_is_trained_on_them(runtime: Runtime):
    config = anchored({"optimizer": SGDConfig(0.3)}, beta=MeasuredBeta(0.1, 0.5, 0.0), group_size=4)
    algorithm, state = build(config)
    groups = episode_turns()
    gamma = 0.95
    q = critic_q(state)
    returns = by_hand(state, groups, 1.0, gamma)
    taken = by_hand(state, groups, 0.0, gamma)
    measured = correlation(taken, returns)
    state, metrics = algorithm.step(state, groups, runtime)
    assert metrics["critic/correlation"] == pytest.approx(measured, abs=1e-5)
    assert metrics["advantage/beta"] == pytest.approx(
        1 - 0.9 * min(max(measured / 0.5, 0.0), 1.0), abs=1e-5
    )
    assert not np.allclose(q, critic_q(state))
    # of eight turns, the two of (A, A) and (B, B) repeat an utterance
    assert metrics["utterances/repeated"] == 2 / 8
    assert metrics["replay/reads_per_turn"] == 2.0 and metrics["kl_from_start"] > 0.0


@pytest.mark.slow
def test_the_critic_is_pretrained_on_demonstrations_before_turns_are_played(runtime: Runtime):
    config = anchored(
        {"optimizer": SGDConfig(0.3)}, pretrain_steps=30, critic_steps=1, group_size=2
    )
    algorithm, state = build(config)
    state, metrics = algorithm.step(state, [*episode_turns(), *DEMONSTRATIONS], runtime)
    assert len(metrics["pretraining"]) == 30
    assert float(metrics["pretraining"][-1]["q_loss"]) < float(metrics["pretraining"][0]["q_loss"])
    assert metrics["replay/turns"] == 14.0
    # one step of 8 turns from each half of the replay
    assert metrics["replay/reads_per_turn"] == pytest.approx(1.0)
    _, metrics = algorithm.step(state, episode_turns(), runtime)
    assert "pretraining" not in metrics and metrics["replay/turns"] == 22.0
    algorithm, state = build(config)
    with pytest.raises(UserError, match="MixedSource"):
        algorithm.step(state, episode_turns(), runtime)


@pytest.mark.slow
def test_a_resumed_run_learns_the_same(runtime: Runtime):
    config = anchored(
        {"optimizer": SGDConfig(0.1)},
        beta=MeasuredBeta(),
        group_size=4,
        pretrain_steps=2,
        recent=RecentShare(0.5, 1),
        capacity=13,
    )
    algorithm, state = build(config)
    state, _ = algorithm.step(state, [*episode_turns(), *DEMONSTRATIONS], runtime)
    host = json.loads(json.dumps(algorithm.host_state()))
    saved = jax.tree.map(jax.numpy.copy, state)
    uninterrupted, _ = algorithm.step(state, episode_turns()[1:], runtime)
    resumed_algorithm, _ = build(config)
    resumed_algorithm.load_host_state(host)
    with record_compilations() as compiled:
        resumed, metrics = resumed_algorithm.step(saved, episode_turns()[1:], runtime)
    assert len(compiled) < 20 and metrics["replay/turns"] == 13.0
    assert trees_equal(uninterrupted.params, resumed.params)
    assert trees_equal(uninterrupted.extra.critic.params, resumed.extra.critic.params)


@pytest.mark.slow
def test_the_trust_region_leaves_out_the_remaining_updates(runtime: Runtime):
    """Within a step of several epochs, and between actor steps."""
    changes = []
    for max_kl in (float("inf"), 0.02):
        actor = hierarchical.anchored_actor(
            transforms=(), **{**SHAPE, "minibatches": 2, "epochs": 4, "max_kl": max_kl}
        )
        algorithm, state = build(anchored(actor=actor, group_size=4))
        state, metrics = algorithm.step(state, episode_turns(), runtime)
        changes.append(metrics)
    free_metrics, metrics = changes
    assert "updates_left_out" not in free_metrics and len(free_metrics["device"]) == 8
    taken = len(metrics["device"])
    assert taken + metrics["updates_left_out"] == 8 and 1 <= taken < 8
    kl = [float(m["proximal_kl"]) / float(m["tokens"]) for m in metrics["device"]]
    assert kl[0] == pytest.approx(0.0, abs=1e-6) and max(kl) <= 0.02
    assert 0 < metrics["kl_from_start"] < free_metrics["kl_from_start"]
    replayed = hierarchical.archer(
        critic(),
        hierarchical.reinforce_actor(**SHAPE),
        critic_steps=1,
        actor_steps=5,
        batch=8,
        warmup=0,
        max_kl=1e-6,
    )
    algorithm, state = build(replayed)
    _, metrics = algorithm.step(state, episode_turns(), runtime)
    assert metrics["actor_steps"] == 1.0 and metrics["kl_from_start"] > 1e-6


def test_contradicting_settings_are_refused():
    settings: list[dict[str, Any]] = [
        {"actor_steps": 2},
        {"best_of_n": 2},
        {"train_on_replay": True},
    ]
    for wrong in settings:
        with pytest.raises(UserError, match="anchored ArCHer trains once"):
            build(anchored(**wrong))
    with pytest.raises(UserError, match="ArCHer needs"):
        build(anchored(advantage=SameStateGroups(8), batch=4))
    with pytest.raises(UserError, match="ArCHer needs"):
        build(anchored(max_kl=0.0))
    with pytest.raises(UserError, match="max_kl bounds"):
        build(anchored(actor=hierarchical.anchored_actor(max_kl=-1.0, **SHAPE)))
