"""Generalized advantage estimation against plain loops, tables and its limiting cases."""

import dataclasses
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fixtures import (
    batch_shapes,
    make_call,
    make_credit_inputs,
    make_trajectory,
    make_turn,
    random_groups,
    trajectories_with_turns,
)

from agentrl_jax.algorithms.advantages.gae import (
    GAE,
    BiLevelGAE,
    LengthAdaptiveLambda,
    TurnGAE,
    last_value,
    no_bootstrap,
)
from agentrl_jax.algorithms.advantages.group import KLPenaltyReward
from agentrl_jax.algorithms.advantages.returns import reward_to_go, token_rewards
from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import CreditInputs
from agentrl_jax.trajectories import Group

MANY = settings(max_examples=60, deadline=None)
coefficients = st.sampled_from([0.0, 0.5, 0.95, 1.0])


def some_cut(groups: list[Group], seed: int) -> list[Group]:
    """The groups with each trajectory truncated by the horizon with probability one half."""
    rng = np.random.default_rng(seed)
    return [
        dataclasses.replace(
            g,
            trajectories=tuple(
                t.replace(stop_reason="turns" if rng.random() < 0.5 else "terminated")
                for t in g.trajectories
            ),
        )
        for g in groups
    ]


def split_by_trajectory(inputs: CreditInputs, values: np.ndarray) -> list[list[float]]:
    return [values[inputs.token_trajectory == j].tolist() for j in range(len(inputs.trajectories))]


def looped(
    rewards: list[float], values: list[float], end: float, gamma: float, lam: float
) -> list[float]:
    """By definition: sums of discounted temporal differences."""
    after = [*values[1:], end]
    delta = [r + gamma * n - v for r, n, v in zip(rewards, after, values)]
    return [
        sum((gamma * lam) ** (k - t) * delta[k] for k in range(t, len(delta)))
        for t in range(len(delta))
    ]


def standard(values: list[float]) -> list[float]:
    if len(values) < 2:
        return [0.0] * len(values)
    return [
        (x - statistics.fmean(values)) / (statistics.variance(values) + 1e-8) ** 0.5 for x in values
    ]


def rewards_of(trajectory: object) -> list[float]:
    """The rewards by token: every call of these trajectories has tokens, so a turn's reward is on
    its last token.
    """
    return [
        r
        for turn in trajectory.turns  # type: ignore[attr-defined]
        for r in [*([0.0] * (len(turn.calls[0].action) - 1)), turn.reward]
    ]


@given(
    shapes=batch_shapes,
    gamma=coefficients,
    lam=coefficients,
    critic=st.none() | coefficients,
    seed=st.integers(0, 99),
)
@MANY
def test_token_gae_is_the_sum_of_differences(
    shapes: list, gamma: float, lam: float, critic: float | None, seed: int
):
    inputs = make_credit_inputs(some_cut(random_groups(shapes), seed), "token_value", seed=seed)
    assert inputs.token_value is not None
    result = GAE(gamma, lam, critic, whiten=False, bootstrap=last_value)(inputs)
    advantage, target = [], []
    for trajectory, values in zip(
        inputs.trajectories, split_by_trajectory(inputs, inputs.token_value)
    ):
        end = values[-1] if trajectory.truncated else 0.0
        advantage += looped(rewards_of(trajectory), values, end, gamma, lam)
        trace = looped(
            rewards_of(trajectory), values, end, gamma, lam if critic is None else critic
        )
        target += [a + v for a, v in zip(trace, values)]
    assert result.advantage == pytest.approx(advantage, abs=1e-9)
    assert result.value_target == pytest.approx(target, abs=1e-9)
    assert GAE(gamma, lam, critic, bootstrap=last_value)(inputs).advantage == pytest.approx(
        standard(advantage), abs=1e-6
    )


