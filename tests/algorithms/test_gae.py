"""Generalised advantage estimation against plain loops, tables and its own limits."""

import dataclasses
import statistics

import numpy as np
import pytest
from hand_made import batch_shapes, evidence_of, grown_groups, make_call, make_trajectory, make_turn, whole
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.algorithms.advantages import KLInReward
from agentrl_jax.algorithms.gae import GAE, BiLevelGAE, LengthAdaptive, TurnGAE, last_value, no_bootstrap
from agentrl_jax.algorithms.returns import reward_to_go, token_rewards
from agentrl_jax.errors import UserError
from agentrl_jax.rows import Evidence
from agentrl_jax.trajectories import Group

MANY = settings(max_examples=60, deadline=None)
coefficients = st.sampled_from([0.0, 0.5, 0.95, 1.0])


def some_cut(groups: list[Group], seed: int) -> list[Group]:
    """Every other trajectory, by chance, was cut by the horizon."""
    rng = np.random.default_rng(seed)
    return [
        dataclasses.replace(
            g, trajectories=tuple(t.replace(stop_reason="turns" if rng.random() < 0.5 else "terminated") for t in g.trajectories)
        )
        for g in groups
    ]


def split_by_trajectory(evidence: Evidence, values: np.ndarray) -> list[list[float]]:
    return [values[evidence.token_trajectory == j].tolist() for j in range(len(evidence.trajectories))]


def looped(rewards: list[float], values: list[float], end: float, gamma: float, lam: float) -> list[float]:
    """The definition: sums of discounted temporal differences, each written out."""
    after = [*values[1:], end]
    delta = [r + gamma * n - v for r, n, v in zip(rewards, after, values)]
    return [sum((gamma * lam) ** (k - t) * delta[k] for k in range(t, len(delta))) for t in range(len(delta))]


def standard(values: list[float]) -> list[float]:
    if len(values) < 2:
        return [0.0] * len(values)
    return [(x - statistics.fmean(values)) / (statistics.variance(values) + 1e-8) ** 0.5 for x in values]


def rewards_of(trajectory: object) -> list[float]:
    """Every call of these records wrote something: a turn's reward is on its last token."""
    return [r for turn in trajectory.turns for r in [*([0.0] * (len(turn.calls[0].action) - 1)), turn.reward]]  # type: ignore[attr-defined]


@given(shapes=batch_shapes, gamma=coefficients, lam=coefficients, critic=st.none() | coefficients, seed=st.integers(0, 99))
@MANY
def test_token_gae_is_the_sum_of_differences(shapes: list, gamma: float, lam: float, critic: float | None, seed: int):
    evidence = evidence_of(some_cut(grown_groups(shapes), seed), "token_value", seed=seed)
    assert evidence.token_value is not None
    found = GAE(gamma, lam, critic, whiten=False, bootstrap=last_value)(evidence)
    advantage, target = [], []
    for trajectory, values in zip(evidence.trajectories, split_by_trajectory(evidence, evidence.token_value)):
        end = values[-1] if trajectory.truncated else 0.0
        advantage += looped(rewards_of(trajectory), values, end, gamma, lam)
        trace = looped(rewards_of(trajectory), values, end, gamma, lam if critic is None else critic)
        target += [a + v for a, v in zip(trace, values)]
    assert found.advantage == pytest.approx(advantage, abs=1e-9)
    assert found.target == pytest.approx(target, abs=1e-9)
    assert GAE(gamma, lam, critic, bootstrap=last_value)(evidence).advantage == pytest.approx(standard(advantage), abs=1e-6)


@given(shapes=batch_shapes, gamma=coefficients, lam=coefficients, seed=st.integers(0, 99))
@MANY
def test_turn_gae_is_that_of_steps_of_one_token(shapes: list, gamma: float, lam: float, seed: int):
    evidence = evidence_of(some_cut(grown_groups(shapes), seed), "token_value", seed=seed)
    assert evidence.token_value is not None
    found = TurnGAE(gamma, lam)(evidence)
    advantage, target = [], []
    for trajectory, values in zip(evidence.trajectories, split_by_trajectory(evidence, evidence.token_value)):
        lengths = [len(turn.calls[0].action) for turn in trajectory.turns]
        starts = [values[sum(lengths[:i])] for i in range(len(lengths))]
        # The last turn of these records has terminated: also a cut trajectory expects nothing after it.
        steps = looped([turn.reward for turn in trajectory.turns], starts, 0.0, gamma, lam)
        advantage += [a for a, n in zip(steps, lengths) for _ in range(n)]
        target += [a + v for a, v, n in zip(steps, starts, lengths) for _ in range(n)]
    assert found.advantage == pytest.approx(advantage, abs=1e-9)
    assert found.target == pytest.approx(target, abs=1e-9)


