"""Rows and index arrays against loops over ragged trajectories."""

import dataclasses

import numpy as np
import pytest
from hand_made import batch_shapes, grown, grown_groups, make_call, make_trajectory, make_turn, turn_shapes, whole
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.algorithms.advantages import group_centred, group_normalized
from agentrl_jax.algorithms.aggregation import TrajectorySum, token_mean, trajectory_mean, turn_mean
from agentrl_jax.rows import Collated, Row, collate, rows_of, token_identity
from agentrl_jax.trajectories import Call, Group, Trajectory

FIELDS = ("tokens", "action_mask", "sampler_logp", "version", "temperature", "turn")


def rows_by_loop(trajectory: Trajectory) -> list[dict[str, list]]:
    """Token by token: a call goes on with the longest row that it repeats all of, else it opens another."""
    rows: list[dict[str, list]] = []
    for t, turn in enumerate(trajectory.turns):
        for call in turn.calls:
            prompt = call.prompt.tolist()
            row: dict[str, list] = {name: [] for name in FIELDS}
            for other in rows:
                if prompt[: len(other["tokens"])] == other["tokens"] and len(other["tokens"]) > len(row["tokens"]):
                    row = other
            if not row["tokens"]:
                rows.append(row)
            for token in prompt[len(row["tokens"]) :]:
                for name, value in zip(FIELDS, (token, False, 0.0, -1, 1.0, -1)):
                    row[name].append(value)
            for token, logp, version in zip(call.action.tolist(), call.sampler_logp.tolist(), call.version.tolist()):
                for name, value in zip(FIELDS, (token, True, logp, version, call.sampling.temperature, t)):
                    row[name].append(value)
    return rows


def same(row: Row, expected: dict[str, list]) -> bool:
    return all(getattr(row, name).tolist() == np.asarray(expected[name], getattr(row, name).dtype).tolist() for name in FIELDS)


@given(shape=st.lists(turn_shapes, max_size=6), vocabulary=st.integers(1, 24), seed=st.integers(0, 999))
@settings(max_examples=300, deadline=None)
def test_rows_are_those_of_a_loop_over_tokens(shape: list, vocabulary: int, seed: int):
    # A vocabulary of one token makes rewritten prompts extend the last call by accident.
    trajectory = grown(shape, np.random.default_rng(seed), vocabulary)
    rows, expected = rows_of(trajectory), rows_by_loop(trajectory)
    assert len(rows) == len(expected) and all(map(same, rows, expected))


def test_a_row_reads_as_its_picture_shows():
    first = make_call([5, 6], [1, 2, 9], logp=[-0.5, -1, -2], version=[3, 3, 4], temperature=0.5)
    second = make_call([5, 6, 1, 2, 9, 7], [3, 9], logp=[-3, -4], version=[4, 4])
    (row,) = rows_of(make_trajectory(make_turn([first]), make_turn([second])))
    assert row.tokens.tolist() == [5, 6, 1, 2, 9, 7, 3, 9] and len(row) == 8
    assert row.action_mask.astype(int).tolist() == [0, 0, 1, 1, 1, 0, 1, 1]
    assert row.turn.tolist() == [-1, -1, 0, 0, 0, -1, 1, 1]
    assert row.sampler_logp.tolist() == [0, 0, -0.5, -1, -2, 0, -3, -4]
    assert row.version.tolist() == [-1, -1, 3, 3, 4, -1, 4, 4]
    assert row.temperature.tolist() == [1, 1, 0.5, 0.5, 0.5, 1, 1, 1]


def test_a_context_that_only_grows_is_one_row_and_every_rewriting_starts_another():
    rng = np.random.default_rng(0)
    assert len(rows_of(grown([(2, 3, False, 0.0)] * 5, rng))) == 1
    assert len(rows_of(grown([(2, 3, True, 0.0)] * 5, rng))) == 5
    assert [len(row) for row in rows_of(grown([(2, 3, i == 2, 0.0) for i in range(5)], rng))] == [10, 15]


def test_several_calls_of_one_turn_share_its_number():
    thought = make_call([1], [2, 3])
    spoken = make_call([1, 2, 3, 4], [5])
    retried = make_call([1, 9], [6])
    rows = rows_of(make_trajectory(make_turn([make_call([0], [0])]), make_turn([thought, spoken, retried])))
    assert [row.turn.tolist() for row in rows] == [[-1, 0], [-1, 1, 1, -1, 1], [-1, -1, 1]]


