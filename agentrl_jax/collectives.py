"""What a compiled program moves between devices, read from its text: every exchange, how often, and over which mesh axes."""

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.sharding import Mesh

BYTES = {
    "pred": 1, "s4": 1, "u4": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2,
    "f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8, "u64": 8,
}  # fmt: skip
KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
COLLECTIVE = re.compile(rf"%?([\w.\-]+) = (.*?) ({'|'.join(KINDS)})(-start)?\(")
BETWEEN_SLICES = re.compile(r' = (.*?) recv\(.*_xla_megascale_target="\{(.*?)\}x\{(.*?)\}".*_xla_megascale_transfer_type="(\w+)"')
ARRAY = re.compile(rf"\b({'|'.join(BYTES)})\[([\d,]*)\]")
Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Collective:
    """One exchange between devices."""

    kind: str
    shapes: tuple[tuple[int, ...], ...]  # of what each device gets
    bytes: int
    groups: Groups  # who exchanges with whom, by place in the mesh; of a permutation, (from, to)
    times: int = 1  # in one run of the program; in an open loop, in one round of it
    loop: bool = False  # inside a while loop, or what one calls
    open: bool = False  # inside a loop that data ends, so that its rounds are not known

    @property
    def sent(self) -> float:
        """Bytes that each device sends in one of them where a ring does it; an all-to-all's are times the mean way there."""
        n = 2 if self.kind == "collective-permute" else max(map(len, self.groups))
        share: dict[str, float] = {"all-gather": (n - 1) / n, "all-reduce": 2 * (n - 1) / n, "reduce-scatter": n - 1, "all-to-all": n / 4}
        return float(self.bytes * share.get(self.kind, 1))

    def axes(self, mesh: Mesh) -> tuple[str, ...]:
        """The axes of the mesh along which it goes; an axis of which each group takes only a part is called `part of NAME`."""
        sizes = tuple(mesh.shape.values())
        places = [np.unravel_index(group, sizes) for group in self.groups if len(group)]
        wide = [max(len(set(place[i].tolist())) for place in places) for i in range(len(sizes))]
        named = zip(mesh.axis_names, wide, sizes)
        permuted = self.kind == "collective-permute"
        return tuple(name if permuted or n == size else f"part of {name}" for name, n, size in named if n > 1)


def collectives(hlo: str) -> list[Collective]:
    """Every exchange in a compiled program (`compiled.as_text()`), largest first; one that XLA spreads over several fusions counts once.

    An exchange in a loop counts as often as the loop goes round: XLA's own `known_trip_count`, or else the number that the loop's
    condition compares its counter with, less what the counter starts at; JAX's loops count by ones. Every branch of a
    conditional counts. Between slices it is a transfer of hosts, which XLA names by what it stands for. An all-reduce of which
    each device keeps its slice alone, in the fusion that TPUs have for it, is a reduce-scatter.
    """
    module = _Module(hlo)
    found: dict[Any, Collective] = {}
    for name, (times, loop, open_) in module.runs().items():
        lines = module.bodies[name]
        for line in lines:
            match, between = COLLECTIVE.search(line), BETWEEN_SLICES.search(line)
            if between:
                found[name, line] = _between(between, times, loop, open_)
            if not match:
                continue
            types, kind, started = match[2], match[3], bool(match[4])
            if kind == "all-reduce" and re.search(rf"ROOT .* dynamic-slice\(%?{re.escape(match[1])}[,)]", lines[-1]):
                types, kind, started = lines[-1].split(" = ")[1].split(" dynamic-slice(")[0], "reduce-scatter", False
            shapes, size = _results(types, kind, started)
            channel = re.search(r"channel_id=(\d+)", line)
            which = (kind, channel[1], times, loop) if channel else (name, line)  # a round that is peeled off a loop keeps its channels
            found[which] = Collective(kind, shapes, size, _groups(line, module.devices), times, loop, open_)
    return sorted(found.values(), key=lambda x: (-x.bytes, -x.times))


