"""Training sequences and index arrays against loops over ragged trajectories."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fixtures import (
    batch_shapes,
    make_call,
    make_trajectory,
    make_turn,
    random_groups,
    random_trajectory,
    trajectories_with_turns,
    turn_shapes,
)

from agentrl_jax.algorithms.advantages.group import group_centered, group_normalized
from agentrl_jax.algorithms.advantages.token_weights import (
    TrajectorySum,
    token_mean,
    trajectory_mean,
    turn_mean,
)
from agentrl_jax.learner.sequences import (
    CollatedSequences,
    ContextCost,
    TrainingSequence,
    call_chains,
    collate,
    context_cost,
    sequences_of,
    token_identity,
)
from agentrl_jax.learner.unique_sequences import unique_sequences
from agentrl_jax.trajectories import Call, Group, Trajectory

FIELDS = ("tokens", "action_mask", "sampler_logp", "version", "temperature", "turn")


def sequences_by_loop(trajectory: Trajectory) -> list[dict[str, list]]:
    """Token by token: a call extends the longest sequence that it repeats, or starts another."""
    rows: list[dict[str, list]] = []
    for t, turn in enumerate(trajectory.turns):
        for call in turn.calls:
            prompt = call.prompt.tolist()
            row: dict[str, list] = {name: [] for name in FIELDS}
            for other in rows:
                if prompt[: len(other["tokens"])] == other["tokens"] and len(other["tokens"]) > len(
                    row["tokens"]
                ):
                    row = other
            if not row["tokens"]:
                rows.append(row)
            for token in prompt[len(row["tokens"]) :]:
                for name, value in zip(FIELDS, (token, False, 0.0, -1, 1.0, -1)):
                    row[name].append(value)
            for token, logp, version in zip(
                call.action.tolist(), call.sampler_logp.tolist(), call.version.tolist()
            ):
                for name, value in zip(
                    FIELDS, (token, True, logp, version, call.sampling.temperature, t)
                ):
                    row[name].append(value)
    return rows


def is_equal(row: TrainingSequence, expected: dict[str, list]) -> bool:
    return all(
        getattr(row, name).tolist() == np.asarray(expected[name], getattr(row, name).dtype).tolist()
        for name in FIELDS
    )


@given(
    shape=st.lists(turn_shapes, max_size=6), vocabulary=st.integers(1, 24), seed=st.integers(0, 999)
)
@settings(max_examples=300, deadline=None)
def test_sequences_are_those_of_a_loop_over_tokens(shape: list, vocabulary: int, seed: int):
    # A vocabulary of one token makes rewritten prompts extend the last call by accident.
    trajectory = random_trajectory(shape, np.random.default_rng(seed), vocabulary)
    rows, expected = sequences_of(trajectory), sequences_by_loop(trajectory)
    assert len(rows) == len(expected) and all(map(is_equal, rows, expected))


def test_the_fields_of_a_sequence_of_two_calls():
    first = make_call([5, 6], [1, 2, 9], logp=[-0.5, -1, -2], version=[3, 3, 4], temperature=0.5)
    second = make_call([5, 6, 1, 2, 9, 7], [3, 9], logp=[-3, -4], version=[4, 4])
    (row,) = sequences_of(make_trajectory(make_turn([first]), make_turn([second])))
    assert row.tokens.tolist() == [5, 6, 1, 2, 9, 7, 3, 9] and len(row) == 8
    assert row.action_mask.astype(int).tolist() == [0, 0, 1, 1, 1, 0, 1, 1]
    assert row.turn.tolist() == [-1, -1, 0, 0, 0, -1, 1, 1]
    assert row.sampler_logp.tolist() == [0, 0, -0.5, -1, -2, 0, -3, -4]
    assert row.version.tolist() == [-1, -1, 3, 3, 4, -1, 4, 4]
    assert row.temperature.tolist() == [1, 1, 0.5, 0.5, 0.5, 1, 1, 1]


def test_a_context_that_only_grows_is_one_sequence_and_every_rewriting_starts_another():
    rng = np.random.default_rng(0)
    assert len(sequences_of(random_trajectory([(2, 3, False, 0.0)] * 5, rng))) == 1
    assert len(sequences_of(random_trajectory([(2, 3, True, 0.0)] * 5, rng))) == 5
    assert [
        len(row)
        for row in sequences_of(random_trajectory([(2, 3, i == 2, 0.0) for i in range(5)], rng))
    ] == [
        10,
        15,
    ]


def test_the_context_cost_counts_the_first_prompts_of_later_chains():
    grown = [make_call([1, 2], [3]), make_call([1, 2, 3, 4], [5])]
    rewritten = [make_call([7, 8, 9], [3]), make_call([7, 8, 9, 3, 4], [5])]
    trajectory = make_trajectory(*(make_turn([call]) for call in (*grown, *rewritten)))
    assert context_cost(trajectory) == ContextCost(2, 3)


def test_several_calls_of_one_turn_share_its_number():
    first = make_call([1], [2, 3])
    second = make_call([1, 2, 3, 4], [5])
    retry = make_call([1, 9], [6])
    rows = sequences_of(
        make_trajectory(make_turn([make_call([0], [0])]), make_turn([first, second, retry]))
    )
    assert [row.turn.tolist() for row in rows] == [[-1, 0], [-1, 1, 1, -1, 1], [-1, -1, 1]]


@given(shapes=batch_shapes, seed=st.integers(0, 999))
@settings(max_examples=200, deadline=None)
def test_index_arrays_are_those_of_nested_loops(shapes: list, seed: int):
    groups = random_groups(shapes, seed)
    collated = collate(groups)
    tokens: list[tuple[Any, ...]] = []  # (turn, sequence, position, trajectory, log-prob) of each
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
            for row in sequences_by_loop(trajectory):
                for position, written in enumerate(row["action_mask"]):
                    if written:
                        turn, logp = row["turn"][position], row["sampler_logp"][position]
                        tokens.append(
                            (first_turn + turn, rows, position, len(trajectory_group), logp)
                        )
                rows += 1
            returns.append(sum(turn.reward for turn in trajectory.turns))
            trajectory_group.append(g)
    indices = collated.token_index
    # Where a rewritten prompt begins as an earlier call by chance, a turn goes on in another row.
    tokens.sort(key=lambda token: token[0])
    token_turn, token_sequence_by_loop, token_position, token_trajectory, token_logp = (
        [token[i] for token in tokens] for i in range(5)
    )
    assert len(collated.sequences) == rows
    assert (
        indices.token_sequence.tolist() == token_sequence_by_loop
        and indices.token_position.tolist() == token_position
    )
    assert (
        indices.token_turn.tolist() == token_turn
        and indices.token_trajectory.tolist() == token_trajectory
    )
    assert (
        indices.turn_trajectory.tolist() == turn_trajectory
        and indices.turn_terminated.tolist() == turn_terminated
    )
    assert (
        indices.turn_reward.tolist() == turn_reward
        and indices.trajectory_group.tolist() == trajectory_group
    )
    assert indices.trajectory_return == pytest.approx(returns, abs=1e-12)
    assert collated.token_values("sampler_logp").tolist() == token_logp


@given(shapes=batch_shapes, seed=st.integers(0, 999))
@settings(max_examples=200, deadline=None)
def test_trained_tokens_are_exactly_the_sampled_ones(shapes: list, seed: int):
    groups = random_groups(shapes, seed)
    collated = collate(groups)
    sampled = [
        token
        for trajectory in trajectories_with_turns(groups)
        for call in trajectory.calls
        for token in call.action.tolist()
    ]
    assert collated.token_values("tokens").tolist() == sampled
    assert (
        sum(int(row.action_mask.sum()) for row in collated.sequences)
        == len(sampled)
        == len(collated.token_index.token_sequence)
    )
    assert token_identity(groups, collated) == 1.0


def rewrite_prompts(trajectory: Trajectory) -> Trajectory:
    """The same turns and actions with new prompts: as many sequences as turns."""
    turns = []
    for i, turn in enumerate(trajectory.turns):
        calls = tuple(
            dataclasses.replace(call, prompt=np.array([100 + i], np.int32)) for call in turn.calls
        )
        turns.append(dataclasses.replace(turn, calls=calls))
    return trajectory.replace(turns=tuple(turns))


@given(shapes=batch_shapes, seed=st.integers(0, 999))
@settings(max_examples=100, deadline=None)
def test_no_statistic_changes_when_a_trajectory_is_split_into_sequences(shapes: list, seed: int):
    shapes = [
        [[(new, written, False, reward) for new, written, _, reward in turns] for turns in group]
        for group in shapes
    ]
    groups = random_groups(shapes, seed)
    unsplit = collate(groups)
    split = collate(
        [
            dataclasses.replace(group, trajectories=tuple(map(rewrite_prompts, group.trajectories)))
            for group in groups
        ]
    )
    assert len(unsplit.sequences) == len(trajectories_with_turns(groups)) and len(
        split.sequences
    ) == sum(len(t.turns) for t in trajectories_with_turns(groups))
    assert (
        unsplit.token_index.trajectory_return.tolist()
        == split.token_index.trajectory_return.tolist()
    )
    assert (
        unsplit.token_index.token_trajectory.tolist() == split.token_index.token_trajectory.tolist()
    )
    for statistic in (
        group_centered,
        group_normalized,
        token_mean,
        trajectory_mean,
        turn_mean,
        TrajectorySum(7.0),
    ):
        assert statistic(unsplit.token_index).tolist() == statistic(split.token_index).tolist()
    for field in ("tokens", "sampler_logp", "version", "temperature", "turn"):
        assert unsplit.token_values(field).tolist() == split.token_values(field).tolist()


@given(parents=st.lists(st.integers(-1, 5), min_size=1, max_size=8), seed=st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_each_token_of_a_tree_of_calls_is_trained_once_in_the_order_of_calls(
    parents: list[int], seed: int
):
    rng, calls = np.random.default_rng(seed), []
    for i, parent in enumerate(parents):  # each call extends an earlier one, or none
        before = calls[parent].ids if 0 <= parent < i else np.zeros(0, np.int32)
        new = rng.integers(0, 24, 3)
        calls.append(
            make_call(np.concatenate([before, new]), rng.integers(0, 24, 2), logp=-rng.random(2))
        )
    group = Group("a", (make_trajectory(*(make_turn([call]) for call in calls)),))
    collated = collate([group])
    leaves = len(calls) - len({parent for i, parent in enumerate(parents) if 0 <= parent < i})
    assert len(collated.sequences) == leaves and token_identity([group], collated) == 1.0
    assert (
        collated.token_values("tokens").tolist()
        == np.concatenate([call.action for call in calls]).tolist()
    )
    assert (
        collated.token_values("sampler_logp").tolist()
        == np.concatenate([call.sampler_logp for call in calls]).tolist()
    )
    assert collated.token_index.token_turn.tolist() == np.repeat(np.arange(len(calls)), 2).tolist()
    assert sum(int(row.action_mask.sum()) for row in collated.sequences) == 2 * len(calls)
    assert collated.token_index.token_position.tolist() == [
        len(call.prompt) + i for call in calls for i in range(2)
    ]


def test_token_identity_is_zero_where_a_token_is_trained_twice():
    group = two_turns([1, 2, 3, 4, 5])
    collated = collate([group])
    duplicated = dataclasses.replace(collated.token_index, token_position=np.array([2, 2, 5, 6]))
    assert token_identity([group], CollatedSequences(collated.sequences, duplicated)) == 0.0


def test_without_tokens_the_trained_ones_are_the_recorded_ones():
    assert token_identity([], collate([])) == 1.0
    empty = [Group("a", (make_trajectory(make_turn([make_call([1], [])])),))]
    assert token_identity(empty, collate(empty)) == 1.0


def test_equal_sequences_are_kept_once():
    def sequence(*tokens: int, temperature: float = 1.0, masked: int = 1) -> TrainingSequence:
        trajectory = make_trajectory(
            make_turn([make_call(tokens[:masked], tokens[masked:], temperature)])
        )
        return collate([Group("a", (trajectory,))]).sequences[0]

    first, again, second = sequence(1, 2, 3), sequence(1, 2, 3), sequence(1, 2, 4)
    others = [sequence(1, 2, 3, temperature=0.5), sequence(1, 2, 3, masked=2)]
    distinct, indices = unique_sequences([first, again, second, first, *others, second])
    assert [id(x) for x in distinct] == [id(x) for x in (first, second, *others)]
    assert indices.tolist() == [0, 0, 1, 0, 2, 3, 1]
    assert unique_sequences([])[0] == [] and unique_sequences([])[1].shape == (0,)


def test_trajectories_without_turns_do_not_count():
    empty, trajectory_with_turn = (
        make_trajectory(),
        random_trajectory([(1, 2, False, 3.0)], np.random.default_rng(0)),
    )
    collated = collate(
        [
            Group("a", (empty, trajectory_with_turn, empty)),
            Group("b", (empty,)),
            Group("c", (trajectory_with_turn,)),
        ]
    )
    assert collated.token_index.trajectory_group.tolist() == [0, 2]
    assert collated.token_index.trajectory_return.tolist() == [3.0, 3.0]
    no_groups = collate([])
    assert (
        no_groups.sequences == []
        and token_identity([], no_groups) == 1.0
        and len(no_groups.token_index.trajectory_return) == 0
    )


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -float("inf")])
def test_a_reward_that_is_not_finite_is_refused(reward: float):
    group = Group(
        "a",
        (
            make_trajectory(
                make_turn([make_call([1], [2])], 1.0), make_turn([make_call([1], [2])], reward)
            ),
        ),
    )
    with pytest.raises(ValueError, match="reward is not finite"):
        collate([group])


def two_turns(prompt: list[int]) -> Group:
    """A first call [1 2 | 3 4] and a second one, whose prompt should begin with 1 2 3 4."""
    return Group(
        "a",
        (
            make_trajectory(
                make_turn([make_call([1, 2], [3, 4])]), make_turn([make_call(prompt, [6, 7])])
            ),
        ),
    )


def test_a_prompt_that_differs_from_the_samples_starts_a_sequence():
    good, bad = two_turns([1, 2, 3, 4, 5]), two_turns([1, 2, 3, 8, 5])
    assert len(collate([good]).sequences) == 1 and len(collate([bad]).sequences) == 2
    assert token_identity([bad], collate([bad])) == 1.0


def test_token_identity_falls_where_a_retokenized_prompt_replaces_samples(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(Call, "extends", lambda self, other: True)
    for prompt, share in (([1, 2, 3, 4, 5], 1.0), ([1, 2, 3, 8, 5], 0.75), ([1, 2, 8, 8, 5], 0.5)):
        group = two_turns(prompt)
        collated = collate([group])
        assert len(collated.sequences) == 1 and token_identity([group], collated) == share


def test_token_identity_is_zero_where_tokens_are_missing():
    group = two_turns([1, 2, 3, 4, 5])
    collated = collate([group])
    row = dataclasses.replace(
        collated.sequences[0], action_mask=np.array([False, False, True, False, False, True, True])
    )
    assert token_identity([group], CollatedSequences([row], collated.token_index)) == 0.0


def test_a_rewritten_history_does_not_make_later_calls_compare_all_chains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call that names its parent is compared with longer chains alone, and there are none."""
    calls = [make_call([1], [2])]
    parent = None
    for i in range(8):
        prompt = [3, 4] if parent is None else [*parent.ids.tolist(), 5]
        parent = dataclasses.replace(make_call(prompt, [6 + i]), parent=parent)
        calls.append(parent)
    trajectory = make_trajectory(*(make_turn([call]) for call in calls))
    compared = []
    extends = Call.extends
    monkeypatch.setattr(
        Call, "extends", lambda call, other: compared.append(call) or extends(call, other)
    )
    assert [len(sequence) for sequence in sequences_of(trajectory)] == [2, len(calls[-1].ids)]
    assert compared == [calls[1]]  # the rewritten history itself


@pytest.mark.parametrize("turns", [64, 256])
def test_a_context_that_grows_compares_no_tokens(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Call] = []
    for i in range(turns):
        parent = calls[-1] if calls else None
        prompt = [*parent.ids.tolist(), 5] if parent else [1]
        calls.append(dataclasses.replace(make_call(prompt, [6 + i]), parent=parent))
    trajectory = make_trajectory(*(make_turn([call]) for call in calls))
    monkeypatch.setattr(Call, "extends", lambda *_: pytest.fail("tokens are compared"))
    assert [len(chain) for chain in call_chains(trajectory)] == [turns]


def test_a_call_extends_the_first_of_two_equally_long_chains() -> None:
    calls = [make_call([1], [2]), make_call([1], [2]), make_call([1, 2], [3])]
    trajectory = make_trajectory(*(make_turn([call]) for call in calls))
    assert [x.tokens.tolist() for x in sequences_of(trajectory)] == [[1, 2, 3], [1, 2]]
