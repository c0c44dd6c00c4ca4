"""Credit where turns have any number of calls and tokens, and trajectories none at all, against
plain loops.
"""

import statistics
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fixtures import make_credit_inputs, with_info
from support.ragged_groups import TokenTable, ragged_batches, ragged_groups, token_table

from agentrl_jax.algorithms.advantages import token_weights
from agentrl_jax.algorithms.advantages.gae import (
    GAE,
    BiLevelGAE,
    LengthAdaptiveLambda,
    TurnGAE,
    last_value,
    no_bootstrap,
)
from agentrl_jax.algorithms.advantages.group import GroupedBy, ReinforcePlusPlus
from agentrl_jax.algorithms.advantages.grouping import (
    batch_of_turn,
    center,
    factorize,
    group_mean,
    group_of_turn,
    turn_index,
    whiten_values,
)
from agentrl_jax.algorithms.advantages.returns import (
    discounted_reverse_cumsum,
    has_successor,
    last_token_of_turn,
    reward_to_go,
    token_rewards,
)
from agentrl_jax.algorithms.advantages.token_masks import (
    ByTurnIndex,
    OnlyAfterMarker,
    QuantileBand,
    StdBand,
    TopEntropyTurns,
    TurnNLLBand,
    turn_means,
)
from agentrl_jax.algorithms.advantages.turn import (
    IGPO,
    MARS,
    ColumnCentered,
    RewardToGo,
    ScaleByMax,
    TurnGroupedBy,
    episode_return,
    turn_reward,
)
from agentrl_jax.learner.sequences import CreditInputs

RAGGED = settings(max_examples=50, deadline=None)
coefficients = st.sampled_from([0.0, 0.5, 0.9, 1.0])
seeds = st.integers(0, 99)


def ragged_inputs(shapes: list, seed: int, *columns: str) -> tuple[CreditInputs, TokenTable]:
    groups = ragged_groups(shapes, seed)
    return make_credit_inputs(groups, *columns, seed=seed), token_table(groups)


def discounted_sums(values: list[float], discounts: list[float]) -> list[float]:
    """y_t = x_t + discount_t y_{t+1} of one list, from its end."""
    sums, following = [0.0] * len(values), 0.0
    for t in reversed(range(len(values))):
        following = sums[t] = values[t] + discounts[t] * following
    return sums


def gae(
    rewards: list[float], values: list[float], nexts: list[float], gamma: float, traces: list[float]
) -> list[float]:
    deltas = [r + gamma * n - v for r, n, v in zip(rewards, nexts, values)]
    return discounted_sums(deltas, traces)


def centered(
    values: list[float],
    keys: list,
    std: bool = False,
    eps: float = 1e-6,
    leave_one_out: bool = False,
    keep: bool = False,
) -> list[float]:
    result = []
    for i, (value, key) in enumerate(zip(values, keys)):
        others = [v for j, (v, k) in enumerate(zip(values, keys)) if k == key and j != i]
        same = [*others, value]
        if others:
            x = value - statistics.fmean(others if leave_one_out else same)
            result.append(x / (statistics.stdev(same) + eps) if std else x)
        else:
            result.append((value / (1.0 + eps) if std else value) if keep else 0.0)
    return result


def whitened(values: list[float]) -> list[float]:
    if len(values) < 2:
        return [0.0] * len(values)
    mean, variance = statistics.fmean(values), statistics.variance(values)
    return [(x - mean) / (variance + 1e-8) ** 0.5 for x in values]