@given(shapes=batch_shapes, gamma=coefficients, lam=coefficients, seed=st.integers(0, 99))
@MANY
def test_turn_gae_is_gae_over_steps_of_one_token(shapes: list, gamma: float, lam: float, seed: int):
    inputs = make_credit_inputs(some_cut(random_groups(shapes), seed), "token_value", seed=seed)
    assert inputs.token_value is not None
    result = TurnGAE(gamma, lam)(inputs)
    advantage, target = [], []
    for trajectory, values in zip(
        inputs.trajectories, split_by_trajectory(inputs, inputs.token_value)
    ):
        lengths = [len(turn.calls[0].action) for turn in trajectory.turns]
        starts = [values[sum(lengths[:i])] for i in range(len(lengths))]
        # The last turn of these trajectories has terminated, so even a truncated one has no value
        # after it.
        steps = looped([turn.reward for turn in trajectory.turns], starts, 0.0, gamma, lam)
        advantage += [a for a, n in zip(steps, lengths) for _ in range(n)]
        target += [a + v for a, v, n in zip(steps, starts, lengths) for _ in range(n)]
    assert result.advantage == pytest.approx(advantage, abs=1e-9)
    assert result.value_target == pytest.approx(target, abs=1e-9)


@given(
    shapes=batch_shapes,
    gamma=coefficients,
    lam=coefficients,
    turn_gamma=coefficients,
    seed=st.integers(0, 99),
)
@MANY
def test_bi_level_gae_is_two_gaes(
    shapes: list, gamma: float, lam: float, turn_gamma: float, seed: int
):
    inputs = make_credit_inputs(some_cut(random_groups(shapes), seed), "token_value", seed=seed)
    assert inputs.token_value is not None
    result = BiLevelGAE(gamma, lam, turn_gamma, whiten=False, bootstrap=last_value)(inputs)
    advantage: list[float] = []
    for trajectory, values in zip(
        inputs.trajectories, split_by_trajectory(inputs, inputs.token_value)
    ):
        lengths = [len(turn.calls[0].action) for turn in trajectory.turns]
        ends = [sum(lengths[: i + 1]) - 1 for i in range(len(lengths))]
        end = values[-1] if trajectory.truncated else 0.0
        high = looped(
            [turn.reward for turn in trajectory.turns],
            [values[e] for e in ends],
            end,
            turn_gamma,
            lam,
        )
        for a, e, n in zip(high, ends, lengths):
            inside = values[e - n + 1 : e + 1]
            advantage += looped([*([0.0] * (n - 1)), a + values[e]], inside, 0.0, gamma, lam)
    assert result.advantage == pytest.approx(advantage, abs=1e-9)
    assert result.value_target == pytest.approx(
        np.asarray(advantage) + inputs.token_value, abs=1e-9
    )


@given(shapes=batch_shapes, gamma=coefficients, lam=coefficients, seed=st.integers(0, 99))
@MANY
def test_on_one_turn_both_levels_are_token_gae(shapes: list, gamma: float, lam: float, seed: int):
    groups = some_cut(random_groups([[turns[:1] for turns in group] for group in shapes]), seed)
    inputs = make_credit_inputs(groups, "token_value", seed=seed)
    # At a truncation the following value is discounted by the turn gamma and by the token gamma.
    both = BiLevelGAE(gamma, lam, turn_gamma=gamma, bootstrap=last_value)(inputs)
    plain = GAE(gamma, lam, bootstrap=last_value)(inputs)
    assert both.advantage == pytest.approx(plain.advantage, abs=1e-8)
    assert both.value_target == pytest.approx(plain.value_target, abs=1e-9)
    other = BiLevelGAE(gamma, lam, turn_gamma=0.3)(inputs)
    assert other.advantage == pytest.approx(GAE(gamma, lam)(inputs).advantage, abs=1e-8)


