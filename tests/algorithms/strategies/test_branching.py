"""Branching after uncertain turns: the rules by hand, trees with exactly n leaves, shared calls and
caches, faults in branches.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import faulty_envs
from support.conversations import prompt_tokens_computed
from support.fixtures import make_call
from support.strategy_runs import (
    AGENT,
    BRITTLE_ID,
    KEY,
    TOKENIZER,
    KeyedTextEngine,
    chain_task,
    collect_group,
    episode_content,
    groups_equal,
    local_engine,
    make_runtime,
)

from agentrl_jax.algorithms.advantages.group import group_normalized
from agentrl_jax.algorithms.advantages.transforms import PrefixMean
from agentrl_jax.algorithms.strategies.branching import BranchingRollouts
from agentrl_jax.algorithms.strategies.uncertainty import (
    AEPOBranchRule,
    AEPOInitialRollouts,
    ARPOBranchRule,
    segment_entropy,
)
from agentrl_jax.errors import UserError
from agentrl_jax.keys import uniform_of
from agentrl_jax.learner.sequences import collate, make_credit_inputs
from agentrl_jax.rollout.agent import Limits
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.trajectories import Group
from agentrl_jax.workers.pool import Task


def never(uniform: float, more: float, in_a_row: int) -> bool:
    return False


def always(uniform: float, more: float, in_a_row: int) -> bool:
    return True


UNIFORM = ((np.arange(10_000) + 0.5) / 10_000).tolist()


def share(rule: Any, more: float, in_a_row: int = 0) -> float:
    """P(branch)."""
    return float(np.mean([rule(u, more, in_a_row) for u in UNIFORM]))


def test_arpos_probability_by_hand():
    assert share(ARPOBranchRule(weight=0.0), 0.7) == 0.5  # only the base probability
    assert share(ARPOBranchRule(weight=0.5), 1.0) == 1.0
    assert (
        share(ARPOBranchRule(weight=0.2), 0.5) == 0.6
        and share(ARPOBranchRule(weight=0.2), -0.5) == 0.4
    )
    assert (
        share(ARPOBranchRule(weight=0.2, base=0.0), -0.5) == 0.0
        and share(ARPOBranchRule(base=-1.0), 1.0) == 0.0
    )


def test_aepos_probability_by_hand():
    assert share(AEPOBranchRule(), 0.0) == 0.5 and share(AEPOBranchRule(), 0.5) == pytest.approx(
        0.6
    )
    assert share(AEPOBranchRule(), 0.0, in_a_row=5) == pytest.approx(1 - 0.5 / 0.75, abs=1e-4)
    assert share(AEPOBranchRule(), 5.0, in_a_row=10) == 1.0  # (u + 1) / 2 is at least .5
    assert (
        share(AEPOBranchRule(), 1.0, in_a_row=20)
        == share(AEPOBranchRule(), 100.0, in_a_row=25)
        == 0.0
    )


def test_aepos_first_split_by_hand():
    split = AEPOInitialRollouts()
    assert split(16, 0.3, 0.3) == 9 and split(16, 0.0, 100.0) == 1 and split(16, 100.0, 0.0) == 16
    assert split(8, 1.0, 0.0) == int(8 / (1 + math.exp(-0.5))) + 1 and split(1, 0.0, 0.0) == 1


def test_the_entropy_of_a_segment_by_hand():
    p = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.25, 0.25, 0.25]])
    with np.errstate(divide="ignore"):
        call = dataclasses.replace(
            make_call([1], [2, 3, 4]), alternative_logp=np.log(p).astype(np.float32)
        )
    assert segment_entropy(call, 1, 2) == pytest.approx(1.0) and segment_entropy(
        call, 2, 2
    ) == pytest.approx(0.5)
    assert segment_entropy(call, 20, 8) == pytest.approx(
        (math.log(2) + 0 + 0.75 * math.log(4)) / 3 / math.log(8)
    )
    with pytest.raises(UserError, match=r"engine\.alternatives"):
        segment_entropy(make_call([1], [2]), 20, 8)


@pytest.mark.parametrize(
    "settings",
    [
        {"initial_rollouts": 8},
        {"initial_rollouts": 100},
        {"initial_rollouts": 3, "branch_rule": never},
        {"initial_rollouts": 3, "beam": 1},
    ],
)
def test_without_branches_the_tree_is_independent_episodes(settings: dict[str, Any]):
    assert groups_equal(
        collect_group(BranchingRollouts(10, 8, **settings), KeyedTextEngine()),
        collect_group(IndependentEpisodes(8), KeyedTextEngine()),
    )


TREES = [
    BranchingRollouts(10, 12, 4),
    BranchingRollouts(10, 12, 1, always),
    BranchingRollouts(10, 9, 2, ARPOBranchRule(2.0), beam=3),
    BranchingRollouts(10, 7, AEPOInitialRollouts()),
    BranchingRollouts(10, 16, AEPOInitialRollouts(), AEPOBranchRule(base=0.3)),
    BranchingRollouts(10, 1, 1),
    BranchingRollouts(10, 5, 5, always),
    BranchingRollouts(10, 2, 1, never),
]


@pytest.mark.parametrize("tree", TREES)
def test_the_leaves_are_exactly_n_and_siblings_share_what_came_before(tree: BranchingRollouts):
    engine = KeyedTextEngine()
    group = collect_group(tree, engine, chain_task(3))
    assert [t.sample for t in group.trajectories] == list(
        range(tree.group_size)
    ) and group.num_dropped == 0
    assert engine.held_ids == set()  # nothing stays cached at the end
    for branch in group.trajectories:
        if branch.parent is None:
            assert branch.branch_turn is None
            continue
        parent, shared = group.trajectories[branch.parent], branch.branch_turn
        assert (
            shared is not None and 1 <= shared < len(parent.turns) and branch.parent < branch.sample
        )
        assert all(a is b for a, b in zip(branch.turns[:shared], parent.turns, strict=False))
        assert branch.calls[shared].prompt.tolist() == parent.calls[shared].prompt.tolist()
        assert (
            branch.calls[shared] is not parent.calls[shared]
            and branch.calls[shared].parent is parent.calls[shared - 1]
        )
        assert {call.key[3] for call in branch.calls[shared:]} == {branch.sample}
    assert len(engine.calls) == len({call.key for call in engine.calls}) == group.num_turns_played
    assert group.num_turns_played == len({id(call) for t in group.trajectories for call in t.calls})


def test_decisions_are_those_of_the_rule_in_order_of_turns_and_samples():
    tree = BranchingRollouts(10, 10, 3, ARPOBranchRule(0.6))
    group = collect_group(tree, KeyedTextEngine(), chain_task(1, horizon=5))
    entropies = [[segment_entropy(call, 20, 10) for call in t.calls] for t in group.trajectories]
    # (sample, number of turns shared with its parent)
    expected, known = [], [(0, 0), (1, 0), (2, 0)]
    for turn in range(1, 5):
        for sample, born in tuple(known):
            if born >= turn or len(entropies[sample]) <= turn or len(known) == 10:
                continue
            more = entropies[sample][turn] - entropies[sample][0]
            if uniform_of(*KEY, 0, sample, turn, 0) - 0.6 * more <= 0.5:
                expected.append((sample, turn))
                known.append((len(known), turn))
    assert len(expected) > 3
    assert [(t.parent, t.branch_turn) for t in group.trajectories[3:]] == expected + [
        (None, None)
    ] * (7 - len(expected))


@pytest.mark.slow
@pytest.mark.parametrize("tree", TREES[:5])
def test_the_tree_depends_on_the_key_and_not_on_delays(tree: BranchingRollouts):
    prompt = collect_group(tree, KeyedTextEngine(), chain_task(5))
    for seed in range(3):
        assert groups_equal(
            prompt,
            collect_group(
                tree,
                KeyedTextEngine(max_delay=0.004, num_slots=(64, 3, 1)[seed], seed=seed),
                chain_task(5),
            ),
        )
    assert not groups_equal(prompt, collect_group(tree, KeyedTextEngine(), chain_task(6)))


def test_a_retry_continues_from_its_turns_and_starts_no_branch_twice(tmp_path: Path):
    def play(times: int, path: str) -> tuple[Group, KeyedTextEngine]:
        engine = KeyedTextEngine()
        task = Task(
            faulty_envs.ENVIRONMENT_ID,
            0,
            {"how": "raise", "path": str(tmp_path / path), "times": times},
        )
        return collect_group(BranchingRollouts(10, 8, 2, always), engine, task), engine

    (healthy_group, engine), (faulty, other) = play(0, "none"), play(3, "some")
    assert [t.parent for t in healthy_group.trajectories] == [t.parent for t in faulty.trajectories]

    def bare(group: Group) -> list[Any]:
        return [
            (t.parent, t.branch_turn, [(c.key, c.action.tolist()) for c in t.calls])
            for t in group.trajectories
        ]

    assert (
        bare(healthy_group) == bare(faulty) and faulty.num_dropped == 0 and other.held_ids == set()
    )
    assert (
        len(other.calls) - len(engine.calls) <= 3
    )  # only the turns whose environments failed were sampled again
    assert faulty.num_turns_played == len(
        {id(c) for t in faulty.trajectories for c in t.calls}
    )  # shared by id, across retries too


def test_environments_that_always_fail_are_counted_as_dropped(tmp_path: Path):
    task = Task(
        faulty_envs.ENVIRONMENT_ID,
        0,
        {"how": "raise", "path": str(tmp_path / "log"), "times": 10**6},
    )
    group = collect_group(BranchingRollouts(10, 6, 2, always), KeyedTextEngine(), task, retries=1)
    assert group.trajectories == () and group.num_dropped == 6


@pytest.mark.parametrize("good", [2, 4])
def test_branches_whose_environments_fail_do_not_change_other_branches(good: int, tmp_path: Path):
    task, healthy = (
        Task(BRITTLE_ID, 0, {"healthy_resets": n, "path": str(tmp_path / str(n))})
        for n in (good, 100)
    )
    group, healthy_group = (
        collect_group(BranchingRollouts(10, 6, 2, always), KeyedTextEngine(), each_task, retries=1)
        for each_task in (task, healthy)
    )
    assert (len(group.trajectories), group.num_dropped) == (good, 6 - good) and (
        len(healthy_group.trajectories),
        healthy_group.num_dropped,
    ) == (6, 0)
    calls = [[(c.key, c.action.tolist()) for c in t.calls] for t in group.trajectories]
    assert calls == [
        [(c.key, c.action.tolist()) for c in t.calls] for t in healthy_group.trajectories[:good]
    ]
    assert all(t.total_reward == 3 for t in group.trajectories)


def test_a_branchs_limits_count_the_turns_before_it():
    agent = dataclasses.replace(AGENT, limits=Limits(turns=3))
    group = collect_group(
        BranchingRollouts(10, 8, 2, always), KeyedTextEngine(), chain_task(2), agent
    )
    assert len(group.trajectories) == 8 and max(len(t.turns) for t in group.trajectories) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"initial_rollouts": 0},
        {"beam": 0},
        {"group_size": 0},
        {"entropy_tokens": 0},
        {"vocab_size": 1},
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, Any]):
    with pytest.raises(UserError, match="branching needs"):
        collect_group(BranchingRollouts(**{"vocab_size": 10, **wrong}), KeyedTextEngine())


def test_hard_attribution_is_the_mean_of_soft_on_shared_tokens():
    group = collect_group(
        BranchingRollouts(10, 12, 4, always), KeyedTextEngine(), chain_task(3, progress=True)
    )
    credit_inputs = make_credit_inputs([group], collate([group]))
    soft = group_normalized(credit_inputs)
    hard, owner = (
        PrefixMean()(credit_inputs, soft),
        [c for t in group.trajectories for c in t.calls for _ in c.action],
    )
    for call in {id(c): c for c in owner}.values():
        indices = [i for i, c in enumerate(owner) if c is call]
        n = len(call.action)
        assert hard[indices] == pytest.approx(soft[indices].mean()) and len(indices) % n == 0
    assert hard.sum() == pytest.approx(soft.sum()) and np.abs(hard - soft).max() > 0.1


@pytest.mark.slow
def test_on_the_engine_a_branch_is_a_copied_slot_and_only_new_tokens_are_prefilled():
    engine, tree = local_engine(), BranchingRollouts(len(TOKENIZER), 8, 2, always)
    with make_runtime(engine) as runtime:
        (plain,) = runtime.collect(IndependentEpisodes(8), [chain_task(1)], KEY)
        before = engine.counts
        (group,) = runtime.collect(tree, [chain_task(1)], KEY)
        computed, copies = (
            prompt_tokens_computed(engine, before),
            engine.counts["copies"] - before["copies"],
        )
        (again,) = runtime.collect(tree, [chain_task(1)], KEY)
    assert [episode_content(t) for t in group.trajectories[:2]] == [
        episode_content(t) for t in plain.trajectories[:2]
    ]
    assert (
        groups_equal(group, again)
        and engine._slot_table._slot_of_call == {}
        and engine.counts["evictions"] == 0
    )
    assert sum(t.parent is not None for t in group.trajectories) == 6 and copies >= 6
    fresh = list({id(call): call for t in group.trajectories for call in t.calls}.values())
    # All but the last token of a first prompt, and the environment's reply to the parent's call:
    # nothing that a sibling had.
    assert (
        computed
        == sum(len(c.prompt) - (len(c.parent.ids) if c.parent else 1) for c in fresh)
        < sum(len(c.prompt) for c in fresh) / 2
    )
