"""The computations of a compiled program, parsed from its HLO text, and how often each runs."""

import math
import re
from typing import NamedTuple


class Runs(NamedTuple):
    """How often a computation runs, as in `hlo_collectives.Collective`."""

    count: int = 0
    in_loop: bool = False
    in_unbounded_loop: bool = False


class HloModule:
    """The computations of an HLO module, and how often each runs."""

    def __init__(self, text: str) -> None:
        self.computations: dict[str, list[str]] = {}
        self.entry_computation, current = "", None
        for line in text.splitlines():
            header = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line)
            if header:
                current = self.computations.setdefault(header[2], [])
                self.entry_computation = header[2] if header[1] else self.entry_computation
            elif current is not None and line.startswith(" "):
                current.append(line)
        header = text.split("\n", 1)[0]
        counts = re.findall(r"(?:num_partitions|replica_count)=(\d+)", header)
        self.num_devices = math.prod(map(int, counts))

    def run_counts(self) -> dict[str, Runs]:
        """How often each computation that is reached runs."""
        runs_of: dict[str, Runs] = {}

        def visit(name: str, runs: Runs) -> None:
            earlier = runs_of.get(name, Runs())
            runs_of[name] = Runs(
                earlier.count + runs.count,
                earlier.in_loop or runs.in_loop,
                earlier.in_unbounded_loop or runs.in_unbounded_loop,
            )
            for line in self.computations.get(name, ()):
                if " while(" in line:
                    condition = re.findall(r"condition=%?([\w.\-]+)", line)[0]
                    body = re.findall(r"body=%?([\w.\-]+)", line)[0]
                    trips = self.trip_count(line, condition, self.computations[name])
                    is_unbounded = runs.in_unbounded_loop or trips is None
                    condition_trips = 1 if trips is None else trips + 1
                    visit(condition, Runs(runs.count * condition_trips, True, is_unbounded))
                    body_trips = 1 if trips is None else trips
                    visit(body, Runs(runs.count * body_trips, True, is_unbounded))
                elif not re.search(r" async-(update|done)\(", line):
                    for called in _called_computations(line):
                        visit(called, runs)

        visit(self.entry_computation, Runs(1))
        return {name: runs for name, runs in runs_of.items() if name in self.computations}

    def trip_count(self, line: str, condition: str, caller_lines: list[str]) -> int | None:
        """The number of iterations of a while loop; None where it is not known."""
        trip_count = re.search(r"known_trip_count\D+(\d+)", line)
        if trip_count:
            return int(trip_count[1])
        inner, outer = _definitions(self.computations[condition]), _definitions(caller_lines)
        compare = re.search(
            r"ROOT .* compare\((?:\S+ )?%?([\w.\-]+), (?:\S+ )?%?([\w.\-]+)\), direction=(LT|LE)",
            self.computations[condition][-1],
        )
        operand = re.search(r" while\((?:.* )?%?([\w.\-]+)\)", line)
        if not compare or not operand:
            return None
        carry = re.search(r" tuple\((.*?)\)(?:, |$)", outer.get(operand[1], ""))
        carry_text = re.sub(r"/\*.*?\*/", "", carry[1]) if carry else ""
        items = [x.split("%")[-1].split(" ")[-1] for x in carry_text.split(",")] if carry else []

        def constant_of(name: str) -> int | None:
            element = re.search(r" get-tuple-element\(.*\), index=(\d+)", inner.get(name, ""))
            if not element:
                return _int_constant(name, inner)
            index = int(element[1])
            return _int_constant(items[index], outer) if index < len(items) else None

        start, limit = constant_of(compare[1]), constant_of(compare[2])
        if start is None or limit is None:
            return None
        return max(0, limit - start + (compare[3] == "LE"))


def _definitions(lines: list[str]) -> dict[str, str]:
    """The line that defines each name."""
    return {
        match[1]: line
        for line in lines
        if (match := re.match(r" +(?:ROOT )?%?([\w.\-]+) = ", line))
    }


def _int_constant(name: str, lines: dict[str, str]) -> int | None:
    """The integer constant that a name refers to, through copies."""
    line = lines.get(name, "")
    constant = re.search(r" constant\((-?\d+)\)", line)
    if constant:
        return int(constant[1])
    copy = re.search(r" (?:copy|bitcast|convert)\((?:\S+ )?%?([\w.\-]+)\)", line)
    return _int_constant(copy[1], lines) if copy else None


def _called_computations(line: str) -> list[str]:
    """The computations that an instruction runs: calls=%a, branch_computations={%a, %b} ..."""
    listed = re.findall(
        r"(?:calls|to_apply|_computation|_computations)=(\{[^}]*\}|%?[\w.\-]+)", line
    )
    return re.findall(r"[\w.\-]+", " ".join(listed))
