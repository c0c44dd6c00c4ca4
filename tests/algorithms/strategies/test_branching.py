"""Branching after uncertain answers: the rules by hand, trees with exactly n leaves, shared calls and caches, faults in branches."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import naughty
import numpy as np
import pytest
from conversations import taken_in
from hand_made import make_call
from stages import AGENT, BRITTLE, KEY, TOKENIZER, Whimsical, chain, collected, local_engine, runtime_on, same, told

from agentrl_jax.algorithms.advantages import group_normalized
from agentrl_jax.algorithms.strategies.branching import Branching
from agentrl_jax.algorithms.strategies.uncertainty import Penalised, Split, Uncertain, segment_entropy
from agentrl_jax.algorithms.transforms import PrefixMean
from agentrl_jax.errors import UserError
from agentrl_jax.keys import chance_of
from agentrl_jax.rows import collate, evidence_of
from agentrl_jax.speaking import Limits
from agentrl_jax.strategies import Independent
from agentrl_jax.trajectories import Group
from agentrl_jax.workers import Task


def never(uniform: float, more: float, in_a_row: int) -> bool:
    return False


def always(uniform: float, more: float, in_a_row: int) -> bool:
    return True


UNIFORM = ((np.arange(10_000) + 0.5) / 10_000).tolist()


def share(rule: Any, more: float, in_a_row: int = 0) -> float:
    """P(branch)."""
    return float(np.mean([rule(u, more, in_a_row) for u in UNIFORM]))


def test_arpos_probability_by_hand():
    assert share(Uncertain(weight=0.0), 0.7) == 0.5  # nothing but the coin
    assert share(Uncertain(weight=0.5), 1.0) == 1.0
    assert share(Uncertain(weight=0.2), 0.5) == 0.6 and share(Uncertain(weight=0.2), -0.5) == 0.4
    assert share(Uncertain(weight=0.2, base=0.0), -0.5) == 0.0 and share(Uncertain(base=-1.0), 1.0) == 0.0


def test_aepos_probability_by_hand():
    assert share(Penalised(), 0.0) == 0.5 and share(Penalised(), 0.5) == pytest.approx(0.6)
    assert share(Penalised(), 0.0, in_a_row=5) == pytest.approx(1 - 0.5 / 0.75, abs=1e-4)
    assert share(Penalised(), 5.0, in_a_row=10) == 1.0  # (u + 1) / 2 is at least .5
    assert share(Penalised(), 1.0, in_a_row=20) == share(Penalised(), 100.0, in_a_row=25) == 0.0


def test_aepos_first_split_by_hand():
    split = Split()
    assert split(16, 0.3, 0.3) == 9 and split(16, 0.0, 100.0) == 1 and split(16, 100.0, 0.0) == 16
    assert split(8, 1.0, 0.0) == int(8 / (1 + math.exp(-0.5))) + 1 and split(1, 0.0, 0.0) == 1


def test_the_entropy_of_a_segment_by_hand():
    p = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.25, 0.25, 0.25]])
    with np.errstate(divide="ignore"):
        call = dataclasses.replace(make_call([1], [2, 3, 4]), alternative_logp=np.log(p).astype(np.float32))
    assert segment_entropy(call, 1, 2) == pytest.approx(1.0) and segment_entropy(call, 2, 2) == pytest.approx(0.5)
    assert segment_entropy(call, 20, 8) == pytest.approx((math.log(2) + 0 + 0.75 * math.log(4)) / 3 / math.log(8))
    with pytest.raises(UserError, match=r"engine\.alternatives"):
        segment_entropy(make_call([1], [2]), 20, 8)


@pytest.mark.parametrize("settings", [{"first": 8}, {"first": 100}, {"first": 3, "rule": never}, {"first": 3, "beam": 1}])
def test_without_branches_the_tree_is_independent_episodes(settings: dict[str, Any]):
    assert same(collected(Branching(10, 8, **settings), Whimsical()), collected(Independent(8), Whimsical()))


TREES = [
    Branching(10, 12, 4), Branching(10, 12, 1, always), Branching(10, 9, 2, Uncertain(2.0), beam=3), Branching(10, 7, Split()),
    Branching(10, 16, Split(), Penalised(base=0.3)), Branching(10, 1, 1), Branching(10, 5, 5, always), Branching(10, 2, 1, never),
]  # fmt: skip


@pytest.mark.parametrize("tree", TREES)
def test_the_leaves_are_exactly_n_and_siblings_share_what_came_before(tree: Branching):
    engine = Whimsical()
    group = collected(tree, engine, chain(3))
    assert [t.sample for t in group.trajectories] == list(range(tree.group_size)) and group.dropped == 0
    assert engine.held == set()  # nothing is kept when all is done
    for branch in group.trajectories:
        if branch.parent is None:
            assert branch.branch_turn is None
            continue
        parent, shared = group.trajectories[branch.parent], branch.branch_turn
        assert shared is not None and 1 <= shared < len(parent.turns) and branch.parent < branch.sample
        assert all(a is b for a, b in zip(branch.turns[:shared], parent.turns, strict=False))
        assert branch.calls[shared].prompt.tolist() == parent.calls[shared].prompt.tolist()
        assert branch.calls[shared] is not parent.calls[shared] and branch.calls[shared].parent is parent.calls[shared - 1]
        assert {call.key[3] for call in branch.calls[shared:]} == {branch.sample}
    assert len(engine.calls) == len({call.key for call in engine.calls}) == group.played
    assert group.played == len({id(call) for t in group.trajectories for call in t.calls})


def test_decisions_are_those_of_the_rule_in_order_of_turns_and_samples():
    tree = Branching(10, 10, 3, Uncertain(0.6))
    group = collected(tree, Whimsical(), chain(1, horizon=5))
    entropies = [[segment_entropy(call, 20, 10) for call in t.calls] for t in group.trajectories]
    expected, known = [], [(0, 0), (1, 0), (2, 0)]  # (sample, turns that were not its own)
    for turn in range(1, 5):
        for sample, born in tuple(known):
            if born >= turn or len(entropies[sample]) <= turn or len(known) == 10:
                continue
            more = entropies[sample][turn] - entropies[sample][0]
            if chance_of(*KEY, 0, sample, turn, 0) - 0.6 * more <= 0.5:
                expected.append((sample, turn))
                known.append((len(known), turn))
    assert len(expected) > 3
    assert [(t.parent, t.branch_turn) for t in group.trajectories[3:]] == expected + [(None, None)] * (7 - len(expected))


@pytest.mark.parametrize("tree", TREES[:5])
def test_the_tree_follows_from_the_key_and_not_from_who_is_late(tree: Branching):
    prompt = collected(tree, Whimsical(), chain(5))
    for seed in range(3):
        assert same(prompt, collected(tree, Whimsical(moment=0.004, places=(64, 3, 1)[seed], seed=seed), chain(5)))
    assert not same(prompt, collected(tree, Whimsical(), chain(6)))


def test_a_retry_goes_on_from_what_was_played_and_starts_no_branch_twice(tmp_path: Path):
    def play(times: int, path: str) -> tuple[Group, Whimsical]:
        engine = Whimsical()
        task = Task(naughty.NAME, 0, {"how": "raise", "path": str(tmp_path / path), "times": times})
        return collected(Branching(10, 8, 2, always), engine, task), engine

    (whole, engine), (faulty, other) = play(0, "none"), play(3, "some")
    assert [t.parent for t in whole.trajectories] == [t.parent for t in faulty.trajectories]

    def bare(group: Group) -> list[Any]:
        return [(t.parent, t.branch_turn, [(c.key, c.action.tolist()) for c in t.calls]) for t in group.trajectories]

    assert bare(whole) == bare(faulty) and faulty.dropped == 0 and other.held == set()
    assert len(other.calls) - len(engine.calls) <= 3  # only the turns at which worlds failed were sampled again
    assert faulty.played == len({id(c) for t in faulty.trajectories for c in t.calls})  # shared by id, over retries too


def test_worlds_that_always_fail_are_counted_and_earn_nothing(tmp_path: Path):
    task = Task(naughty.NAME, 0, {"how": "raise", "path": str(tmp_path / "log"), "times": 10**6})
    group = collected(Branching(10, 6, 2, always), Whimsical(), task, retries=1)
    assert group.trajectories == () and group.dropped == 6


@pytest.mark.parametrize("good", [2, 4])
def test_branches_whose_worlds_fail_are_counted_and_the_others_are_not_touched(good: int, tmp_path: Path):
    task, healthy = (Task(BRITTLE, 0, {"good": n, "path": str(tmp_path / str(n))}) for n in (good, 100))
    group, whole = (collected(Branching(10, 6, 2, always), Whimsical(), one, retries=1) for one in (task, healthy))
    assert (len(group.trajectories), group.dropped) == (good, 6 - good) and (len(whole.trajectories), whole.dropped) == (6, 0)
    calls = [[(c.key, c.action.tolist()) for c in t.calls] for t in group.trajectories]
    assert calls == [[(c.key, c.action.tolist()) for c in t.calls] for t in whole.trajectories[:good]]
    assert all(t.total_reward == 3 for t in group.trajectories)


def test_branches_count_towards_limits_and_their_trunks_turns_too():
    agent = dataclasses.replace(AGENT, limits=Limits(turns=3))
    group = collected(Branching(10, 8, 2, always), Whimsical(), chain(2), agent)
    assert len(group.trajectories) == 8 and max(len(t.turns) for t in group.trajectories) == 3


@pytest.mark.parametrize("wrong", [{"first": 0}, {"beam": 0}, {"group_size": 0}, {"tokens": 0}, {"vocabulary": 1}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]):
    with pytest.raises(UserError, match="branching needs"):
        collected(Branching(**{"vocabulary": 10, **wrong}), Whimsical())


def test_hard_attribution_is_the_mean_of_soft_on_shared_tokens():
    group = collected(Branching(10, 12, 4, always), Whimsical(), chain(3, progress=True))
    evidence = evidence_of([group], collate([group]))
    soft = group_normalized(evidence)
    hard, owner = PrefixMean()(evidence, soft), [c for t in group.trajectories for c in t.calls for _ in c.action]
    for call in {id(c): c for c in owner}.values():
        mine = [i for i, c in enumerate(owner) if c is call]
        n = len(call.action)
        assert hard[mine] == pytest.approx(soft[mine].mean()) and len(mine) % n == 0
    assert hard.sum() == pytest.approx(soft.sum()) and np.abs(hard - soft).max() > 0.1


@pytest.mark.slow
def test_on_the_engine_a_branch_is_a_row_copy_and_only_new_tokens_are_prefilled():
    engine, tree = local_engine(), Branching(len(TOKENIZER), 8, 2, always)
    with runtime_on(engine) as runtime:
        (plain,) = runtime.collect(Independent(8), [chain(1)], KEY)
        before = engine.counts
        (group,) = runtime.collect(tree, [chain(1)], KEY)
        computed, copies = taken_in(engine, before), engine.counts["copies"] - before["copies"]
        (again,) = runtime.collect(tree, [chain(1)], KEY)
    assert [told(t) for t in group.trajectories[:2]] == [told(t) for t in plain.trajectories[:2]]
    assert same(group, again) and engine._places._home == {} and engine.counts["evictions"] == 0
    assert sum(t.parent is not None for t in group.trajectories) == 6 and copies >= 6
    fresh = list({id(call): call for t in group.trajectories for call in t.calls}.values())
    # All but the last token of a first prompt, and what the world said after the parent's call: nothing that a sibling had.
    assert computed == sum(len(c.prompt) - (len(c.parent.ids) if c.parent else 1) for c in fresh) < sum(len(c.prompt) for c in fresh) / 2