@given(shapes=ragged_batches, seed=seeds)
@RAGGED
def test_tokens_turns_and_trajectories_are_indexed_as_they_come(shapes: list, seed: int):
    inputs, table = ragged_inputs(shapes, seed)
    turn_of = [r for r, tokens in enumerate(table.tokens_of) for _ in tokens]
    assert inputs.token_turn.tolist() == turn_of
    owners = [j for j, turns in enumerate(table.turns_of) for _ in turns]
    assert inputs.turn_trajectory.tolist() == owners
    assert inputs.trajectory_group.tolist() == table.group_of
    assert inputs.turn_reward.tolist() == [turn.reward for turn in table.turns]
    assert inputs.turn_terminated.tolist() == [turn.terminated for turn in table.turns]
    assert inputs.trajectory_return == pytest.approx(
        [t.total_reward for t in table.trajectories], abs=1e-12
    )
    assert inputs.token_sampler_logp.tolist() == [call.sampler_logp[k] for call, k in table.places]
    assert inputs.token_position.tolist() == [len(call.prompt) + k for call, k in table.places]
    assert turn_index(inputs).tolist() == [i for turns in table.turns_of for i in range(len(turns))]
    assert turn_reward(inputs) is inputs.turn_reward
    assert episode_return(inputs) == pytest.approx(
        [table.trajectories[j].total_reward for j in owners], abs=1e-12
    )
    assert group_of_turn(inputs).tolist() == [table.group_of[j] for j in owners]
    assert batch_of_turn(inputs).tolist() == [0] * len(owners)


@given(shapes=ragged_batches, seed=seeds)
@RAGGED
def test_a_turns_reward_is_on_its_last_token_or_the_nearest_one(shapes: list, seed: int):
    inputs, table = ragged_inputs(shapes, seed)
    tokens = [table.reward_token(r) for r in range(len(table.turns))]
    assert last_token_of_turn(inputs).tolist() == [-1 if n is None else n for n in tokens]
    assert token_rewards(inputs) == pytest.approx(table.rewards(), abs=1e-12)


@given(shapes=ragged_batches, gamma=coefficients, lam=coefficients, cut=st.booleans(), seed=seeds)
@RAGGED
def test_token_gae(shapes: list, gamma: float, lam: float, cut: bool, seed: int):
    inputs, table = ragged_inputs(shapes, seed, "token_value")
    assert inputs.token_value is not None
    bootstrap = last_value if cut else no_bootstrap
    rewards, advantage, trace = table.rewards(), [], []
    for j, trajectory in enumerate(table.trajectories):
        tokens = table.trajectory_tokens(j)
        values = [float(inputs.token_value[n]) for n in tokens]
        end = values[-1] if cut and values and trajectory.truncated else 0.0
        assert bootstrap(inputs)[j] == end
        reward, nexts = [rewards[n] for n in tokens], [*values[1:], end]
        advantage += gae(reward, values, nexts, gamma, [gamma * lam] * len(tokens))
        trace += gae(reward, values, nexts, gamma, [gamma * 0.25] * len(tokens))
    result = GAE(gamma, lam, 0.25, whiten=False, bootstrap=bootstrap)(inputs)
    assert result.advantage == pytest.approx(advantage, abs=1e-9)
    assert result.value_target == pytest.approx(np.add(trace, inputs.token_value), abs=1e-9)
    assert GAE(gamma, lam, bootstrap=bootstrap)(inputs).advantage == pytest.approx(
        whitened(advantage), abs=1e-6
    )