def test_a_turn_without_reward_is_still_a_turn():
    nought, something = (
        [make_turn([make_call([1], [2, 3])], r), make_turn([make_call([1], [4, 5])], 1.0)]
        for r in (0.0, 1e-9)
    )
    result = [
        BiLevelGAE(turn_gamma=0.5, whiten=False)(
            make_credit_inputs(
                [Group("a", (make_trajectory(*turns),))], token_value=np.array([0.1, 0.2, 0.3, 0.4])
            )
        ).advantage
        for turns in (nought, something)
    ]
    # at the first turn's end: A = 0 + .5 V(e2) - V(e1) + .5 (1 - V(e2)) = .3
    assert result[0] == pytest.approx([0.4, 0.3, 0.7, 0.6], abs=1e-12) and result[
        0
    ] == pytest.approx(result[1], abs=1e-8)


@given(shapes=batch_shapes, more=st.integers(1, 9))
@MANY
def test_without_discount_and_values_gae_is_the_reward_to_go(shapes: list, more: int):
    groups = random_groups(shapes)
    tokens = len(make_credit_inputs(groups).token_sequence)
    inputs = make_credit_inputs(groups, token_value=np.zeros(tokens))
    to_go = reward_to_go(token_rewards(inputs), inputs.token_trajectory)
    assert GAE(whiten=False)(inputs).advantage == pytest.approx(to_go, abs=1e-12)
    by_hand = []
    for trajectory in trajectories_with_turns(groups):
        left = trajectory.total_reward
        for turn in trajectory.turns:
            by_hand += [left] * len(turn.calls[0].action)
            left -= turn.reward
    assert to_go == pytest.approx(by_hand, abs=1e-9)
    longer = [
        [
            [(new + more, written, cut, reward) for new, written, cut, reward in turns]
            for turns in group
        ]
        for group in shapes
    ]
    again = make_credit_inputs(random_groups(longer), token_value=np.zeros(tokens))
    assert (
        GAE(whiten=False)(again).advantage.tolist() == GAE(whiten=False)(inputs).advantage.tolist()
    )


