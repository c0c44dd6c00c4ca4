"""The file of results, the mutants that are equivalent, and the table of both."""

import hashlib
import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.studies.mutation.mutants import Mutant
from benchmarks.studies.mutation.runner import Outcome

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
MutantKey = tuple[str, ...]


def mutant_key(mutant: Mutant) -> MutantKey:
    """What tells a mutant from all others, of other versions of its module too."""
    site = mutant.site
    return site.module, str(site.line), site.operator, mutant.after, digest(mutant.source)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class ResultsFile:
    """Lines of JSON, one a mutant and one for the tests of a module, which passed without any; the
    last line of a mutant counts.
    """

    path: Path

    def outcomes(self) -> dict[MutantKey, Outcome]:
        return {
            (x["module"], str(x["line"]), x["operator"], x["after"], x["digest"]): Outcome(
                x["status"], x["test"], x["seconds"], {}
            )
            for x in self._read()
            if "module" in x
        }

    def durations(self, files: str, text: str) -> dict[str, float] | None:
        """Seconds of each test of some files; None where they have not passed without a mutant."""
        passed = [
            x for x in self._read() if x.get("passed") == files and x["digest"] == digest(text)
        ]
        return passed[-1]["durations"] if passed else None

    def add(self, mutant: Mutant, outcome: Outcome) -> None:
        site = mutant.site
        self._append(
            module=site.module,
            line=site.line,
            operator=site.operator,
            before=mutant.before,
            after=mutant.after,
            digest=digest(mutant.source),
            status=outcome.status,
            test=outcome.test,
            seconds=round(outcome.seconds, 2),
        )

    def add_passed(self, files: str, text: str, outcome: Outcome) -> None:
        durations = {test: round(seconds, 3) for test, seconds in outcome.durations.items()}
        seconds = round(outcome.seconds, 2)
        self._append(passed=files, digest=digest(text), seconds=seconds, durations=durations)

    def _append(self, **fields: Any) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields, ensure_ascii=False) + "\n")

    def _read(self) -> list[dict]:
        if not self.path.exists():
            return []
        return list(map(json.loads, self.path.read_text(encoding="utf-8").splitlines()))


@dataclass(frozen=True)
class EquivalentMutant:
    """A mutant that no test can kill, and why."""

    module: str
    operator: str
    before: str
    after: str
    reason: str


def equivalent_mutants() -> list[EquivalentMutant]:
    entries = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("mutant", [])
    return [EquivalentMutant(**entry) for entry in entries]


def table(sample: Sequence[Mutant], results: ResultsFile) -> tuple[str, float]:
    """The table by module, and the share of killed mutants among those that are not equivalent."""
    from agentrl_jax.reporting.statistics import wilson_interval

    known = {(x.module, x.operator, x.before, x.after) for x in equivalent_mutants()}
    outcomes = results.outcomes()
    counts: dict[str, Counter[str]] = {}
    for mutant in sorted(sample, key=lambda mutant: mutant.site.module):
        site = mutant.site
        outcome = outcomes.get(mutant_key(mutant))
        status = "left" if outcome is None else outcome.status
        if (site.module, site.operator, mutant.before, mutant.after) in known:
            status = "equivalent"
        count = counts.setdefault(site.module, Counter())
        count[status] += 1
        count["import"] += outcome is not None and outcome.test.startswith("import")
    total = sum(counts.values(), Counter[str]())
    killed, num_judged = total["killed"], _num_judged(total)
    low, high = wilson_interval(killed, num_judged)
    lines = [_row(module, count) for module, count in counts.items()]
    lines.append(_row("all", total))
    lines.append(
        f"{killed} of {num_judged} killed: {_percent(killed, num_judged)} % (95 % interval "
        f"{100 * low:.0f} to {100 * high:.0f} %), {total['import']} of them when the module is "
        "imported"
    )
    header = f"{'module':<55} mutants equivalent killed survived timeout share"
    return "\n".join([header, *lines]), killed / max(num_judged, 1)


def survivors(sample: Iterable[Mutant], results: ResultsFile) -> list[tuple[Mutant, Outcome]]:
    """The mutants that are neither killed nor equivalent."""
    known = {(x.module, x.operator, x.before, x.after) for x in equivalent_mutants()}
    outcomes = results.outcomes()
    pairs = [(mutant, outcomes.get(mutant_key(mutant))) for mutant in sample]
    return [
        (mutant, outcome)
        for mutant, outcome in pairs
        if outcome is not None
        and outcome.status != "killed"
        and (mutant.site.module, mutant.site.operator, mutant.before, mutant.after) not in known
    ]


def _num_judged(count: Counter[str]) -> int:
    return count["killed"] + count["survived"] + count["timeout"]


def _percent(part: int, count: int) -> str:
    return f"{100 * part / count:.1f}" if count else "-"


def _row(name: str, count: Counter[str]) -> str:
    num_judged = _num_judged(count)
    num_mutants = num_judged + count["equivalent"] + count["left"]
    return (
        f"{name:<55} {num_mutants:>7} {count['equivalent']:>10} "
        f"{count['killed']:>6} {count['survived']:>8} {count['timeout']:>7} "
        f"{_percent(count['killed'], num_judged):>5}"
    )