@given(shapes=ragged_batches, gamma=coefficients, lam=coefficients, cut=st.booleans(), seed=seeds)
@RAGGED
def test_turn_gae(shapes: list, gamma: float, lam: float, cut: bool, seed: int):
    inputs, table = ragged_inputs(shapes, seed, "token_value")
    assert inputs.token_value is not None
    bootstrap = last_value if cut else no_bootstrap
    advantage, target = [], []
    for j, end in enumerate(bootstrap(inputs)):
        turns = [r for r in table.turns_of[j] if table.tokens_of[r]]  # those with tokens
        rewards, is_done = dict.fromkeys(turns, 0.0), dict.fromkeys(turns, False)
        for r in table.turns_of[j]:
            token = table.reward_token(r)
            if token is not None:
                (step,) = (q for q in turns if token in table.tokens_of[q])
                rewards[step] += table.turns[r].reward
                is_done[step] |= table.turns[r].terminated
        values = [float(inputs.token_value[table.tokens_of[r][0]]) for r in turns]
        done = [is_done[r] for r in turns]
        nexts = [0.0 if d else n for d, n in zip(done, [*values[1:], end])]
        traces = [0.0 if d else gamma * lam for d in done]
        steps = gae([rewards[r] for r in turns], values, nexts, gamma, traces)
        for r, a, v in zip(turns, steps, values):
            advantage += [a] * len(table.tokens_of[r])
            target += [a + v] * len(table.tokens_of[r])
    result = TurnGAE(gamma, lam, bootstrap=bootstrap)(inputs)
    assert result.advantage == pytest.approx(advantage, abs=1e-9)
    assert result.value_target == pytest.approx(target, abs=1e-9)
    assert TurnGAE(gamma, lam, whiten=True, bootstrap=bootstrap)(inputs).advantage == pytest.approx(
        whitened(advantage), abs=1e-6
    )


@given(shapes=ragged_batches, gamma=coefficients, lam=coefficients, cut=st.booleans(), seed=seeds)
@RAGGED
def test_bi_level_gae(shapes: list, gamma: float, lam: float, cut: bool, seed: int):
    inputs, table = ragged_inputs(shapes, seed, "token_value")
    assert inputs.token_value is not None
    bootstrap, turn_gamma = last_value if cut else no_bootstrap, 0.7
    token_reward, advantage = table.rewards(), []
    for j, end in enumerate(bootstrap(inputs)):
        turns = [table.tokens_of[r] for r in table.turns_of[j] if table.tokens_of[r]]
        ends = [float(inputs.token_value[tokens[-1]]) for tokens in turns]
        nexts = [*ends[1:], float(end)]
        rewards = [token_reward[tokens[-1]] for tokens in turns]
        high = gae(rewards, ends, nexts, turn_gamma, [turn_gamma * lam] * len(turns))
        for tokens, turn_advantage in zip(turns, high):
            values = [float(inputs.token_value[n]) for n in tokens]
            # A reward before the turn's last token is one of turns without tokens before it.
            deltas = [
                token_reward[n] + gamma * values[i + 1] - values[i]
                for i, n in enumerate(tokens[:-1])
            ]
            advantage += discounted_sums([*deltas, turn_advantage], [gamma * lam] * len(tokens))
    result = BiLevelGAE(gamma, lam, turn_gamma, whiten=False, bootstrap=bootstrap)(inputs)
    assert result.advantage == pytest.approx(advantage, abs=1e-9)
    assert result.value_target == pytest.approx(np.add(advantage, inputs.token_value), abs=1e-9)
    assert BiLevelGAE(gamma, lam, turn_gamma, bootstrap=bootstrap)(
        inputs
    ).advantage == pytest.approx(whitened(advantage), abs=1e-6)


@given(shapes=ragged_batches, alpha=st.sampled_from([0.2, 0.5, 2.0]), seed=seeds)
@RAGGED
def test_lambda_is_that_of_the_trajectorys_own_length(shapes: list, alpha: float, seed: int):
    inputs, table = ragged_inputs(shapes, seed, "token_value")
    result = GAE(0.9, LengthAdaptiveLambda(alpha), whiten=False)(inputs).advantage
    for j in range(len(table.trajectories)):
        tokens = table.trajectory_tokens(j)
        lam = min(max(1.0 - 1.0 / (alpha * max(len(tokens), 1)), 0.0), 1.0)
        fixed = GAE(0.9, lam, whiten=False)(inputs).advantage
        assert result[tokens] == pytest.approx(fixed[tokens], abs=1e-9)


