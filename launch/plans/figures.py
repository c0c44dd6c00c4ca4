"""The cost of a program compiled for described chips: memory, collectives, time at peak rates."""

import re
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh
from jax.stages import Compiled

from agentrl_jax.compiler.flops import matmul_flops
from agentrl_jax.compiler.hardware import GIB, ChipSpec, total_cost
from agentrl_jax.compiler.hlo_collectives import Collective, parse_collectives
from agentrl_jax.compiler.topology import program_memory
from agentrl_jax.launch.plans.programs import Program


@dataclass(frozen=True)
class CollectiveSummary:
    """Equal collectives of a program, summed."""

    kind: str
    axes: str  # mesh axes
    members: int  # devices in a group
    bytes: int  # that a chip receives in one of them
    times: int  # per run; where `open`, per iteration of the loop
    open: bool  # in a loop whose length depends on data
    sent: int  # bytes that a chip sends in all of them, over links and network
    seconds: float  # that all of them take, over links and network
    network: int = 0  # those of `sent` that go over the network between slices


@dataclass(frozen=True)
class ProgramCost:
    """The cost of one program, in bytes and operations of one chip per run.

    Those of `decode` are per iteration of its loop.
    """

    name: str
    mesh: dict[str, int]
    arguments: dict[str, int]
    resident: dict[str, int]  # other arrays on the chip at the same time
    # XLA's size of the arguments minus theirs: layouts add padding, unused arguments are dropped
    padding: int = 0
    outputs: int = 0  # that do not reuse an argument's memory
    temporary: int = 0
    total: int = 0
    missing: int = 0  # bytes that do not fit
    failure: str = ""  # why it does not compile
    exchanges: list[CollectiveSummary] = field(default_factory=list)
    tokens: int = 0  # on all chips
    useful: float = 0.0  # operations of a chip that the model needs, without recomputation
    operations: float = 0.0  # of its matrix products, with recomputed ones
    xla_operations: float = 0.0  # XLA's count: one iteration of each loop, no custom kernels
    traffic: int = 0  # least bytes read from and written to memory
    compute_seconds: float = 0.0
    memory_seconds: float = 0.0
    links_seconds: float = 0.0
    network_seconds: float = 0.0
    compile_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """Where everything overlaps: the longest part."""
        return max(
            self.compute_seconds, self.memory_seconds, self.links_seconds, self.network_seconds
        )

    @property
    def seconds_without_overlap(self) -> float:
        """Where nothing overlaps: the sum."""
        return (
            max(self.compute_seconds, self.memory_seconds)
            + self.links_seconds
            + self.network_seconds
        )

    @property
    def bound(self) -> str:
        parts = ("compute", "memory", "links", "network")
        return max(parts, key=lambda part: getattr(self, f"{part}_seconds"))


@dataclass(frozen=True)
class CompileResult:
    """A compiled program with its text, or why there is none."""

    compiled: Compiled | None
    text: str
    failure: str
    seconds: float


def compile_program(program: Program) -> CompileResult:
    """Compile it; running out of memory is a result with a `failure`, not an error."""
    began = time.perf_counter()
    # JAX's text of the program lacks what newer versions of libtpu add: let libtpu write it.
    with tempfile.TemporaryDirectory() as folder:
        try:
            compiled = program.compile(xla_dump_to=folder, xla_dump_hlo_as_text=True)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            failure = " ".join(str(error).split("RESOURCE_EXHAUSTED:")[1].split("\n")[0].split())
            return CompileResult(None, "", failure, time.perf_counter() - began)
        took = time.perf_counter() - began
        (text,) = (path.read_text() for path in Path(folder).glob("*after_optimizations.txt"))
    return CompileResult(compiled, text, "", took)


def program_cost(
    program: Program, result: CompileResult, chip: ChipSpec, resident: dict[str, int]
) -> ProgramCost:
    """The cost of a compiled program.

    `resident` is all that a chip holds between programs, by kind; the kinds that are arguments of
    this program are not counted twice.
    """
    sizes = {axis: int(n) for axis, n in program.mesh.shape.items()}
    also_resident = {kind: size for kind, size in resident.items() if kind not in program.arguments}
    compiled = result.compiled
    if compiled is None:
        return _out_of_memory_cost(program, sizes, also_resident, chip, result.failure)
    collectives, memory, mesh = (
        parse_collectives(result.text),
        program_memory(compiled),
        program.mesh,
    )
    stepped = [x for x in collectives if x.in_unbounded_loop or not program.is_loop]
    exchange = total_cost(stepped, list(mesh.devices.flat), chip)
    executed = matmul_flops(program.traced.jaxpr, program.attended_fraction) / mesh.size
    # How much of the temporaries one iteration of a loop touches is unknown.
    scratch = 0 if program.is_loop else 2 * memory.temporary
    traffic = program.traffic + scratch + 2 * sum(x.num_bytes * x.count for x in stepped)
    total = memory.total + sum(also_resident.values())
    counted: Any = compiled.cost_analysis() or {}
    return ProgramCost(
        program.name,
        sizes,
        program.arguments,
        also_resident,
        memory.arguments - sum(program.arguments.values()),
        memory.outputs - memory.aliased,
        memory.temporary,
        total,
        max(0, total - int(chip.memory_bytes)),
        "",
        summarize_collectives(collectives, mesh, chip),
        program.tokens,
        (program.model_flops / mesh.size) or executed,
        executed,
        float(counted.get("flops", 0.0)),
        traffic,
        executed / chip.flops_per_second,
        traffic / chip.memory_bandwidth,
        exchange.link_seconds,
        exchange.network_seconds,
        round(result.seconds, 1),
    )


def summarize_collectives(
    collectives: list[Collective], mesh: Mesh, chip: ChipSpec
) -> list[CollectiveSummary]:
    """Equal collectives summed, the slowest first."""
    groups: dict[tuple[Any, ...], list[Collective]] = {}
    for x in collectives:
        members = 2 if x.kind == "collective-permute" else max(map(len, x.groups))
        groups.setdefault(
            (x.kind, " x ".join(x.mesh_axes(mesh)), members, x.num_bytes, x.in_unbounded_loop), []
        ).append(x)
    summaries = []
    for (kind, axes, members, size, is_open), group in groups.items():
        cost = total_cost(group, list(mesh.devices.flat), chip)
        sent, took = (
            round(cost.link_bytes + cost.network_bytes),
            cost.link_seconds + cost.network_seconds,
        )
        times, network = sum(x.count for x in group), round(cost.network_bytes)
        summaries.append(
            CollectiveSummary(kind, axes, members, size, times, is_open, sent, took, network)
        )
    return sorted(summaries, key=lambda x: (-x.seconds, -x.bytes, x.kind, x.axes))


def _out_of_memory_cost(
    program: Program, mesh: dict[str, int], resident: dict[str, int], chip: ChipSpec, failure: str
) -> ProgramCost:
    """The cost of a program that does not fit; the error states the size of its temporaries."""
    match = re.search(r"\(([\d.]+)([MGT])\) exceeds", failure)
    temporary = (
        int(float(match[1]) * GIB * {"M": 2**-10, "G": 1, "T": 2**10}[match[2]]) if match else 0
    )
    total = temporary + sum(program.arguments.values()) + sum(resident.values())
    return ProgramCost(
        program.name, mesh, program.arguments, resident, temporary=temporary, total=total,
        missing=max(1, total - int(chip.memory_bytes)), failure=failure, tokens=program.tokens,
    )  # fmt: skip