@given(shapes=batch_shapes, gamma=coefficients, lam=coefficients, turn_gamma=coefficients, seed=st.integers(0, 99))
@MANY
def test_bi_level_gae_is_two_gaes(shapes: list, gamma: float, lam: float, turn_gamma: float, seed: int):
    evidence = evidence_of(some_cut(grown_groups(shapes), seed), "token_value", seed=seed)
    assert evidence.token_value is not None
    found = BiLevelGAE(gamma, lam, turn_gamma, whiten=False, bootstrap=last_value)(evidence)
    advantage: list[float] = []
    for trajectory, values in zip(evidence.trajectories, split_by_trajectory(evidence, evidence.token_value)):
        lengths = [len(turn.calls[0].action) for turn in trajectory.turns]
        ends = [sum(lengths[: i + 1]) - 1 for i in range(len(lengths))]
        end = values[-1] if trajectory.truncated else 0.0
        high = looped([turn.reward for turn in trajectory.turns], [values[e] for e in ends], end, turn_gamma, lam)
        for a, e, n in zip(high, ends, lengths):
            inside = values[e - n + 1 : e + 1]
            advantage += looped([*([0.0] * (n - 1)), a + values[e]], inside, 0.0, gamma, lam)
    assert found.advantage == pytest.approx(advantage, abs=1e-9)
    assert found.target == pytest.approx(np.asarray(advantage) + evidence.token_value, abs=1e-9)


@given(shapes=batch_shapes, gamma=coefficients, lam=coefficients, seed=st.integers(0, 99))
@MANY
def test_on_one_turn_both_levels_are_token_gae(shapes: list, gamma: float, lam: float, seed: int):
    groups = some_cut(grown_groups([[turns[:1] for turns in group] for group in shapes]), seed)
    evidence = evidence_of(groups, "token_value", seed=seed)
    # At a cut the two discount the value that follows by a turn's and by a token's gamma.
    both = BiLevelGAE(gamma, lam, turn_gamma=gamma, bootstrap=last_value)(evidence)
    plain = GAE(gamma, lam, bootstrap=last_value)(evidence)
    assert both.advantage == pytest.approx(plain.advantage, abs=1e-8)
    assert both.target == pytest.approx(plain.target, abs=1e-9)
    other = BiLevelGAE(gamma, lam, turn_gamma=0.3)(evidence)
    assert other.advantage == pytest.approx(GAE(gamma, lam)(evidence).advantage, abs=1e-8)


def test_a_turn_that_earns_nothing_is_a_turn_all_the_same():
    nought, something = ([make_turn([make_call([1], [2, 3])], r), make_turn([make_call([1], [4, 5])], 1.0)] for r in (0.0, 1e-9))
    found = [
        BiLevelGAE(turn_gamma=0.5, whiten=False)(
            evidence_of([Group("a", (make_trajectory(*turns),))], token_value=np.array([0.1, 0.2, 0.3, 0.4]))
        ).advantage
        for turns in (nought, something)
    ]
    # at the first turn's end: A = 0 + .5 V(e2) - V(e1) + .5 (1 - V(e2)) = .3
    assert found[0] == pytest.approx([0.4, 0.3, 0.7, 0.6], abs=1e-12) and found[0] == pytest.approx(found[1], abs=1e-8)


@given(shapes=batch_shapes, more=st.integers(1, 9))
@MANY
def test_without_discount_and_values_gae_is_the_reward_to_go(shapes: list, more: int):
    groups = grown_groups(shapes)
    tokens = len(evidence_of(groups).token_row)
    evidence = evidence_of(groups, token_value=np.zeros(tokens))
    to_go = reward_to_go(token_rewards(evidence), evidence.token_trajectory)
    assert GAE(whiten=False)(evidence).advantage == pytest.approx(to_go, abs=1e-12)
    by_hand = []
    for trajectory in whole(groups):
        left = trajectory.total_reward
        for turn in trajectory.turns:
            by_hand += [left] * len(turn.calls[0].action)
            left -= turn.reward
    assert to_go == pytest.approx(by_hand, abs=1e-9)
    longer = [[[(new + more, written, cut, reward) for new, written, cut, reward in turns] for turns in group] for group in shapes]
    again = evidence_of(grown_groups(longer), token_value=np.zeros(tokens))
    assert GAE(whiten=False)(again).advantage.tolist() == GAE(whiten=False)(evidence).advantage.tolist()