@given(shapes=ragged_batches, gamma=coefficients, seed=seeds)
@RAGGED
def test_returns_of_turns_and_of_tokens(shapes: list, gamma: float, seed: int):
    inputs, table = ragged_inputs(shapes, seed)
    to_go, scaled, stopped = [], [], []
    rng = np.random.default_rng(seed)
    stop = rng.random(len(table.turns)) < 0.4
    for turns in table.turns_of:
        rewards = [table.turns[r].reward for r in turns]
        turn_returns = discounted_sums(rewards, [gamma] * len(turns))
        to_go += turn_returns
        largest = max(map(abs, turn_returns))
        scaled += [x / largest if largest else 0.0 for x in turn_returns]
        stopped += discounted_sums(rewards, [0.0 if stop[r] else gamma for r in turns])
    assert RewardToGo(gamma)(inputs) == pytest.approx(to_go, abs=1e-9)
    assert RewardToGo(gamma, lambda _: stop)(inputs) == pytest.approx(stopped, abs=1e-9)
    assert ScaleByMax(gamma)(inputs) == pytest.approx(scaled, abs=1e-9)
    assert TurnGroupedBy(RewardToGo(gamma), None)(inputs) == pytest.approx(
        [to_go[r] for r in inputs.token_turn], abs=1e-9
    )
    rewards, tokens_to_go = table.rewards(), []
    for j in range(len(table.trajectories)):
        tokens = table.trajectory_tokens(j)
        tokens_to_go += discounted_sums([rewards[n] for n in tokens], [gamma] * len(tokens))
    assert ReinforcePlusPlus(gamma)(inputs) == pytest.approx(whitened(tokens_to_go), abs=1e-6)
    penalty = np.arange(len(rewards)) % 3 - 1.0
    shaped = np.add(rewards, penalty)
    assert ReinforcePlusPlus(gamma, lambda _: penalty)(inputs) == pytest.approx(
        whiten_values(reward_to_go(shaped, inputs.token_trajectory, gamma)), abs=1e-9
    )


@given(shapes=ragged_batches, gamma=coefficients, joint=st.booleans(), std=st.booleans())
@RAGGED
def test_igpo(shapes: list, gamma: float, joint: bool, std: bool):
    inputs, table = ragged_inputs(shapes, 0)
    keys = [
        (table.group_of[j], joint or r == turns[-1])
        for j, turns in enumerate(table.turns_of)
        for r in turns
    ]
    z = centered([turn.reward for turn in table.turns], keys, std, eps=0.5)
    expected = [
        x
        for turns in table.turns_of
        for x in discounted_sums([z[r] for r in turns], [gamma] * len(turns))
    ]
    assert IGPO(gamma, joint, std, eps=0.5)(inputs) == pytest.approx(
        [expected[r] for r in inputs.token_turn], abs=1e-9
    )


@given(shapes=ragged_batches, flags=st.tuples(*[st.booleans()] * 3), gamma=coefficients)
@RAGGED
def test_mars(shapes: list, flags: tuple[bool, bool, bool], gamma: float):
    whiten_rewards, center_distinct, whiten = flags
    inputs, table = ragged_inputs(shapes, 0)
    player = [r % 2 for r in range(len(table.turns))]
    rewards = centered([turn.reward for turn in table.turns], player)
    rewards = whitened(rewards) if whiten_rewards else rewards
    to_go = [
        x
        for turns in table.turns_of
        for x in discounted_sums([rewards[r] for r in turns], [gamma] * len(turns))
    ]
    advantage = [to_go[r] for r in inputs.token_turn]
    if center_distinct:
        of_player: dict[int, dict[float, float]] = {0: {}, 1: {}}
        for r in inputs.token_turn:
            of_player[player[r]].setdefault(round(to_go[r], 9), to_go[r])
        means = {x: statistics.fmean(y.values()) for x, y in of_player.items() if y}
        advantage = [to_go[r] - means[player[r]] for r in inputs.token_turn]
    estimator = MARS(gamma, whiten_rewards, center_distinct, whiten, lambda _: np.array(player))
    assert estimator(inputs) == pytest.approx(
        whitened(advantage) if whiten else advantage, abs=1e-6
    )