@given(shapes=batch_shapes, seed=st.integers(0, 999))
@settings(max_examples=200, deadline=None)
def test_index_arrays_are_those_of_nested_loops(shapes: list, seed: int):
    groups = grown_groups(shapes, seed)
    collated = collate(groups)
    token_row, token_position, token_turn, token_trajectory, token_logp = [], [], [], [], []
    turn_trajectory, turn_reward, turn_terminated, trajectory_group, returns = [], [], [], [], []
    rows = 0
    for g, group in enumerate(groups):
        for trajectory in group.trajectories:
            if not trajectory.turns:
                continue
            first_turn = len(turn_reward)
            for turn in trajectory.turns:
                turn_trajectory.append(len(trajectory_group))
                turn_reward.append(turn.reward)
                turn_terminated.append(turn.terminated)
            for row in rows_by_loop(trajectory):
                for position, written in enumerate(row["action_mask"]):
                    if written:
                        token_row.append(rows)
                        token_position.append(position)
                        token_turn.append(first_turn + row["turn"][position])
                        token_trajectory.append(len(trajectory_group))
                        token_logp.append(row["sampler_logp"][position])
                rows += 1
            returns.append(sum(turn.reward for turn in trajectory.turns))
            trajectory_group.append(g)
    indices = collated.indices
    assert len(collated.rows) == rows
    assert indices.token_row.tolist() == token_row and indices.token_position.tolist() == token_position
    assert indices.token_turn.tolist() == token_turn and indices.token_trajectory.tolist() == token_trajectory
    assert indices.turn_trajectory.tolist() == turn_trajectory and indices.turn_terminated.tolist() == turn_terminated
    assert indices.turn_reward.tolist() == turn_reward and indices.trajectory_group.tolist() == trajectory_group
    assert indices.trajectory_return == pytest.approx(returns, abs=1e-12)
    assert collated.tokens("sampler_logp").tolist() == token_logp


@given(shapes=batch_shapes, seed=st.integers(0, 999))
@settings(max_examples=200, deadline=None)
def test_what_is_trained_is_exactly_what_was_sampled(shapes: list, seed: int):
    groups = grown_groups(shapes, seed)
    collated = collate(groups)
    sampled = [token for trajectory in whole(groups) for call in trajectory.calls for token in call.action.tolist()]
    assert collated.tokens("tokens").tolist() == sampled
    assert sum(int(row.action_mask.sum()) for row in collated.rows) == len(sampled) == len(collated.indices.token_row)
    assert token_identity(groups, collated) == 1.0


def rewritten(trajectory: Trajectory) -> Trajectory:
    """The same turns and actions where every prompt is a new text: as many rows as turns."""
    turns = []
    for i, turn in enumerate(trajectory.turns):
        calls = tuple(dataclasses.replace(call, prompt=np.array([100 + i], np.int32)) for call in turn.calls)
        turns.append(dataclasses.replace(turn, calls=calls))
    return trajectory.replace(turns=tuple(turns))


@given(shapes=batch_shapes, seed=st.integers(0, 999))
@settings(max_examples=100, deadline=None)
def test_no_statistic_changes_when_a_trajectory_is_split_into_rows(shapes: list, seed: int):
    shapes = [[[(new, written, False, reward) for new, written, _, reward in turns] for turns in group] for group in shapes]
    groups = grown_groups(shapes, seed)
    one = collate(groups)
    many = collate([dataclasses.replace(group, trajectories=tuple(map(rewritten, group.trajectories))) for group in groups])
    assert len(one.rows) == len(whole(groups)) and len(many.rows) == sum(len(t.turns) for t in whole(groups))
    assert one.indices.trajectory_return.tolist() == many.indices.trajectory_return.tolist()
    assert one.indices.token_trajectory.tolist() == many.indices.token_trajectory.tolist()
    for statistic in (group_centred, group_normalized, token_mean, trajectory_mean, turn_mean, TrajectorySum(7.0)):
        assert statistic(one.indices).tolist() == statistic(many.indices).tolist()
    for field in ("tokens", "sampler_logp", "version", "temperature", "turn"):
        assert one.tokens(field).tolist() == many.tokens(field).tolist()