def _between(match: re.Match[str], times: int, loop: bool, open_: bool) -> Collective:
    """An exchange of each chip with those at its place in the other slices; a slice's program knows its own chips alone.

    _xla_megascale_target="{1,2}x{0:3}"  ->  ((0, 4), (1, 5), (2, 6), (3, 7))
    """
    types, slices, places, kind = match.groups()
    shapes, size = _results(types.split(", u32[]")[0], "", False)
    count, wide = _counted(slices), _counted(places)
    groups = tuple(tuple(place + n * wide for n in range(count)) for place in range(wide))
    return Collective(kind.lower().replace("_", "-"), shapes, size, groups, times, loop, open_)


def _counted(text: str) -> int:
    """How many numbers are listed: 1,2 are two, 0:3 four."""
    ends = [[int(n) for n in part.split(":")] for part in text.split(",")]
    return sum(end[-1] - end[0] + 1 for end in ends)


class _Module:
    """The computations of an HLO module, and how often each runs."""

    def __init__(self, text: str) -> None:
        self.bodies: dict[str, list[str]] = {}
        self.entry, current = "", None
        for line in text.splitlines():
            opened = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line)
            if opened:
                current = self.bodies.setdefault(opened[2], [])
                self.entry = opened[2] if opened[1] else self.entry
            elif current is not None and line.startswith(" "):
                current.append(line)
        count = [int(n) for n in re.findall(r"(?:num_partitions|replica_count)=(\d+)", text.split("\n", 1)[0])]
        self.devices = math.prod(count)

    def runs(self) -> dict[str, tuple[int, bool, bool]]:
        """Of each computation that is run: how often, whether in a loop, whether in one without a known number of rounds."""
        found: dict[str, tuple[int, bool, bool]] = {}

        def visit(name: str, times: int, loop: bool, open_: bool) -> None:
            before = found.get(name, (0, False, False))
            found[name] = before[0] + times, before[1] or loop, before[2] or open_
            for line in self.bodies.get(name, ()):
                if " while(" in line:
                    condition, body = (re.findall(rf"{part}=%?([\w.\-]+)", line)[0] for part in ("condition", "body"))
                    rounds = self.rounds(line, condition, self.bodies[name])
                    visit(condition, times * (1 if rounds is None else rounds + 1), True, open_ or rounds is None)
                    visit(body, times * (1 if rounds is None else rounds), True, open_ or rounds is None)
                elif not re.search(r" async-(update|done)\(", line):
                    for called in _called(line):
                        visit(called, times, loop, open_)

        visit(self.entry, 1, False, False)
        return {name: run for name, run in found.items() if name in self.bodies}

    def rounds(self, line: str, condition: str, around: list[str]) -> int | None:
        """How often a while loop goes round; None where that is not known."""
        known = re.search(r"known_trip_count\D+(\d+)", line)
        if known:
            return int(known[1])
        within, outside = _definitions(self.bodies[condition]), _definitions(around)
        last = self.bodies[condition][-1]
        compared = re.search(r"ROOT .* compare\((?:\S+ )?%?([\w.\-]+), (?:\S+ )?%?([\w.\-]+)\), direction=(LT|LE)", last)
        given = re.search(r" while\((?:.* )?%?([\w.\-]+)\)", line)
        if not compared or not given:
            return None
        carried = re.search(r" tuple\((.*?)\)(?:, |$)", outside.get(given[1], ""))
        items = [item.split("%")[-1].split(" ")[-1] for item in re.sub(r"/\*.*?\*/", "", carried[1]).split(",")] if carried else []

        def value(name: str) -> int | None:
            element = re.search(r" get-tuple-element\(.*\), index=(\d+)", within.get(name, ""))
            if not element:
                return _constant(name, within)
            return _constant(items[int(element[1])], outside) if int(element[1]) < len(items) else None

        start, limit = value(compared[1]), value(compared[2])
        return None if start is None or limit is None else max(0, limit - start + (compared[3] == "LE"))


def _definitions(lines: list[str]) -> dict[str, str]:
    """The line that defines each name."""
    return {match[1]: line for line in lines if (match := re.match(r" +(?:ROOT )?%?([\w.\-]+) = ", line))}


def _constant(name: str, lines: dict[str, str]) -> int | None:
    """The whole number that a name stands for, through copies."""
    line = lines.get(name, "")
    number = re.search(r" constant\((-?\d+)\)", line)
    copied = re.search(r" (?:copy|bitcast|convert)\((?:\S+ )?%?([\w.\-]+)\)", line)
    return int(number[1]) if number else _constant(copied[1], lines) if copied else None


