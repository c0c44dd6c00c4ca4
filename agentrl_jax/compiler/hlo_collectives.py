"""The collectives of a compiled program, parsed from its HLO text, with counts and mesh axes."""

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.sharding import Mesh

from agentrl_jax.compiler.hlo_module import HloModule, Runs

DTYPE_BYTES = {
    "pred": 1, "s4": 1, "u4": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2,
    "f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8, "u64": 8,
}  # fmt: skip
COLLECTIVE_KINDS = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
)
COLLECTIVE_PATTERN = re.compile(rf"%?([\w.\-]+) = (.*?) ({'|'.join(COLLECTIVE_KINDS)})(-start)?\(")
CROSS_SLICE_PATTERN = re.compile(
    r' = (.*?) recv\(.*_xla_megascale_target="\{(.*?)\}x\{(.*?)\}"'
    r'.*_xla_megascale_transfer_type="(\w+)"'
)
ARRAY_PATTERN = re.compile(rf"\b({'|'.join(DTYPE_BYTES)})\[([\d,]*)\]")
DeviceGroups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Collective:
    """One collective instruction."""

    kind: str
    shapes: tuple[tuple[int, ...], ...]  # of each device's result
    num_bytes: int
    # Indices of the mesh's devices; of a permutation, pairs (source, target).
    groups: DeviceGroups
    count: int = 1  # in one run of the program, or in one iteration of an unbounded loop
    in_loop: bool = False  # inside a while loop, or a computation that one calls
    in_unbounded_loop: bool = False  # inside a loop whose number of iterations is not known

    @property
    def sent_bytes(self) -> float:
        """Bytes that each device sends in a ring; of an all-to-all, times the mean distance."""
        n = 2 if self.kind == "collective-permute" else max(map(len, self.groups))
        factors: dict[str, float] = {
            "all-gather": (n - 1) / n,
            "all-reduce": 2 * (n - 1) / n,
            "reduce-scatter": n - 1,
            "all-to-all": n / 4,
        }
        return float(self.num_bytes * factors.get(self.kind, 1))

    def mesh_axes(self, mesh: Mesh) -> tuple[str, ...]:
        """The mesh axes that its groups span; `part of NAME` where they span a part of an axis."""
        sizes = tuple(mesh.shape.values())
        coords = [np.unravel_index(group, sizes) for group in self.groups if len(group)]
        extents = [max(len(set(c[i].tolist())) for c in coords) for i in range(len(sizes))]
        is_permutation = self.kind == "collective-permute"
        return tuple(
            name if is_permutation or n == size else f"part of {name}"
            for name, n, size in zip(mesh.axis_names, extents, sizes)
            if n > 1
        )


def parse_collectives(hlo: str) -> list[Collective]:
    """Every collective of a compiled program (`compiled.as_text()`), largest first.

    A collective that XLA spreads over several fusions counts once. One in a loop counts once per
    iteration: XLA's `known_trip_count`, or the constant that the loop's condition compares its
    counter with, less the counter's start; JAX's loops increment by one. Every branch of a
    conditional counts. Between slices XLA uses host transfers, which name the collective that they
    implement. An all-reduce of which each device keeps only a slice, in a fusion of TPU programs,
    is a reduce-scatter.
    """
    module = HloModule(hlo)
    collectives: dict[Any, Collective] = {}
    for name, runs in module.run_counts().items():
        lines = module.computations[name]
        for line in lines:
            match, cross_slice = COLLECTIVE_PATTERN.search(line), CROSS_SLICE_PATTERN.search(line)
            if cross_slice:
                collectives[name, line] = _cross_slice_collective(cross_slice, runs)
            if not match:
                continue
            types, kind, is_async = match[2], match[3], bool(match[4])
            if kind == "all-reduce" and re.search(
                rf"ROOT .* dynamic-slice\(%?{re.escape(match[1])}[,)]", lines[-1]
            ):
                types = lines[-1].split(" = ")[1].split(" dynamic-slice(")[0]
                kind, is_async = "reduce-scatter", False
            shapes, size = _result_shapes(types, kind, is_async)
            groups = _device_groups(line, module.num_devices)
            channel = re.search(r"channel_id=(\d+)", line)
            # An iteration that is peeled off a loop keeps its channels.
            key = (kind, channel[1], runs.count, runs.in_loop) if channel else (name, line)
            collectives[key] = Collective(kind, shapes, size, groups, *runs)
    return sorted(collectives.values(), key=lambda x: (-x.num_bytes, -x.count))