@given(parents=st.lists(st.integers(-1, 5), min_size=1, max_size=8), seed=st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_each_token_of_a_tree_of_calls_is_trained_once_in_the_order_of_calls(parents: list[int], seed: int):
    rng, calls = np.random.default_rng(seed), []
    for i, parent in enumerate(parents):  # each call goes on from an earlier one, or from nothing
        before = calls[parent].ids if 0 <= parent < i else np.zeros(0, np.int32)
        new = rng.integers(0, 24, 3)
        calls.append(make_call(np.concatenate([before, new]), rng.integers(0, 24, 2), logp=-rng.random(2)))
    group = Group("a", (make_trajectory(*(make_turn([call]) for call in calls)),))
    collated = collate([group])
    leaves = len(calls) - len({parent for i, parent in enumerate(parents) if 0 <= parent < i})
    assert len(collated.rows) == leaves and token_identity([group], collated) == 1.0
    assert collated.tokens("tokens").tolist() == np.concatenate([call.action for call in calls]).tolist()
    assert collated.tokens("sampler_logp").tolist() == np.concatenate([call.sampler_logp for call in calls]).tolist()
    assert collated.indices.token_turn.tolist() == np.repeat(np.arange(len(calls)), 2).tolist()
    assert sum(int(row.action_mask.sum()) for row in collated.rows) == 2 * len(calls)
    assert collated.indices.token_position.tolist() == [len(call.prompt) + i for call in calls for i in range(2)]


def test_token_identity_is_nought_where_a_token_is_trained_twice():
    group = two_turns([1, 2, 3, 4, 5])
    collated = collate([group])
    doubled = dataclasses.replace(collated.indices, token_position=np.array([2, 2, 5, 6]))
    assert token_identity([group], Collated(collated.rows, doubled)) == 0.0


def test_trajectories_without_turns_do_not_count():
    empty, played = make_trajectory(), grown([(1, 2, False, 3.0)], np.random.default_rng(0))
    collated = collate([Group("a", (empty, played, empty)), Group("b", (empty,)), Group("c", (played,))])
    assert collated.indices.trajectory_group.tolist() == [0, 2]
    assert collated.indices.trajectory_return.tolist() == [3.0, 3.0]
    nothing = collate([])
    assert nothing.rows == [] and token_identity([], nothing) == 1.0 and len(nothing.indices.trajectory_return) == 0


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -float("inf")])
def test_a_reward_that_is_no_number_is_refused(reward: float):
    group = Group("a", (make_trajectory(make_turn([make_call([1], [2])], 1.0), make_turn([make_call([1], [2])], reward)),))
    with pytest.raises(ValueError, match="reward is not finite"):
        collate([group])


def two_turns(prompt: list[int]) -> Group:
    """A first call [1 2 | 3 4] and a second one with the given prompt, which should begin 1 2 3 4."""
    return Group("a", (make_trajectory(make_turn([make_call([1, 2], [3, 4])]), make_turn([make_call(prompt, [6, 7])])),))


def test_a_prompt_that_was_tampered_with_makes_a_row_of_its_own():
    good, bad = two_turns([1, 2, 3, 4, 5]), two_turns([1, 2, 3, 8, 5])
    assert len(collate([good]).rows) == 1 and len(collate([bad]).rows) == 2
    assert token_identity([bad], collate([bad])) == 1.0


def test_token_identity_falls_where_a_retokenised_prompt_is_taken_for_the_sample(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Call, "extends", lambda self, other: True)
    for prompt, share in (([1, 2, 3, 4, 5], 1.0), ([1, 2, 3, 8, 5], 0.75), ([1, 2, 8, 8, 5], 0.5)):
        group = two_turns(prompt)
        collated = collate([group])
        assert len(collated.rows) == 1 and token_identity([group], collated) == share


def test_token_identity_is_nought_where_tokens_are_missing():
    group = two_turns([1, 2, 3, 4, 5])
    collated = collate([group])
    row = dataclasses.replace(collated.rows[0], action_mask=np.array([False, False, True, False, False, True, True]))
    assert token_identity([group], Collated([row], collated.indices)) == 0.0
