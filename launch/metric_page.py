"""Write the tables of docs/metrics.md: python -m agentrl_jax.launch.metric_page"""

import sys
from collections.abc import Sequence
from pathlib import Path

from agentrl_jax.launch import cli, doc_tables
from agentrl_jax.reporting.metric_names import METRIC_GROUPS, MetricGroup

PAGE, SECTION = Path("docs/metrics.md"), "metrics"


def metric_tables(groups: Sequence[MetricGroup] = METRIC_GROUPS) -> str:
    """A heading and a table for each group."""
    return "\n\n".join(_group_table(group) for group in groups)


def _group_table(group: MetricGroup) -> str:
    names = f"Computed in `{group.module}`" + ("; `<agent>/...` too." if group.by_agent else ".")
    rows = [f"| `{x.name}` | {x.unit} | {x.meaning} |" for x in group.metrics]
    header = ["| metric | unit | meaning |", "|---|---|---|"]
    return "\n".join([f"### {group.title}", "", names, "", *header, *rows])


def _write() -> None:
    doc_tables.replace_section(PAGE, SECTION, metric_tables())


def main() -> None:
    sys.exit(cli.run(_write))


if __name__ == "__main__":
    main()
