"""Every published method trains on episodes that each kind of limit cuts."""

import os
from typing import Any

import jax
import numpy as np
import pytest
from support.limited_runs import LIMITS, RUNS, limited_groups

from agentrl_jax.algorithms import methods

# One method for each trainer, and those that read success on the host. The others differ in their
# device loss; `test_truncated_episodes.py` runs their host side.
DISTINCT = (
    "ExpertIterationConfig",
    "archer",
    "dart",
    "grpo",
    "ilql",
    "mars",
    "refuel",
    "simpletir",
    "spear",
    "ufo",
)
FAST = ("ExpertIterationConfig", "grpo", "refuel", "simpletir", "spear")
CUTTING = [kind for kind in LIMITS if kind != "none"]
STOP_REASONS = {"none": "terminated", "calls": "turns", "opening": "context"}


def assert_trains(name: str, kinds: list[str]) -> None:
    params, metrics = RUNS[name]().train(kinds)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    values = jax.device_get(jax.tree.leaves(metrics))
    assert len(values) > 3 and all(np.isfinite(value).all() for value in values)


def test_every_published_method_is_here():
    assert set(RUNS) == set(methods.__all__)


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("kind", LIMITS)
def test_each_limit_cuts_every_episode(kind: str, pairs: bool):
    turns = LIMITS[kind][1]
    episodes = [t for group in limited_groups(kind, pairs) for t in group.trajectories]
    assert len(episodes) == (8 if pairs else 16)
    assert {t.stop_reason for t in episodes} == {STOP_REASONS.get(kind, kind)}
    assert {len(t.turns) for t in episodes} == {turns}
    outcomes: set[Any] = {t.succeeded for t in episodes}
    assert outcomes == ({True, False} if kind == "none" else {False})
    assert {len(call.action) for t in episodes for call in t.calls} == (
        {1, 2} if kind in ("tokens", "context") else {2} if turns else set()
    )


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=() if x in FAST else pytest.mark.slow) for x in DISTINCT],
)
def test_a_method_trains_on_episodes_of_which_limits_cut_most(name: str):
    assert_trains(name, list(LIMITS))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*methods.__all__} - {*DISTINCT}))
def test_every_other_method_does_too(name: str):
    assert_trains(name, list(LIMITS))


@pytest.mark.skipif("ALL_LIMITS" not in os.environ, reason="make test-limits does it")
@pytest.mark.slow
@pytest.mark.parametrize("kind", CUTTING)
@pytest.mark.parametrize("name", methods.__all__)
def test_a_method_trains_where_one_limit_cuts_all_episodes(name: str, kind: str):
    assert_trains(name, [kind])
