"""The tables of docs/code.md, and the measurement of steps."""

import sys
from pathlib import Path

import pytest

from agentrl_jax.envs.code.generators import GENERATORS
from agentrl_jax.envs.code.protocols import PROTOCOLS
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.code_problems import (
    SESSIONS,
    CodeProblemsBench,
    generator_table,
)
from agentrl_jax.sandbox import kernel

PAGE = Path(__file__).parents[3] / "docs" / "code.md"


def test_the_pages_table_of_generators_is_that_of_the_code():
    table = generator_table()
    assert doc_tables.read_section(PAGE, "generators") == table
    assert len(table.splitlines()) == len(GENERATORS) + 2


def test_the_page_lists_every_protocol():
    assert all(f"\n| `{name}` | " in PAGE.read_text() for name in PROTOCOLS)


@pytest.mark.skipif(
    sys.platform != "linux" or not kernel.landlock_abi(), reason="the kernel has no Landlock"
)
def test_steps_are_measured_with_and_without_code():
    report = CodeProblemsBench(seconds=0.1).run()
    rates = report["steps_per_second"]
    assert rates.keys() == SESSIONS.keys() and all(rate > 1 for rate in rates.values())
