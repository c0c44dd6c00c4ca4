"""Chips that are not here: described TPUs to compile for, and what a compiled program holds in memory and moves between them."""

import math
import os
import re
from dataclasses import dataclass
from typing import Any

import jax
from jax.experimental import topologies
from jax.sharding import Mesh
from jax.stages import Compiled

from agentrl_jax.errors import UserError
from agentrl_jax.policy import Policy
from agentrl_jax.sharding import MeshConfig, is_names, make_mesh, shards

# What libtpu asks of its host before it describes chips that the host does not have; no chip is used, so several may ask.
ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-16",  # any: topologies of all kinds are described
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8, "u64": 8}
KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
COLLECTIVE = re.compile(rf" = (.*?) ({'|'.join(KINDS)})(-start)?\(")
ARRAY = re.compile(rf"({'|'.join(BYTES)})\[([\d,]*)\]")


def described_mesh(name: str, config: MeshConfig) -> Mesh:
    """A mesh over the chips of a topology (`v5e:4x4`, `v5p:2x2x2`), none of which need exist; only libtpu is needed.

    Programs lowered under it are compiled for those chips: `with jax.set_mesh(mesh): jax.jit(f).lower(shapes).compile()`.

    Raises:
        UserError: libtpu is missing or does not know the topology, or the mesh does not fit it.
    """
    if jax.default_backend() != "tpu":
        for variable, value in ENVIRONMENT.items():
            os.environ.setdefault(variable, value)
    try:
        devices = topologies.get_topology_desc(platform="tpu", topology_name=name).devices
    except Exception as error:  # jaxlib raises its own errors, and RuntimeError without libtpu
        raise UserError(f"there is no TPU topology {name!r} to compile for: install libtpu, and name one like v5e:4x4 ({error})") from error
    return make_mesh(config, devices)


@dataclass(frozen=True)
class Memory:
    """Bytes on each device while a program runs."""

    arguments: int
    outputs: int
    aliased: int  # outputs that take the place of donated arguments
    temporary: int

    @property
    def total(self) -> int:
        return self.arguments + self.outputs - self.aliased + self.temporary


def memory(compiled: Compiled) -> Memory:
    """XLA's own account of a compiled program."""
    found: Any = compiled.memory_analysis()
    return Memory(found.argument_size_in_bytes, found.output_size_in_bytes, found.alias_size_in_bytes, found.temp_size_in_bytes)


@dataclass(frozen=True)
class Collective:
    """One exchange between devices; in a loop it happens once each time round."""

    kind: str
    shapes: tuple[tuple[int, ...], ...]  # of what each device gets
    bytes: int
    loop: bool  # inside the body of a while loop, or of what it calls


def collectives(hlo: str) -> list[Collective]:
    """Every exchange in a compiled program (`compiled.as_text()`), largest first; one that XLA spreads over several fusions counts once."""
    bodies = _computations(hlo)
    looped: set[str] = set()
    reached = [name for lines in bodies.values() for line in lines for name in re.findall(r"body=%?([\w.\-]+)", line)]
    while reached:
        name = reached.pop()
        if name not in looped:
            looped.add(name)
            reached += [called for line in bodies.get(name, ()) for called in _called(line)]
    found: dict[Any, Collective] = {}
    for name, lines in bodies.items():
        for line in lines:
            match, channel = COLLECTIVE.search(line), re.search(r"channel_id=(\d+)", line)
            if match:
                shapes, size = _results(match[1], match[2], bool(match[3]))
                which = (match[2], shapes, channel[1] if channel else line)
                loop = name in looped or (which in found and found[which].loop)
                found[which] = Collective(match[2], shapes, size, loop)
    return sorted(found.values(), key=lambda x: -x.bytes)


def gathered_stacks(hlo: str, policy: Policy, mesh: Mesh) -> list[Collective]:
    """The all-gathers that bring a matrix of all layers to a device at once, where one layer's at a time would do.

    A stacked matrix [L, ..., ...] is known by L and its size, whole or split over `tensor` or `expert`. Should be empty.
    """
    stacks = set()
    names = jax.tree.leaves(policy.axes(), is_leaf=is_names)
    for axes, weight in zip(names, jax.tree.leaves(jax.eval_shape(policy.init, jax.random.key(0))), strict=True):
        if axes[0] == "layers" and weight.ndim > 2 and weight.shape[0] > 1:
            parts = {shards(mesh, chosen) for chosen in ((), ("tensor",), ("expert",), ("expert", "tensor"))}
            stacks |= {(weight.shape[0], weight.size // n) for n in parts}

    def whole(shape: tuple[int, ...]) -> bool:
        return any((n, math.prod(shape)) in stacks for n in shape)

    return [x for x in collectives(hlo) if x.kind == "all-gather" and any(map(whole, x.shapes))]


def _called(line: str) -> list[str]:
    """The computations that an instruction runs: calls=%a, body=%a, branch_computations={%a, %b} ..."""
    listed = re.findall(r"(?:calls|to_apply|body|condition|_computation|_computations)=(\{[^}]*\}|%?[\w.\-]+)", line)
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


def _computations(text: str) -> dict[str, list[str]]:
    """The lines of each computation of an HLO module, by name."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        opened = re.match(r"(?:ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        if opened:
            current = found.setdefault(opened[1], [])
        elif found and line.startswith(" "):
            current.append(line)
    return found