@given(shapes=ragged_batches, through=st.booleans(), seed=seeds)
@RAGGED
def test_returns_are_compared_by_column(shapes: list, through: bool, seed: int):
    grown = [
        [
            ([([(*c[:3], False) for c in calls], r, done) for calls, r, done in turns], cut)
            for turns, cut in group
        ]
        for group in shapes
    ]  # no history is rewritten
    inputs, table = ragged_inputs(grown, seed)
    rewards = table.rewards()
    returns: list[dict[int, float]] = []  # of each trajectory, by column
    for j, trajectory in enumerate(table.trajectories):
        tokens = table.trajectory_tokens(j)
        opening = len(trajectory.calls[0].prompt) if trajectory.calls else 0
        columns = {len(table.places[n][0].prompt) + table.places[n][1] - opening: n for n in tokens}
        columns_to_go = {}
        for column in range(max(columns, default=-1) + 1):
            reached, end = 0.0, column
            while end <= max(columns) and (through or end == column or end in columns):
                reached += rewards[columns[end]] if end in columns else 0.0
                end += 1
            columns_to_go[column] = reached
        returns.append(columns_to_go)
    expected = []
    for j in range(len(table.trajectories)):
        opening = len(table.trajectories[j].calls[0].prompt) if table.trajectories[j].calls else 0
        members = [i for i, g in enumerate(table.group_of) if g == table.group_of[j]]
        for n in table.trajectory_tokens(j):
            column = len(table.places[n][0].prompt) + table.places[n][1] - opening
            mean = statistics.fmean(returns[i].get(column, 0.0) for i in members)
            expected.append(returns[j][column] - mean)
    assert ColumnCentered(through)(inputs) == pytest.approx(expected, abs=1e-9)


keyed_values = st.lists(
    st.tuples(st.sampled_from([-1.0, 0.0, 0.25, 2.0, 7.0]), st.integers(0, 3)), max_size=8
)


@given(pairs=keyed_values, flags=st.tuples(*[st.booleans()] * 3), eps=st.sampled_from([0.1, 0.5]))
@RAGGED
def test_centering_with_every_option(pairs: list, flags: tuple[bool, bool, bool], eps: float):
    std, leave_one_out, keep = flags
    values, keys = [v for v, _ in pairs], [k for _, k in pairs]
    actual = center(
        np.array(values),
        np.array(keys, np.int64),
        std=std,
        eps=eps,
        leave_one_out=leave_one_out,
        keep_singletons=keep,
    )
    assert actual == pytest.approx(centered(values, keys, std, eps, leave_one_out, keep), abs=1e-9)
    by_default = center(np.array(values), np.array(keys, np.int64))
    assert by_default == pytest.approx(centered(values, keys), abs=1e-9)
    if pairs:
        means = [statistics.fmean(v for v, k in pairs if k == key) for key in keys]
        assert group_mean(np.array(values), np.array(keys)) == pytest.approx(means, abs=1e-12)
        alone = {key: whitened([v for v, k in pairs if k == key]) for key in keys}
        by_key = [alone[key].pop(0) for key in keys]
        assert whiten_values(np.array(values), np.array(keys)) == pytest.approx(by_key, abs=1e-9)


@pytest.mark.parametrize("scale", [1e-5, 1e-4, 1e-3])
def test_small_variances_are_whitened_with_the_constant_of_the_formula(scale: float):
    values = [0.0, scale, 3 * scale]
    expected = whitened(values)
    assert whiten_values(np.array(values)) == pytest.approx(expected, rel=1e-6)
    both = np.array([*values, *values])
    keys = np.array([0, 0, 0, 1, 1, 1])
    assert whiten_values(both, keys) == pytest.approx([*expected, *expected], rel=1e-6)
    small = center(np.array(values), np.zeros(3, np.int64), std=True)
    assert small == pytest.approx(centered(values, [0, 0, 0], std=True), rel=1e-9)