def _cross_slice_collective(match: re.Match[str], runs: Runs) -> Collective:
    """A collective of each chip with those at its position in the other slices.

    A slice's program has only the ids of its own chips.
    _xla_megascale_target="{1,2}x{0:3}"  ->  ((0, 4), (1, 5), (2, 6), (3, 7))
    """
    types, slices, chips, kind = match.groups()
    shapes, size = _result_shapes(types.split(", u32[]")[0], "", False)
    num_slices, num_chips = _count_listed(slices), _count_listed(chips)
    groups = tuple(
        tuple(chip + i * num_chips for i in range(num_slices)) for chip in range(num_chips)
    )
    return Collective(kind.lower().replace("_", "-"), shapes, size, groups, *runs)


def _count_listed(text: str) -> int:
    """The length of a list of numbers and ranges: 1,2 has two, 0:3 has four."""
    ends = [[int(n) for n in part.split(":")] for part in text.split(",")]
    return sum(end[-1] - end[0] + 1 for end in ends)


def _result_shapes(
    types: str, kind: str, is_async: bool
) -> tuple[tuple[tuple[int, ...], ...], int]:
    """The shapes of an instruction's type, and their bytes.

    The type of an asynchronous instruction lists its operands first:
    (f32[2,8], f32[4,8]) all-gather-start  ->  ((4, 8),), 128
    """
    arrays = [
        (DTYPE_BYTES[dtype], tuple(int(n) for n in sizes.split(",") if n))
        for dtype, sizes in ARRAY_PATTERN.findall(types)
    ]
    if is_async and kind != "all-reduce":
        arrays = [array for array in arrays if array[1]]  # a permutation's also lists two counters
        arrays = arrays[len(arrays) // 2 :]
    num_bytes = sum(width * math.prod(shape) for width, shape in arrays)
    return tuple(shape for _, shape in arrays), num_bytes


def _device_groups(line: str, num_devices: int) -> DeviceGroups:
    """The device groups of an instruction, in all of XLA's notations.

    source_target_pairs={{0,1},{1,0}}                pairs
    replica_groups={{0,2},{1,3}}, {}                 lists; empty: all devices
    replica_groups=[2,2]<=[4], [2,2]<=[2,2]T(1,0)    the rows of an iota, reshaped and transposed
    replica_groups=mesh['a'=2,'b'=2] {'a'}           along axes of a mesh of its own, or parts of
                                                     them: 'a':(2)4; the mesh may be permuted:
                                                     , device_ids=([2,2]T(1,0))

    Raises:
        ValueError: the notation is another one.
    """
    lists = re.search(r"(?:replica_groups|source_target_pairs)=\{((?:\{[\d,]*\},?)*)\}", line)
    if lists:
        groups = [_parse_ints(group) for group in re.findall(r"\{([\d,]+)\}", lists[1])]
        return tuple(groups) or (tuple(range(num_devices)),)
    iota = re.search(r"replica_groups=\[([\d,]+)\](<=\[[\d,]+\](?:T\([\d,]+\))?)", line)
    if iota:
        return _groups_of_rows(_device_order(iota[2]).reshape(_parse_ints(iota[1])))
    mesh = re.search(r"replica_groups=mesh\[(.*?)\](?:, ?device_ids=\((\S*?)\))? \{(.*?)\}", line)
    if mesh:
        return _groups_of_rows(_groups_along_axes(mesh[1], mesh[2], mesh[3]))
    raise ValueError(f"cannot read the device groups of {line.strip()[:300]}")


def _parse_ints(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(","))


def _groups_of_rows(table: np.ndarray) -> DeviceGroups:
    return tuple(tuple(row) for row in table.tolist())


def _device_order(text: str) -> np.ndarray:
    """[2,4]T(1,0)  ->  0 4 1 5 2 6 3 7"""
    shape = _parse_ints(re.findall(r"\[([\d,]+)\]", text)[0])
    permutation = re.search(r"T\(([\d,]+)\)", text)
    order = np.arange(math.prod(shape)).reshape(shape)
    return (order.transpose(_parse_ints(permutation[1])) if permutation else order).reshape(-1)


def _groups_along_axes(axes: str, device_ids: str | None, group_axes: str) -> np.ndarray:
    """Groups [G, n] along some axes of a mesh.

    Each axis is split into (before, part, after), where a part of it may be selected.
    """
    sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", axes)}
    parts = {
        name: (before, size)
        for name, before, size in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", group_axes)
    }
    shape: list[int] = []
    dimension: dict[str, int] = {}  # of each axis' part, in `shape`
    for name, size in sizes.items():
        before, part = (int(n or 0) for n in parts.get(name, ("", "")))
        dimension[name] = len(shape) + 1
        shape += (before, part, size // (before * part)) if part else (1, size, 1)
    if not device_ids:
        order = np.arange(math.prod(shape))
    elif "[" in device_ids:
        order = _device_order(device_ids)
    else:
        order = np.array(_parse_ints(device_ids))
    inner = [dimension[name] for name in parts]
    outer = [i for i in range(len(shape)) if i not in inner]
    group_size = math.prod(shape[i] for i in inner)
    return order.reshape(shape).transpose(outer + inner).reshape(-1, group_size)