@pytest.mark.parametrize("estimator", [GAE(0.9, 0.8), TurnGAE(0.9, 0.8), BiLevelGAE(0.9, 0.8)])
@given(shapes=batch_shapes, more=st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_neither_observation_tokens_nor_training_sequences_change_gae(
    estimator: GAE, shapes: list, more: int
):
    other = [
        [
            [(new + more, written, False, reward) for new, written, _, reward in turns]
            for turns in group
        ]
        for group in shapes
    ]
    split = [
        [[(new, written, True, reward) for new, written, _, reward in turns] for turns in group]
        for group in shapes
    ]
    first, second, third = (
        estimator(make_credit_inputs(random_groups(x), "token_value"))
        for x in (shapes, other, split)
    )
    assert first.advantage.tolist() == second.advantage.tolist() == third.advantage.tolist()
    assert (
        first.value_target.tolist() == second.value_target.tolist() == third.value_target.tolist()
    )


@given(shapes=batch_shapes, lam=coefficients)
@MANY
def test_with_lambda_one_the_critics_target_does_not_depend_on_the_critic(shapes: list, lam: float):
    groups = random_groups(shapes)
    first, second = (
        GAE(0.9, lam, critic_lam=1.0)(
            make_credit_inputs(groups, "token_value", seed=seed)
        ).value_target
        for seed in (1, 2)
    )
    assert first == pytest.approx(second, abs=1e-9)


def test_lambda_grows_with_the_length():
    lengths = np.array([1, 10, 20, 40, 1000])
    assert LengthAdaptiveLambda(0.05)(lengths) == pytest.approx([0, 0, 0, 0.5, 0.98], abs=1e-12)
    assert LengthAdaptiveLambda()(lengths).tolist() == LengthAdaptiveLambda(0.05)(lengths).tolist()
    assert LengthAdaptiveLambda(1.5)(lengths[:1]) == pytest.approx([1 / 3], abs=1e-12)


def test_the_actors_lambda_depends_on_the_trajectory_and_leaves_the_target_unchanged():
    groups = random_groups([[[(1, 4, False, 1.0)], [(1, 2, False, 1.0), (1, 1, False, 0.5)]]])
    inputs = make_credit_inputs(groups, "token_value")
    adaptive = GAE(1.0, LengthAdaptiveLambda(0.5), critic_lam=1.0, whiten=False)(inputs)
    for j, lam in enumerate([0.5, 1 / 3]):
        fixed = GAE(1.0, lam, critic_lam=1.0, whiten=False)(inputs)
        is_own = inputs.token_trajectory == j
        assert adaptive.advantage[is_own] == pytest.approx(fixed.advantage[is_own], abs=1e-12)
        assert adaptive.value_target.tolist() == fixed.value_target.tolist()


def test_a_truncated_episode_bootstraps_from_zero_or_its_last_value():
    turns = [make_turn([make_call([1], [2, 3])], 1.0)]
    ended, cut = (
        Group("a", (make_trajectory(*turns).replace(stop_reason=reason),))
        for reason in ("terminated", "truncated")
    )
    values = np.array([0.25, 0.5])
    assert GAE(whiten=False)(
        make_credit_inputs([ended], token_value=values)
    ).advantage.tolist() == [
        0.75,
        0.5,
    ]
    for by_default in (GAE(whiten=False), GAE(whiten=False, bootstrap=no_bootstrap)):
        assert by_default(make_credit_inputs([cut], token_value=values)).advantage.tolist() == [
            0.75,
            0.5,
        ]
    assert GAE(whiten=False, bootstrap=last_value)(
        make_credit_inputs([cut], token_value=values)
    ).advantage.tolist() == [1.25, 1.0]
    assert TurnGAE(1.0, 1.0, bootstrap=last_value)(
        make_credit_inputs([cut], token_value=values)
    ).advantage.tolist() == [1.25, 1.25]
    assert last_value(
        make_credit_inputs([cut, ended], token_value=np.tile(values, 2))
    ).tolist() == [
        0.5,
        0.0,
    ]


def test_a_done_turn_ends_the_trace_within_a_trajectory():
    def recorded(done: bool) -> CreditInputs:
        turns = [
            make_turn([make_call([1], [2])], 1.0, terminated=done),
            make_turn([make_call([1], [3])], 5.0, terminated=True),
        ]
        return make_credit_inputs(
            [Group("a", (make_trajectory(*turns),))], token_value=np.array([0.5, 0.25])
        )

    assert TurnGAE(1.0, 1.0)(recorded(True)).advantage.tolist() == [0.5, 4.75]
    assert TurnGAE(1.0, 1.0)(recorded(False)).advantage.tolist() == [5.5, 4.75]


def test_a_kl_in_the_reward_is_a_reward_per_token():
    groups = [Group("a", (make_trajectory(make_turn([make_call([1], [2, 3])], 1.0)),))]
    inputs = make_credit_inputs(
        groups,
        token_value=np.zeros(2),
        token_logp=np.array([-1.0, -2.0]),
        token_ref_logp=np.array([-1.5, -1.0]),
    )  # log-ratios .5 and -1
    assert GAE(whiten=False, penalty=KLPenaltyReward(0.1))(inputs).advantage == pytest.approx(
        [1 - 0.05 + 0.1, 1 + 0.1], abs=1e-12
    )
    with pytest.raises(UserError, match="reference is not known"):
        GAE(penalty=KLPenaltyReward(0.1))(make_credit_inputs(groups, "token_value", "token_logp"))


@pytest.mark.parametrize("estimator", [GAE(), TurnGAE(), BiLevelGAE()])
def test_gae_needs_a_critic_with_finite_values(estimator: GAE):
    groups = random_groups([[[(1, 2, False, 1.0)]]])
    with pytest.raises(UserError, match="value under a critic is not known"):
        estimator(make_credit_inputs(groups))
    with pytest.raises(UserError, match="not finite"):
        estimator(make_credit_inputs(groups, token_value=np.array([0.0, np.nan])))
    nothing = estimator(make_credit_inputs([], "token_value"))
    assert nothing.advantage.shape == nothing.value_target.shape == (0,)
