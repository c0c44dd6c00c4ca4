"""The table of metrics: the page is the generated one, and patterns of names."""

from pathlib import Path

import pytest

import agentrl_jax
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.metric_page import SECTION, metric_tables
from agentrl_jax.reporting.metric_names import METRIC_GROUPS, MetricGroup, unknown_metrics

ROOT = Path(__file__).parents[2]
PACKAGE = Path(agentrl_jax.__file__).parent


def test_the_tables_of_the_page_are_those_of_the_code():
    assert doc_tables.read_section(ROOT / "docs" / "metrics.md", SECTION) == metric_tables()


def test_no_name_is_listed_twice():
    names = [metric.name for group in METRIC_GROUPS for metric in group.metrics]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("group", METRIC_GROUPS, ids=lambda group: group.title)
def test_the_module_of_a_metric_group_exists(group: MetricGroup):
    assert (PACKAGE / group.module).is_file()


def test_names_are_matched_with_the_agent_or_the_environment_in_them():
    known = [
        "loss",
        "planner/loss",
        "rollout/return",
        "rollout/maze/return",
        "rollout/reward/format",
        "rollout/maze/stopped/tokens",
        "planner/return",
        "evaluation/maze/success",
        "planner/evaluation/return_interval",
        "advantage/turn_3",
        "planner/critic/learning_rate/embeddings",
        "time/seconds",
    ]
    unknown = [
        "Loss",
        "loss/",
        "a/b/loss",
        "planner/time/seconds",
        "rollout/a/b/return",
        "rollout/returns",
        "speed",
    ]
    assert unknown_metrics([*known, *unknown], METRIC_GROUPS) == sorted(unknown)
