"""`sandbox_attacks`: the attack battery on each rung that is here, as root and as a user.

Generates the table of docs/sandbox.md.
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from agentrl_jax.errors import UserError
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.sandbox.attack import Attack
from agentrl_jax.launch.benchmarks.sandbox.battery import ATTACKS, Battery
from agentrl_jax.launch.benchmarks.sandbox.battery_process import NOBODY
from agentrl_jax.launch.dataclass_flags import option

TIMEOUT = 900.0  # seconds of a battery


class Column(NamedTuple):
    """One run of the battery."""

    title: str
    rung: str
    user: str = ""
    host: str = ""


AS_ROOT = (
    Column("landlock, root", "LANDLOCK"),
    Column("landlock, user", "LANDLOCK", str(NOBODY)),
    Column("landlock of Linux 5.13, no namespaces, user", "LANDLOCK", str(NOBODY), "old"),
    Column("bubblewrap, root", "BUBBLEWRAP"),
    Column("bubblewrap, user", "BUBBLEWRAP", str(NOBODY)),
    Column("gvisor, root", "GVISOR"),
)
AS_USER = (
    Column("landlock, user", "LANDLOCK"),
    Column("landlock of Linux 5.13, no namespaces, user", "LANDLOCK", "", "old"),
    Column("bubblewrap, user", "BUBBLEWRAP"),
    Column("gvisor, user", "GVISOR"),
)


@dataclass
class AttackTable:
    """Each attack runs in a battery of its own process; root also tries what holds it."""

    page: str = option(
        "", "The page whose table `sandbox-attacks` is replaced, docs/sandbox.md; empty: none."
    )

    def prepare(self) -> None:
        """Uses none of this process's devices."""

    def run(self) -> dict[str, Any]:
        """Attack, print the table and report. Raises UserError where a battery breaks off."""
        is_root = os.geteuid() == 0
        columns: dict[str, Mapping[str, list[str]]] = {}
        absent = {}
        for column in AS_ROOT if is_root else AS_USER:
            report = run_battery(column)
            if "absent" in report:
                absent[column.title] = report["absent"]
            else:
                columns[column.title] = report["results"]
        table = attack_table(columns, self.without_protection() if is_root else {})
        if self.page:
            doc_tables.replace_section(Path(self.page), "sandbox-attacks", table)
        print(table)
        return {
            "bench": "sandbox_attacks",
            "attacks": len(ATTACKS),
            "not_held": {
                title: {name: achieved for name, achieved in results.items() if achieved}
                for title, results in columns.items()
            },
            "absent": absent,
            "kernel": platform.release(),
        }

    def without_protection(self) -> dict[str, bool]:
        """Whether each attack succeeds where what holds it is switched off."""
        with Battery() as battery:
            return {
                attack.name: not battery.run_weakened(attack).is_held
                for attack in ATTACKS
                if attack.held_by or attack.loose_limits
            }


def run_battery(column: Column) -> dict[str, Any]:
    """The report of `battery_process`. Raises UserError where there is none."""
    module = "agentrl_jax.launch.benchmarks.sandbox.battery_process"
    done = subprocess.run(
        [sys.executable, "-m", module, column.rung, column.user, column.host],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    if done.returncode:
        raise UserError(f"the battery on {column.title} broke off: {done.stderr[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def attack_table(
    columns: Mapping[str, Mapping[str, list[str]]], without: Mapping[str, bool]
) -> str:
    titles = list(columns)
    lines = [
        f"| attack | held by | succeeds without | {' | '.join(titles)} |",
        "|---" * (len(titles) + 3) + "|",
    ]
    for attack in ATTACKS:
        succeeds = {True: "yes", False: "no", None: ""}[without.get(attack.name)]
        cells = ["not held" if columns[title][attack.name] else "held" for title in titles]
        lines.append(f"| {attack.name} | {_holders(attack)} | {succeeds} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _holders(attack: Attack) -> str:
    """What must be switched off for an attack to succeed."""
    limits = [name.removesuffix("_mb").removesuffix("_kb") for name in attack.loose_limits]
    names = [name.replace("_", " ") for name in (*attack.held_by, *limits)]
    return " + ".join(names) or "what the host believes"