@pytest.mark.parametrize("estimator", [GAE(0.9, 0.8), TurnGAE(0.9, 0.8), BiLevelGAE(0.9, 0.8)])
@given(shapes=batch_shapes, more=st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_neither_observation_tokens_nor_rows_matter(estimator: GAE, shapes: list, more: int):
    other = [[[(new + more, written, False, reward) for new, written, _, reward in turns] for turns in group] for group in shapes]
    split = [[[(new, written, True, reward) for new, written, _, reward in turns] for turns in group] for group in shapes]
    first, second, third = (estimator(evidence_of(grown_groups(x), "token_value")) for x in (shapes, other, split))
    assert first.advantage.tolist() == second.advantage.tolist() == third.advantage.tolist()
    assert first.target.tolist() == second.target.tolist() == third.target.tolist()


@given(shapes=batch_shapes, lam=coefficients)
@MANY
def test_with_lambda_one_the_critics_target_does_not_depend_on_the_critic(shapes: list, lam: float):
    groups = grown_groups(shapes)
    first, second = (GAE(0.9, lam, critic_lam=1.0)(evidence_of(groups, "token_value", seed=seed)).target for seed in (1, 2))
    assert first == pytest.approx(second, abs=1e-9)


def test_lambda_grows_with_the_length():
    lengths = np.array([1, 10, 20, 40, 1000])
    assert LengthAdaptive(0.05)(lengths) == pytest.approx([0, 0, 0, 0.5, 0.98], abs=1e-12)
    assert LengthAdaptive(1.5)(lengths[:1]) == pytest.approx([1 / 3], abs=1e-12)


def test_the_actors_lambda_is_that_of_its_trajectory_and_leaves_the_target_alone():
    groups = grown_groups([[[(1, 4, False, 1.0)], [(1, 2, False, 1.0), (1, 1, False, 0.5)]]])
    evidence = evidence_of(groups, "token_value")
    adaptive = GAE(1.0, LengthAdaptive(0.5), critic_lam=1.0, whiten=False)(evidence)
    for j, lam in enumerate([0.5, 1 / 3]):
        fixed = GAE(1.0, lam, critic_lam=1.0, whiten=False)(evidence)
        mine = evidence.token_trajectory == j
        assert adaptive.advantage[mine] == pytest.approx(fixed.advantage[mine], abs=1e-12)
        assert adaptive.target.tolist() == fixed.target.tolist()


def test_a_cut_episode_expects_nothing_or_what_its_last_state_is_worth():
    turns = [make_turn([make_call([1], [2, 3])], 1.0)]
    ended, cut = (Group("a", (make_trajectory(*turns).replace(stop_reason=reason),)) for reason in ("terminated", "truncated"))
    values = np.array([0.25, 0.5])
    assert GAE(whiten=False)(evidence_of([ended], token_value=values)).advantage.tolist() == [0.75, 0.5]
    for by_default in (GAE(whiten=False), GAE(whiten=False, bootstrap=no_bootstrap)):
        assert by_default(evidence_of([cut], token_value=values)).advantage.tolist() == [0.75, 0.5]
    assert GAE(whiten=False, bootstrap=last_value)(evidence_of([cut], token_value=values)).advantage.tolist() == [1.25, 1.0]
    assert TurnGAE(1.0, 1.0, bootstrap=last_value)(evidence_of([cut], token_value=values)).advantage.tolist() == [1.25, 1.25]
    assert last_value(evidence_of([cut, ended], token_value=np.tile(values, 2))).tolist() == [0.5, 0.0]


def test_a_done_turn_ends_the_trace_within_a_trajectory():
    def recorded(done: bool) -> Evidence:
        turns = [make_turn([make_call([1], [2])], 1.0, terminated=done), make_turn([make_call([1], [3])], 5.0, terminated=True)]
        return evidence_of([Group("a", (make_trajectory(*turns),))], token_value=np.array([0.5, 0.25]))

    assert TurnGAE(1.0, 1.0)(recorded(True)).advantage.tolist() == [0.5, 4.75]
    assert TurnGAE(1.0, 1.0)(recorded(False)).advantage.tolist() == [5.5, 4.75]


def test_a_kl_in_the_reward_is_a_reward_of_each_token():
    groups = [Group("a", (make_trajectory(make_turn([make_call([1], [2, 3])], 1.0)),))]
    evidence = evidence_of(
        groups, token_value=np.zeros(2), token_logp=np.array([-1.0, -2.0]), token_ref_logp=np.array([-1.5, -1.0])
    )  # gaps .5 and -1
    assert GAE(whiten=False, penalty=KLInReward(0.1))(evidence).advantage == pytest.approx([1 - 0.05 + 0.1, 1 + 0.1], abs=1e-12)
    with pytest.raises(UserError, match="reference is not known"):
        GAE(penalty=KLInReward(0.1))(evidence_of(groups, "token_value", "token_logp"))


@pytest.mark.parametrize("estimator", [GAE(), TurnGAE(), BiLevelGAE()])
def test_gae_needs_a_critic_and_a_finite_one(estimator: GAE):
    groups = grown_groups([[[(1, 2, False, 1.0)]]])
    with pytest.raises(UserError, match="value under a critic is not known"):
        estimator(evidence_of(groups))
    with pytest.raises(ValueError, match="not finite"):
        estimator(evidence_of(groups, token_value=np.array([0.0, np.nan])))
    nothing = estimator(evidence_of([], "token_value"))
    assert nothing.advantage.shape == nothing.target.shape == (0,)
