"""All-gathered indices are those of one process with all groups."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fixtures import (
    batch_shapes,
    device_mesh,
    make_call,
    make_trajectory,
    make_turn,
    random_groups,
    with_info,
)
from support.threaded_processes import ThreadGroup, run_processes
from support.update_process import POLICIES, make_config, make_groups

from agentrl_jax.algorithms.advantages.group import GroupedBy
from agentrl_jax.algorithms.advantages.grouping import (
    environment_of_trajectory,
    player_of_trajectory,
)
from agentrl_jax.algorithms.advantages.token_masks import mask_overlong_trajectories
from agentrl_jax.algorithms.advantages.transforms import WhitenBy, whiten
from agentrl_jax.algorithms.advantages.turn import MARS
from agentrl_jax.algorithms.losses.regularizers import KL, PositiveExampleLMLoss
from agentrl_jax.algorithms.methods import grpo, ppo
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.algorithms.policy_gradient.credited_batch import TokenTargets
from agentrl_jax.algorithms.policy_gradient.crediting import token_targets
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.learner.global_batch import (
    GlobalGroups,
    _serialize_index,
    gather_groups,
)
from agentrl_jax.learner.sequences import CreditInputs, TokenIndex, collate, make_credit_inputs
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group
from agentrl_jax.workers.pool import InlinePool


def assert_equal(a: TokenIndex, b: TokenIndex) -> None:
    for field in dataclasses.fields(TokenIndex):
        np.testing.assert_array_equal(
            getattr(a, field.name), getattr(b, field.name), err_msg=field.name
        )


def exchange(local: list[Any], group_indices: list[list[int]]) -> list[GlobalGroups]:
    """The global groups of each process, after all columns were exchanged."""

    def gather(group: ProcessGroup) -> GlobalGroups:
        index, numbers = local[group.index], group_indices[group.index]
        global_groups = gather_groups(group, index, len(numbers), numbers)
        for field in dataclasses.fields(index):
            getattr(global_groups.token_index, field.name)
        return global_groups

    return run_processes(len(local), gather)[0]


def split_round_robin(groups: list[Group], count: int) -> list[GlobalGroups]:
    local = [collate(groups[p::count]).token_index for p in range(count)]
    return exchange(local, [list(range(p, len(groups), count)) for p in range(count)])


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(batch_shapes, st.data())
def test_gathered_credit_inputs_are_those_of_one_process(shapes, data):
    groups = with_info(
        random_groups(shapes), answer=lambda turn, place: {"place": place, "reward": turn.reward}
    )
    count = data.draw(st.integers(1, 4))
    owner = data.draw(
        st.lists(st.integers(0, count - 1), min_size=len(groups), max_size=len(groups))
    )
    group_indices = [[i for i, p in enumerate(owner) if p == process] for process in range(count)]
    local_groups_of = [[groups[i] for i in share] for share in group_indices]
    expected = random_credit_inputs(groups)
    assert expected.token_logp is not None
    group = expected.trajectory_group[expected.token_trajectory]
    local = [
        random_credit_inputs(share, expected.token_logp[np.isin(group, selection)])
        for share, selection in zip(local_groups_of, group_indices)
    ]
    for p, global_groups in enumerate(exchange(local, group_indices)):
        assert_equal(global_groups.token_index, expected)
        np.testing.assert_array_equal(global_groups.token_index.token_logp, expected.token_logp)
        np.testing.assert_array_equal(
            global_groups.token_index.token_sampler_logp, expected.token_sampler_logp
        )
        assert global_groups.token_index.token_ref_logp is None
        assert [turn.info for turn in global_groups.token_index.turns] == [
            turn.info for turn in expected.turns
        ]
        assert [t.task for t in global_groups.token_index.trajectories] == [
            t.task for t in expected.trajectories
        ]
        assert [
            [call.action.tolist() for call in t.calls]
            for t in global_groups.token_index.trajectories
        ] == [[call.action.tolist() for call in t.calls] for t in expected.trajectories]
        np.testing.assert_array_equal(
            global_groups.token_index.token_logp[global_groups.local_token_mask],
            local[p].token_logp,
        )
        first, last = sorted(
            data.draw(st.tuples(st.integers(0, len(groups)), st.integers(0, len(groups))))
        )
        part, selection = global_groups.select_groups(np.arange(first, last))
        assert_equal(part, random_credit_inputs(groups[first:last]))
        np.testing.assert_array_equal(part.token_logp, expected.token_logp[selection])
        assert len(part.turns) == len(part.turn_reward) and len(part.trajectories) == len(
            part.trajectory_group
        )


def random_credit_inputs(groups: list[Group], logp: np.ndarray | None = None) -> CreditInputs:
    credit_inputs = make_credit_inputs(groups, collate(groups))
    return dataclasses.replace(
        credit_inputs,
        token_logp=np.random.default_rng(0).normal(size=len(credit_inputs.token_sequence))
        if logp is None
        else logp,
    )


@settings(max_examples=150, deadline=None)
@given(batch_shapes, st.integers(1, 5))
def test_gathered_indices_of_any_number_of_processes_are_those_of_one(shapes, count):
    groups = random_groups(shapes)
    expected = collate(groups)
    for p, global_groups in enumerate(split_round_robin(groups, count)):
        assert_equal(global_groups.token_index, expected.token_index)
        assert global_groups.num_groups == len(
            groups
        ) and global_groups.local_groups.tolist() == list(range(p, len(groups), count))
        local = collate(groups[p::count])
        np.testing.assert_array_equal(
            global_groups.token_index.token_position[global_groups.local_token_mask],
            local.token_index.token_position,
        )
        tokens = expected.token_values("tokens")[global_groups.local_token_mask]
        np.testing.assert_array_equal(tokens, local.token_values("tokens"))


@settings(max_examples=100, deadline=None)
@given(batch_shapes, st.data())
def test_selected_groups_have_the_index_of_these_groups_alone(shapes, data):
    groups = random_groups(shapes)
    first = data.draw(st.integers(0, len(groups)))
    last = data.draw(st.integers(first, len(groups)))
    indices = collate(groups).token_index
    part, selection = gather_groups(ProcessGroup(), indices, len(groups)).select_groups(
        np.arange(first, last)
    )
    assert_equal(part, collate(groups[first:last]).token_index)
    np.testing.assert_array_equal(part.token_position, indices.token_position[selection])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_interleaved_sequences_of_two_agents_are_gathered(count: int):
    def two_agents(group: int) -> Group:
        calls = [
            make_call([group], [1]),
            make_call([9], [2]),
            make_call([group, 1, 5], [3]),
            make_call([9, 2], [4]),
        ]
        return Group("a", (make_trajectory(*(make_turn([call]) for call in calls)),) * 2)

    groups = [two_agents(group) for group in range(4)]
    expected = collate(groups).token_index
    assert expected.token_sequence[:8].tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
    for global_groups in split_round_robin(groups, count):
        assert_equal(global_groups.token_index, expected)
        assert_equal(
            global_groups.select_groups(np.arange(1, 3))[0], collate(groups[1:3]).token_index
        )


def test_a_call_takes_a_few_bytes_whatever_its_length():
    short, long = (
        len(
            _serialize_index(
                collate(random_groups([[[(3, n, False, 1.0)] * 20] * 8])).token_index, [0]
            )
        )
        for n in (2, 200)
    )
    assert long < short * 1.2


@pytest.mark.parametrize("count", [1, 2, 3])
def test_environments_and_players_of_all_processes_share_their_statistics(count: int):
    def game(label: str, i: int) -> Group:
        members = tuple(
            make_trajectory(make_turn([make_call([i], [1, 2])], i + player)).replace(
                task=f"{label}#{i}", agent_index=player
            )
            for player in range(2)
        )
        return Group(f"{label}#{i}", members)

    groups = [game(label, i) for i, label in enumerate(("kuhn", "ttt", "ttt", "kuhn", "ttt"))]
    expected = make_credit_inputs(groups, collate(groups))
    assert environment_of_trajectory(expected).tolist() == [0, 0, 1, 1, 1, 1, 0, 0, 1, 1]
    assert player_of_trajectory(expected).tolist() == [0, 1, 2, 3, 2, 3, 0, 1, 2, 3]
    local = [make_credit_inputs(g, collate(g)) for g in (groups[p::count] for p in range(count))]
    selections = [list(range(p, len(groups), count)) for p in range(count)]
    keys = environment_of_trajectory, player_of_trajectory
    statistics = (*keys, *map(GroupedBy, keys), MARS())

    def compute(group: ProcessGroup) -> list[np.ndarray]:
        numbers = selections[group.index]
        index = gather_groups(group, local[group.index], len(numbers), numbers).token_index
        return [statistic(index) for statistic in statistics]

    for values in run_processes(count, compute)[0]:
        for value, statistic in zip(values, statistics, strict=True):
            np.testing.assert_array_equal(value, statistic(expected))


@pytest.mark.parametrize("count", [2, 4])
def test_processes_without_a_group_have_no_tokens(count: int):
    groups = random_groups([[[(2, 3, False, 1.0)]]])
    first, *others = split_round_robin(groups, count)
    assert first.local_token_mask.all() and first.local_token_mask.size == 3
    assert all(
        global_groups.local_token_mask.size == 3
        and not global_groups.local_token_mask.any()
        and not len(global_groups.local_groups)
        for global_groups in others
    )


def groups_of_process(process: int, length: int) -> list[Group]:
    """Four groups of two trajectories of three calls of `length` tokens."""
    shape = [(2, length, False, 1.0)] * 3
    return random_groups([[shape, shape]] * 4, seed=process)


def credited(
    count: int, length: int, config: PolicyGradientConfig, value: bool = False
) -> tuple[list[TokenTargets], list[ThreadGroup]]:
    """The targets that each process computes, and what was exchanged for them."""

    def credit(group: ProcessGroup) -> TokenTargets:
        groups = groups_of_process(group.index, length)
        inputs = make_credit_inputs(groups, collate(groups))
        if value:
            inputs = dataclasses.replace(inputs, token_value=0.5 * inputs.token_sampler_logp)
        global_groups = gather_groups(group, inputs, len(groups))
        targets = token_targets(config, global_groups.token_index, 0)
        for part in np.array_split(np.arange(global_groups.num_groups), 2):
            part_inputs, tokens = global_groups.select_groups(part)
            targets.loss_weights(part_inputs, tokens)
        return targets

    return run_processes(count, credit)


@pytest.mark.parametrize("count", [2, 4])
def test_what_no_function_reads_is_not_exchanged(count: int):
    config = grpo(regularizers={"kl": KL()}, transforms=(whiten,))
    short, long = (credited(count, length, config)[1] for length in (2, 200))
    for a, b in zip(short, long, strict=True):
        assert a.labels == b.labels == ["indices"]
        # 100 times as many tokens: only the numbers in the index are larger.
        assert b.sent < 1.2 * a.sent and b.received < 1.2 * a.received


def test_a_process_sends_as_much_to_two_as_to_four():
    sent = [max(group.sent for group in credited(count, 50, grpo())[1]) for count in (2, 4)]
    assert sent[1] < 1.05 * sent[0]


@pytest.mark.parametrize("count", [2, 4])
def test_a_column_that_a_function_reads_is_exchanged_once(count: int):
    config = ppo(HeadConfig())
    together, exchanged = credited(count, 3, config, value=True)
    assert all(group.labels == ["indices", "token_value"] for group in exchanged)
    # One process with all groups, in the order of their numbers.
    groups = [g for four in zip(*(groups_of_process(p, 3) for p in range(count))) for g in four]
    inputs = make_credit_inputs(groups, collate(groups))
    inputs = dataclasses.replace(inputs, token_value=0.5 * inputs.token_sampler_logp)
    alone = token_targets(config, inputs, 0)
    for targets in together:
        np.testing.assert_array_equal(targets.advantage, alone.advantage)
        np.testing.assert_array_equal(targets.value_target, alone.value_target)


def test_of_a_function_of_each_trajectory_the_values_alone_are_exchanged():
    config = grpo(
        transforms=(WhitenBy(),),
        mask=mask_overlong_trajectories,
        regularizers={"positive": PositiveExampleLMLoss(is_positive=lambda t: len(t.turns) > 2)},
    )
    targets, exchanged = credited(2, 3, config)
    for group in exchanged:
        assert group.labels[0] == "indices" and set(group.labels[1:]) == {"trajectory values"}
    groups = [g for pair in zip(*(groups_of_process(p, 3) for p in range(2))) for g in pair]
    alone = token_targets(config, make_credit_inputs(groups, collate(groups)), 0)
    for together in targets:
        np.testing.assert_array_equal(together.advantage, alone.advantage)
        np.testing.assert_array_equal(together.train_mask, alone.train_mask)


def test_a_copy_of_the_inputs_holds_every_column():
    def replaced(group: ProcessGroup) -> CreditInputs:
        groups = groups_of_process(group.index, 2)
        inputs = gather_groups(group, make_credit_inputs(groups, collate(groups)), 4).token_index
        return dataclasses.replace(inputs, turn_reward=inputs.turn_reward + 1)

    (inputs, _), _ = run_processes(2, replaced)
    assert inputs.turn_reward.tolist() == [2.0] * len(inputs.turns)
    assert len(inputs.token_sampler_logp) == len(inputs.token_sequence)
    assert inputs.token_logp is None


@pytest.mark.slow
def test_a_step_of_grpo_exchanges_no_number_per_token():
    case = {"groups": 6, "kl": 0.1, "settings": {"rescore": True}}

    def step(group: ProcessGroup) -> None:
        policy = POLICIES["mean embedding"]
        algorithm = make_config(case).build(policy, device_mesh(), steps=10)
        state = algorithm.init(jax.random.key(0), policy.init(jax.random.key(1)))
        with Runtime({}, {}, InlinePool(), process_group=group) as runtime:
            algorithm.step(state, group.local_items(make_groups(case, 0)), runtime)

    _, processes = run_processes(2, step)
    few_numbers = {"microbatches", "tokens/identity", "staleness", "groups kept"}
    for process in processes:
        assert process.labels.count("indices") == 1
        assert set(process.labels) == {"indices", *few_numbers}
