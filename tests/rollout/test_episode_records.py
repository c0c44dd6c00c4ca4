"""Invariants of recorded episodes, on episodes with one fault each."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from support.fixtures import make_call, make_trajectory, make_turn

from agentrl_jax.rollout.episode_counts import (
    EpisodeCounts,
    EpisodeTotals,
    conserved_episodes,
    outcome_of,
)
from agentrl_jax.rollout.episode_records import (
    distinct_episodes,
    dropped_episodes,
    recorded_calls,
    recorded_ends,
    reported_end,
    weight_versions,
)
from agentrl_jax.training.staleness import GroupTotals, conserved_groups
from agentrl_jax.trajectories import Call, Episode, Group, Sampling, Trajectory

STOP = 9


def sampled_call(key: int = 0, **fields: Any) -> Call:
    """A call that ends with its stop token, sampled with weights 2 and 3."""
    call = make_call([1, 2], [5, STOP], logp=[-0.5, -1.5], version=[2, 3])
    sampling = Sampling(budget=4, temperature=0.8, stop_ids=(STOP,))
    call = dataclasses.replace(call, sampling=sampling, key=(0, key), **fields)
    return call.with_checksum()


def group_of(*calls: Call, **fields: Any) -> Group:
    """A group with a trajectory of one turn for each call."""
    trajectories = [make_trajectory(make_turn([call], terminated=True)) for call in calls]
    numbered = [t.replace(sample=i) for i, t in enumerate(trajectories)]
    return Group("t", tuple(numbered), **fields)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"prompt": np.array([1, 3], np.int32)},
        {"action": np.array([6, STOP], np.int32)},
        {"action": np.array([5], np.int32)},
        {"sampler_logp": np.array([-1.5, -0.5], np.float32)},
        {"version": np.array([1, 3], np.int32)},
        {"sampling": Sampling(budget=4, temperature=0.7, stop_ids=(STOP,))},
    ],
    ids=str,
)
def test_a_call_is_as_it_was_sampled(changes: dict[str, Any]):
    call = dataclasses.replace(sampled_call(), **changes)
    assert recorded_calls([group_of(call)]).holds == (not changes)
    unknown = dataclasses.replace(call, checksum=0)
    patched = dataclasses.replace(call, source="patch")
    assert recorded_calls([group_of(unknown, patched)]).holds


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({"finish_reason": "budget"}, False),
        ({"sampling": Sampling(budget=2), "finish_reason": "budget"}, True),
        ({"sampling": Sampling(budget=4, stop_ids=(5,))}, False),
        ({"sampling": Sampling(budget=4, stop_strings=("x",))}, True),
        ({"finish_reason": "context"}, True),
    ],
)
def test_a_call_ends_as_it_says(changes: dict[str, Any], holds: bool):
    call = dataclasses.replace(sampled_call(), **changes).with_checksum()
    assert recorded_calls([group_of(call)]).holds == holds


def test_a_copy_of_an_episode_is_no_other_one():
    first, second = sampled_call(0), sampled_call(1)
    assert distinct_episodes([group_of(first), group_of(second)]).holds
    assert not distinct_episodes([group_of(first), group_of(second, first)]).holds
    unnamed = dataclasses.replace(first, key=())
    assert distinct_episodes([group_of(unnamed, unnamed)]).holds
    (parent,) = group_of(first).trajectories
    branch = parent.replace(parent=0, branch_turn=1)  # cut where it branched off
    assert distinct_episodes([Group("t", (parent, branch))]).holds
    assert not distinct_episodes([Group("t", (parent, branch.replace(branch_turn=0)))]).holds


@pytest.mark.parametrize(
    ("reason", "terminated", "truncated", "holds"),
    [
        ("terminated", True, False, True),
        ("terminated", False, True, False),
        ("terminated", False, False, False),
        ("truncated", False, True, True),
        ("truncated", True, False, False),
        ("turns", False, False, True),
        ("context", False, False, True),
    ],
)
def test_an_episode_ends_as_its_environment_says(
    reason: Any, terminated: bool, truncated: bool, holds: bool
):
    turn = dataclasses.replace(
        make_turn([sampled_call()], terminated=terminated), truncated=truncated
    )
    trajectory = make_trajectory(turn).replace(stop_reason=reason)
    assert recorded_ends([Group("t", (trajectory,))]).holds == holds
    assert reported_end(trajectory, terminated, truncated).holds == holds


def test_versions_are_within_what_the_source_allows():
    groups = [group_of(sampled_call())]
    assert weight_versions(groups, 2, 3).holds
    assert not weight_versions(groups, 3, 3).holds and not weight_versions(groups, 2, 2).holds
    unknown = dataclasses.replace(sampled_call(), source="patch", version=np.array([-1, -1]))
    assert weight_versions([group_of(unknown)], 3, 3).holds and weight_versions([], 3, 3).holds


def test_dropped_episodes_are_a_fraction():
    assert dropped_episodes(5, 10, 0.5).holds and dropped_episodes(0, 0, 0.0).holds
    check = dropped_episodes(6, 10, 0.5)
    assert not check.holds and "6 of 10 episodes were dropped after their retries (60%)" in (
        check.detail
    )


GROUP = group_of(sampled_call(0), sampled_call(1), num_dropped=1)


@pytest.mark.parametrize(
    ("totals", "holds"),
    [
        (EpisodeTotals(started=3, finished=1, truncated=1, failed=1), True),
        (EpisodeTotals(started=4, finished=1, truncated=1, failed=1), False),  # one is in flight
        (EpisodeTotals(started=4, finished=1, truncated=1, failed=1, cancelled=1), True),
        (EpisodeTotals(started=4, finished=1, truncated=1, failed=1, empty=1), True),
        (EpisodeTotals(started=4, finished=2, truncated=1, failed=1), False),  # one is lost
        (EpisodeTotals(started=2, finished=2, truncated=1), False),  # one ended twice
        (EpisodeTotals(), True),  # a search that counts no episodes
    ],
)
def test_no_episode_is_lost(totals: EpisodeTotals, holds: bool):
    assert conserved_episodes(totals, [GROUP]).holds == holds


def test_discarded_episodes_are_not_lost():
    totals = EpisodeTotals(started=8, finished=8)
    assert not conserved_episodes(totals, [GROUP]).holds
    assert conserved_episodes(totals, [dataclasses.replace(GROUP, discarded_turns=5)]).holds


def test_no_group_is_lost():
    assert conserved_groups(GroupTotals(started=9, taken=4, waiting=2, in_flight=3)).holds
    assert not conserved_groups(GroupTotals(started=9, taken=4, waiting=2, in_flight=2)).holds


def test_every_end_of_an_episode_is_counted():
    counts, (finished, cut) = EpisodeCounts(), GROUP.trajectories
    results: list[Trajectory | Episode | None] = [
        finished,
        cut.replace(stop_reason="tokens"),
        cut.replace(turns=()),
        None,
        Episode(0, (finished, cut)),
        Episode(0, (finished, cut.replace(turns=()))),
    ]
    for result in results:
        with counts.episode() as end:
            end.result = result
    with pytest.raises(KeyError), counts.episode():
        raise KeyError
    assert counts.totals == EpisodeTotals(
        started=7, finished=2, truncated=1, empty=2, failed=1, cancelled=1
    )
    assert counts.totals.since(EpisodeTotals(started=6)).started == 1
    assert outcome_of(finished.replace(stop_reason="error")) == "finished"
