"""What a compiled program takes on described chips: memory by kind, exchanges by axis, time at the chip's rates."""

import re
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh
from jax.stages import Compiled

from agentrl_jax.chips import GIB, Chip, in_all
from agentrl_jax.collectives import Collective, collectives
from agentrl_jax.launch.plans.programs import Program
from agentrl_jax.operations import operations
from agentrl_jax.topology import memory


@dataclass(frozen=True)
class Exchange:
    """Like exchanges of a program, together."""

    kind: str
    axes: str  # of the mesh
    members: int  # of a group
    bytes: int  # of what a chip gets from one of them
    times: int  # in a run; of those in an open loop, in a round
    open: bool  # in a loop that data ends
    sent: int  # bytes that a chip sends in all of them, over links and network
    seconds: float  # that all of them take, over both
    network: int = 0  # of the bytes, those over the network between slices


@dataclass(frozen=True)
class Figures:
    """Of one program. Bytes and operations are those of one chip, in a run; `step` figures of decode are of one round of its loop."""

    name: str
    mesh: dict[str, int]
    arguments: dict[str, int]
    beside: dict[str, int]  # what else lives on the chip meanwhile
    padding: int = 0  # by which XLA's count of the arguments differs: layouts take more, what is not used is left out
    outputs: int = 0  # that take no argument's place
    temporary: int = 0
    total: int = 0
    missing: int = 0  # bytes that do not fit
    failure: str = ""  # why there is no program
    exchanges: list[Exchange] = field(default_factory=list)
    tokens: int = 0  # on all chips
    useful: float = 0.0  # operations of a chip that the model itself takes
    operations: float = 0.0  # of its matrix products, recomputed ones too
    xla_operations: float = 0.0  # XLA's count, which takes each loop once and no kernel
    traffic: int = 0  # least bytes to and from memory
    compute_seconds: float = 0.0
    memory_seconds: float = 0.0
    links_seconds: float = 0.0
    network_seconds: float = 0.0
    compile_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """Where everything overlaps: what takes longest."""
        return max(self.compute_seconds, self.memory_seconds, self.links_seconds, self.network_seconds)

    @property
    def seconds_apart(self) -> float:
        """Where nothing does: all of it."""
        return max(self.compute_seconds, self.memory_seconds) + self.links_seconds + self.network_seconds

    @property
    def bound(self) -> str:
        parts = ("compute", "memory", "links", "network")
        return max(parts, key=lambda part: getattr(self, f"{part}_seconds"))


@dataclass(frozen=True)
class Built:
    """A compiled program with its text, or why there is none."""

    compiled: Compiled | None
    text: str
    failure: str
    seconds: float


def build(program: Program) -> Built:
    """Compile it, unless the compiler refuses for want of memory."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:  # `as_text` cannot read all that a newer libtpu writes: libtpu itself writes the text
        try:
            compiled = program.compile(xla_dump_to=folder, xla_dump_hlo_as_text=True)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            failure = " ".join(str(error).split("RESOURCE_EXHAUSTED:")[1].split("\n")[0].split())
            return Built(None, "", failure, time.perf_counter() - began)
        took = time.perf_counter() - began
        (text,) = (path.read_text() for path in Path(folder).glob("*after_optimizations.txt"))
    return Built(compiled, text, "", took)


def figures(program: Program, built: Built, chip: Chip, kept: dict[str, int]) -> Figures:
    """Read what was built. `kept` is all that lives on a chip between programs, by kind; what is no argument is beside it."""
    sizes = {axis: int(n) for axis, n in program.mesh.shape.items()}
    beside = {kind: size for kind, size in kept.items() if kind not in program.arguments}
    compiled = built.compiled
    if compiled is None:
        return _too_big(program, sizes, beside, chip, built.failure)
    found, held, mesh = collectives(built.text), memory(compiled), program.mesh
    stepped = [x for x in found if x.open or not program.loop]
    exchange = in_all(stepped, list(mesh.devices.flat), chip)
    executed = operations(program.traced.jaxpr, program.attended) / mesh.size
    scratch = 0 if program.loop else 2 * held.temporary  # what of it a round of a loop touches is not known
    traffic = program.traffic + scratch + 2 * sum(x.bytes * x.times for x in stepped)
    total = held.total + sum(beside.values())
    counted: Any = compiled.cost_analysis() or {}
    return Figures(
        program.name, sizes, program.arguments, beside, held.arguments - sum(program.arguments.values()), held.outputs - held.aliased,
        held.temporary, total, max(0, total - int(chip.memory)), "", exchanges(found, mesh, chip), program.tokens,
        (program.useful / mesh.size) or executed, executed, float(counted.get("flops", 0.0)), traffic, executed / chip.operations,
        traffic / chip.memory_rate, exchange.links, exchange.network, round(built.seconds, 1),
    )  # fmt: skip


def exchanges(found: list[Collective], mesh: Mesh, chip: Chip) -> list[Exchange]:
    """Like ones summed up, the longest first."""
    alike: dict[tuple[Any, ...], list[Collective]] = {}
    for x in found:
        members = 2 if x.kind == "collective-permute" else max(map(len, x.groups))
        alike.setdefault((x.kind, " x ".join(x.axes(mesh)), members, x.bytes, x.open), []).append(x)
    made = []
    for (kind, axes, members, size, opened), bunch in alike.items():
        taken = in_all(bunch, list(mesh.devices.flat), chip)
        sent, took = round(taken.links_bytes + taken.network_bytes), taken.links + taken.network
        times, network = sum(x.times for x in bunch), round(taken.network_bytes)
        made.append(Exchange(kind, axes, members, size, times, opened, sent, took, network))
    return sorted(made, key=lambda x: (-x.seconds, -x.bytes, x.kind, x.axes))


def _too_big(program: Program, mesh: dict[str, int], beside: dict[str, int], chip: Chip, failure: str) -> Figures:
    """Of a program that the compiler refuses; it says how much the temporaries alone would take."""
    wanted = re.search(r"\(([\d.]+)([MGT])\) exceeds", failure)
    temporary = int(float(wanted[1]) * GIB * {"M": 2**-10, "G": 1, "T": 2**10}[wanted[2]]) if wanted else 0
    total = temporary + sum(program.arguments.values()) + sum(beside.values())
    return Figures(
        program.name, mesh, program.arguments, beside, temporary=temporary, total=total,
        missing=max(1, total - int(chip.memory)), failure=failure, tokens=program.tokens,
    )  # fmt: skip