def _called(line: str) -> list[str]:
    """The computations that an instruction runs: calls=%a, branch_computations={%a, %b} ..."""
    listed = re.findall(r"(?:calls|to_apply|_computation|_computations)=(\{[^}]*\}|%?[\w.\-]+)", line)
    return re.findall(r"[\w.\-]+", " ".join(listed))


def _results(types: str, kind: str, started: bool) -> tuple[tuple[tuple[int, ...], ...], int]:
    """The arrays that an instruction's type names, and their bytes; an asynchronous one's type names its operands first.

    (f32[2,8], f32[4,8]) all-gather-start  ->  ((4, 8),), 128
    """
    arrays = [(BYTES[dtype], tuple(int(n) for n in sizes.split(",") if n)) for dtype, sizes in ARRAY.findall(types)]
    if started and kind != "all-reduce":
        arrays = [array for array in arrays if array[1]]  # a permutation's also names two counters
        arrays = arrays[len(arrays) // 2 :]
    return tuple(shape for _, shape in arrays), sum(width * math.prod(shape) for width, shape in arrays)


def _groups(line: str, devices: int) -> Groups:
    """Who exchanges with whom, in all the ways that XLA writes it.

    source_target_pairs={{0,1},{1,0}}                     pairs
    replica_groups={{0,2},{1,3}}, {}                      lists; none: all devices
    replica_groups=[2,2]<=[4], [2,2]<=[2,2]T(1,0)         0, 1, 2 ... in a shape, transposed, in rows of the first shape
    replica_groups=mesh['a'=2,'b'=2] {'a'}                along axes of a mesh of its own, or parts of them: 'a':(2)4;
                                                          its devices may be in another order: , device_ids=([2,2]T(1,0))

    Raises:
        ValueError: it is written otherwise.
    """
    listed = re.search(r"(?:replica_groups|source_target_pairs)=\{((?:\{[\d,]*\},?)*)\}", line)
    if listed:
        groups = [tuple(int(n) for n in group.split(",")) for group in re.findall(r"\{([\d,]+)\}", listed[1])]
        return tuple(groups) or (tuple(range(devices)),)
    rows = re.search(r"replica_groups=\[([\d,]+)\](<=\[[\d,]+\](?:T\([\d,]+\))?)", line)
    if rows:
        return _rows(_order(rows[2]).reshape(_numbers(rows[1])))
    named = re.search(r"replica_groups=mesh\[(.*?)\](?:, ?device_ids=\((\S*?)\))? \{(.*?)\}", line)
    if named:
        return _rows(_along(named[1], named[2], named[3]))
    raise ValueError(f"cannot read who takes part in {line.strip()[:300]}")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(","))


def _rows(table: np.ndarray) -> Groups:
    return tuple(tuple(row) for row in table.tolist())


def _order(text: str) -> np.ndarray:
    """[2,4]T(1,0)  ->  0 4 1 5 2 6 3 7"""
    shape, turned = re.findall(r"\[([\d,]+)\]", text)[0], re.search(r"T\(([\d,]+)\)", text)
    order = np.arange(math.prod(_numbers(shape))).reshape(_numbers(shape))
    return (order.transpose(_numbers(turned[1])) if turned else order).reshape(-1)


def _along(axes: str, devices: str | None, chosen: str) -> np.ndarray:
    """Groups [G, n] along some axes of a mesh, each axis cut into (before, part, after) where a part of it is chosen."""
    sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", axes)}
    parts = {name: (before, size) for name, before, size in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", chosen)}
    shape: list[int] = []
    along: dict[str, int] = {}
    for name, size in sizes.items():
        before, part = (int(n or 0) for n in parts.get(name, ("", "")))
        cut = (before, part, size // (before * part)) if part else (1, size, 1)
        along[name] = len(shape) + 1
        shape += cut
    count = math.prod(shape)
    order = np.arange(count) if not devices else _order(devices) if "[" in devices else np.array(_numbers(devices))
    inner = [along[name] for name in parts]
    outer = [i for i in range(len(shape)) if i not in inner]
    return order.reshape(shape).transpose(outer + inner).reshape(-1, math.prod(shape[i] for i in inner))