@given(shapes=ragged_batches, flags=st.tuples(*[st.booleans()] * 3))
@RAGGED
def test_trajectories_grouped_by_their_group(shapes: list, flags: tuple[bool, bool, bool]):
    std, leave_one_out, keep = flags
    inputs, table = ragged_inputs(shapes, 0)
    returns = [t.total_reward for t in table.trajectories]
    expected = centered(returns, table.group_of, std, 0.5, leave_one_out, keep)
    estimator = GroupedBy(std=std, eps=0.5, leave_one_out=leave_one_out, keep_singletons=keep)
    assert estimator(inputs) == pytest.approx(
        [expected[j] for j in inputs.token_trajectory], abs=1e-9
    )


@given(
    values=st.lists(st.sampled_from([-1.0, 0.5, 2.0]), max_size=17),
    discounts=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=17, max_size=17),
)
@RAGGED
def test_discounted_sums_from_the_end(values: list[float], discounts: list[float]):
    used = discounts[: len(values)]
    given_arrays = np.array(values), np.array(used)
    sums = discounted_reverse_cumsum(*given_arrays)
    assert sums == pytest.approx(discounted_sums(values, used), abs=1e-9)
    assert given_arrays[0].tolist() == values and given_arrays[1].tolist() == used  # not changed
    owner = np.cumsum(np.array(used) > 0.5)
    assert has_successor(owner).tolist() == [
        i + 1 < len(owner) and owner[i] == owner[i + 1] for i in range(len(owner))
    ]
    assert factorize(values).tolist() == [
        list(dict.fromkeys(values)).index(value) for value in values
    ]


def mean_of(values: list[float]) -> float:
    return statistics.fmean(values) if values else 0.0


@given(shapes=ragged_batches, constant=st.sampled_from([0.5, 4.0]), seed=seeds)
@RAGGED
def test_loss_weights_are_those_of_the_named_means(shapes: list, constant: float, seed: int):
    inputs, table = ragged_inputs(shapes, seed)
    loss = np.random.default_rng(seed).normal(size=len(table.places))
    sequence_tokens: dict[int, list[int]] = {}
    for n, s in enumerate(inputs.token_sequence.tolist()):
        sequence_tokens.setdefault(s, []).append(n)
    turns = [tokens for tokens in table.tokens_of if tokens]
    trajectories = [
        tokens for j in range(len(table.trajectories)) if (tokens := table.trajectory_tokens(j))
    ]
    nested = [
        mean_of(
            [mean_of([loss[n] for n in table.tokens_of[r]]) for r in turn_ids if table.tokens_of[r]]
        )
        for turn_ids in table.turns_of
        if any(table.tokens_of[r] for r in turn_ids)
    ]

    def of_means(parts: list[list[int]]) -> float:
        return mean_of([mean_of([loss[n] for n in part]) for part in parts])

    def of_sums(parts: list[list[int]]) -> float:
        return mean_of([sum(loss[n] for n in part) / constant for part in parts])

    sequences = list(sequence_tokens.values())
    expected: list[tuple[Callable, float]] = [
        (token_weights.token_mean, mean_of(list(loss))),
        (token_weights.trajectory_mean, of_means(trajectories)),
        (token_weights.TrajectorySum(constant), of_sums(trajectories)),
        (token_weights.sequence_mean, of_means(sequences)),
        (token_weights.SequenceSum(constant), of_sums(sequences)),
        (token_weights.step_mean, of_means(turns)),
        (token_weights.StepSum(constant), of_sums(turns)),
        (token_weights.turn_mean, mean_of(nested)),
    ]
    for aggregation, value in expected:
        assert float((aggregation(inputs) * loss).sum()) == pytest.approx(value, abs=1e-9)


