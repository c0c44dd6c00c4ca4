"""Monte Carlo tree search over turns: bounds by hand, what is searched, what is demonstrated."""

import asyncio
import dataclasses
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from support.strategy_runs import AGENT, KeyedTextEngine, chain_task, collect_group, groups_equal

from agentrl_jax.algorithms.strategies.monte_carlo_tree_search import (
    InsertAfter,
    MonteCarloTreeSearch,
    TurnNode,
)
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, ToolCall, assistant
from agentrl_jax.rollout.agent import Limits
from agentrl_jax.rollout.call_records import placed_calls
from agentrl_jax.trajectories import Group, Trajectory, Turn


def actions(trajectory: Trajectory) -> str:
    return "".join(turn.action.text.strip() for turn in trajectory.turns)


def search(
    texts: Sequence[str] = ("a", "b"), seed: int = 0, horizon: int = 6, **options
) -> tuple[Group, KeyedTextEngine]:
    engine = KeyedTextEngine(texts)
    task = chain_task(seed, horizon=horizon)
    return collect_group(MonteCarloTreeSearch(**options), engine, task), engine


def test_the_upper_confidence_bound_by_hand():
    parent = TurnNode(visits=9)
    child = TurnNode(parent=parent, visits=4, successes=3)
    assert child.upper_bound(0.0) == 0.75
    assert child.upper_bound(2.0) == pytest.approx(0.75 + 2 * math.sqrt(math.log(9) / 4))


def test_a_tree_whose_nodes_are_full_is_closed():
    ended = TurnNode(trajectory=Trajectory((), ()))
    node = TurnNode(children=[ended])
    assert ended.is_closed(2) and node.is_closed(1) and not node.is_closed(2)
    assert not TurnNode(children=[ended, TurnNode()]).is_closed(2)


def test_a_long_search_ends_in_the_shortest_success():
    group, engine = search(episodes=60, children=2)
    best = group.trajectories[0]
    assert group.num_turns_played == len(engine.calls)  # no sibling failed: nothing is corrected
    assert best.success and len(best.turns) == 4  # the chain's length: no turn too many
    assert all(turn.calls[0].source != "demonstration" for turn in best.turns)
    assert best.parent is not None and placed_calls([group]).holds


def test_corrected_episodes_are_successes_with_one_failed_turn_more():
    counts = []
    for seed in range(12):
        group, _ = search(seed=seed, episodes=6, children=2, corrections=2, horizon=7)
        counts.append(len(group.trajectories))
        for trajectory in group.trajectories[1:]:
            text, best = actions(trajectory), actions(group.trajectories[0])
            assert trajectory.success
            # The best path with a turn more, perhaps solved before its end.
            without = {text[:i] + text[i + 1 :] for i in range(len(text))}
            assert any(best.startswith(shorter) for shorter in without)
            assert {call.source for call in trajectory.calls} == {"demonstration"}
    assert 2 <= max(counts) <= 3


def test_a_turn_with_a_malformed_call_is_not_demonstrated():
    def turn(*calls: ToolCall) -> Turn:
        return Turn((), Message("assistant", "", calls), (), 0.0)

    malformed = turn(ToolCall("call_0", "", "{", error="no JSON"))
    root = TurnNode()
    best = TurnNode((turn(),), root, trajectory=Trajectory((), (turn(),), success=True))
    root.children = [TurnNode((malformed,), root), best]
    runtime: Any = SimpleNamespace(agents={"policy": AGENT})  # plays nothing
    search = MonteCarloTreeSearch()
    assert asyncio.run(search._corrected(chain_task(), runtime, best)) == []
    root.children[0] = TurnNode((turn(),), root)
    with pytest.raises(AttributeError, match="with_retries"):
        asyncio.run(search._corrected(chain_task(), runtime, best))


def test_the_turn_after_a_failed_one_can_be_changed():
    def doubt(action: Message) -> Message:
        return assistant(action.text.strip() + " ")

    corrected = [
        trajectory
        for seed in range(6)
        for trajectory in search(seed=seed, episodes=6, children=2, correct=doubt)[0].trajectories
        if any(call.source == "demonstration" for call in trajectory.calls)
    ]
    for trajectory in corrected:
        changed = [turn.action.text.endswith(" ") for turn in trajectory.turns]
        assert changed.count(True) == 1 and changed.index(True) >= 1
    assert corrected


def test_words_are_inserted_after_the_first_marker():
    action = Message("assistant", "<think>a</think><think>b", raw_text="sampled")
    changed = InsertAfter("<think>", "Wait. ")(action)
    assert (changed.text, changed.raw_text) == ("<think>Wait. a</think><think>b", None)


def test_episodes_are_branches_with_shared_calls_and_follow_from_the_key():
    first, engine = search(episodes=12, children=2)
    second, _ = search(episodes=12, children=2)
    assert groups_equal(first, second)
    assert len(engine.calls) < 12 * 6  # turns before a branch are not sampled again


def test_an_exhausted_tree_ends_the_search():
    group, engine = search(horizon=2, episodes=100, children=2)
    assert (
        group.num_turns_played == len(engine.calls) <= 2 + 4
    )  # the nodes of two turns, two children each


def test_a_task_without_a_success_has_an_empty_group():
    group, engine = search(("c",), episodes=3, children=1)
    assert group.trajectories == () and group.num_dropped == 0
    assert group.num_turns_played == len(engine.calls) > 0


def test_an_episode_that_a_limit_cuts_has_failed():
    agent = dataclasses.replace(AGENT, limits=Limits(turns=1))
    task, engine = chain_task(), KeyedTextEngine()
    group = collect_group(MonteCarloTreeSearch(episodes=3), engine, task, agent)
    assert group.trajectories == () and len(engine.calls) == 3


@pytest.mark.parametrize("options", [{"episodes": 0}, {"children": 0}, {"exploration": -1.0}])
def test_impossible_searches_are_refused(options: dict[str, Any]):
    with pytest.raises(UserError, match="a search needs"):
        MonteCarloTreeSearch(**options)