@given(shapes=ragged_batches, fraction=st.sampled_from([0.0, 0.34, 0.5, 0.8, 1.0]), seed=seeds)
@RAGGED
def test_turns_are_selected_by_the_means_of_their_tokens(shapes: list, fraction: float, seed: int):
    inputs, table = ragged_inputs(shapes, seed, "token_entropy")
    assert inputs.token_entropy is not None
    # Two values, so that several turns have the same mean.
    entropy = np.round(np.abs(inputs.token_entropy) > 0.7).astype(np.float64)
    object.__setattr__(inputs, "token_entropy", entropy)
    means = [statistics.fmean(entropy[n]) if n else None for n in table.tokens_of]
    actual = turn_means(inputs, entropy)
    assert [None if np.isnan(x) else x for x in actual] == pytest.approx(means)
    for key in (group_of_turn, batch_of_turn):
        keys, selected = key(inputs).tolist(), set()
        for k in set(keys):
            turns = [r for r, mean in enumerate(means) if keys[r] == k and mean is not None]
            turns.sort(key=lambda r: -float(means[r] or 0.0))  # stable: the earlier turn first
            selected |= set(turns[: max(1, int(fraction * len(turns) + 1e-9))])
        assert TopEntropyTurns(fraction, key)(inputs).tolist() == [
            r in selected for r in inputs.token_turn
        ]


@given(shapes=ragged_batches, seed=seeds)
@RAGGED
def test_bands_of_likelihood(shapes: list, seed: int):
    inputs, table = ragged_inputs(shapes, seed)
    nll = {
        r: -statistics.fmean(inputs.token_sampler_logp[tokens].tolist())
        for r, tokens in enumerate(table.tokens_of)
        if tokens
    }
    values = list(nll.values())
    quantiles = np.quantile(values, [0.25, 0.75]) if values else (0.0, 0.0)
    inside = [quantiles[0] <= nll[int(r)] <= quantiles[1] for r in inputs.token_turn]
    assert TurnNLLBand(QuantileBand(0.25, 0.75))(inputs).tolist() == inside
    std = statistics.stdev(values) if len(values) > 1 else 0.0
    near = [abs(nll[int(r)] - mean_of(values)) <= 0.8 * std for r in inputs.token_turn]
    if len(values) != 1:  # alone, a value is its own mean
        assert TurnNLLBand(StdBand(0.8))(inputs).tolist() == near
    assert StdBand(0.8)(np.array([3.0])).tolist() == [True]
    assert QuantileBand(0.25, 0.75)(np.array([3.0])).tolist() == [True]


@given(shapes=ragged_batches, length=st.integers(1, 2), seed=seeds)
@RAGGED
def test_tokens_after_the_last_marker(shapes: list, length: int, seed: int):
    inputs, table = ragged_inputs(shapes, seed)
    actions = [call.action.tolist() for call, _ in table.places]
    marker = next((action[-length:] for action in actions if len(action) >= length), [3])
    expected = []
    for call, k in table.places:
        action = call.action.tolist()
        ends = [
            i + len(marker) for i in range(len(action)) if action[i : i + len(marker)] == marker
        ]
        expected.append(k >= max(ends, default=0))
    assert OnlyAfterMarker(marker)(inputs).tolist() == expected


@given(shapes=ragged_batches, count=st.integers(1, 3))
@RAGGED
def test_numbers_by_turn_index(shapes: list, count: int):
    groups = with_info(ragged_groups(shapes), index=lambda turn, index: index)
    inputs, table = make_credit_inputs(groups), token_table(groups)
    numbers = [0.5, 0.25, 0.125][:count]
    assert ByTurnIndex(numbers)(inputs).tolist() == [
        numbers[min(table.turns[r].info["index"], count - 1)] for r in inputs.token_turn
    ]
