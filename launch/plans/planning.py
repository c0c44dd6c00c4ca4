"""`Plan`: the compiled programs of a `PlanSpec`, the cost of a step, and what does not fit."""

import dataclasses
import json
import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from agentrl_jax.compiler.hardware import ChipSpec, chip_spec
from agentrl_jax.compiler.topology import slice_index, topology_mesh
from agentrl_jax.errors import UserError
from agentrl_jax.launch.plans.figures import ProgramCost, compile_program, program_cost
from agentrl_jax.launch.plans.programs import EnginePrograms, bytes_per_device, update_programs
from agentrl_jax.launch.plans.subject import PlanSpec

UPDATE_PROGRAMS, SAMPLING_PROGRAMS = (
    ("gradient", "optimizer"),
    ("publish", "encode", "prefill", "decode", "move"),
)


@dataclass(frozen=True)
class Plan:
    """The programs of a spec on its chips."""

    spec: PlanSpec
    chip: ChipSpec
    chips: int
    slices: int
    programs: dict[str, ProgramCost]

    @property
    def fits(self) -> bool:
        return not any(x.missing for x in self.programs.values())

    def update_seconds(self, overlapped: bool = True) -> float:
        """Seconds of a step: its microbatches and the optimizer; 0 where it was not compiled."""
        return sum(
            n * self._seconds(name, overlapped)
            for name, n in zip(UPDATE_PROGRAMS, (self.spec.microbatches, 1))
        )

    def _seconds(self, name: str, overlapped: bool) -> float:
        cost = self.programs.get(name)
        if cost is None:
            return 0.0
        return cost.seconds if overlapped else cost.seconds_without_overlap

    def summary(self) -> dict[str, float]:
        """Seconds, rates and MFU at peak rates where everything overlaps; `_apart`: nothing does.

        MFU counts the operations that the model needs.
        """
        rates: dict[str, float] = {}
        gradient, decode, prefill = (
            self.programs.get(name) for name in ("gradient", "decode", "prefill")
        )
        for suffix, overlapped in (("", True), ("_apart", False)):
            step = self.update_seconds(overlapped)
            if gradient and step and not gradient.failure:
                n = self.spec.microbatches
                rates |= {
                    f"update_seconds{suffix}": step,
                    f"update_tokens_per_second{suffix}": n * gradient.tokens / step,
                    f"update_mfu{suffix}": n * gradient.useful / step / self.chip.flops_per_second,
                }
            for name, program in (("prefill", prefill), ("decode", decode)):
                if program and not program.failure:
                    took, engines = (
                        self._seconds(name, overlapped),
                        self.chips // math.prod(program.mesh.values()),
                    )
                    rates |= {
                        f"{name}_seconds{suffix}": took,
                        f"{name}_tokens_per_second{suffix}": engines * program.tokens / took,
                        f"{name}_mfu{suffix}": program.useful / took / self.chip.flops_per_second,
                    }
        return rates

    def sent_bytes(self) -> dict[str, int]:
        """Bytes that a chip sends in an update, by mesh axes."""
        sent: dict[str, int] = {}
        for name, n in zip(UPDATE_PROGRAMS, (self.spec.microbatches, 1)):
            for x in self.programs[name].exchanges if name in self.programs else ():
                sent[x.axes] = sent.get(x.axes, 0) + n * x.sent
        return sent

    def report(self) -> dict[str, Any]:
        """The plan as JSON."""
        programs = {
            name: dataclasses.asdict(x)
            | {"seconds": x.seconds, "seconds_apart": x.seconds_without_overlap, "bound": x.bound}
            for name, x in self.programs.items()
        }
        return {
            "command": plan_command(self.spec),
            "chips": self.chips,
            "slices": self.slices,
            "available": int(self.chip.memory_bytes),
            "fits": self.fits,
            "summary": self.summary(),
            "sent": self.sent_bytes(),
            "programs": programs,
        }


def plan_command(spec: PlanSpec) -> str:
    """The command that makes the plan."""
    options = [
        (x.name, getattr(spec, x.name))
        for x in dataclasses.fields(spec)
        if getattr(spec, x.name) != x.default
    ]
    return " ".join(
        [
            "agentrl-plan",
            *(
                f"--{name}={_quoted(value)}"
                for name, value in sorted(options, key=lambda x: x[0] != "topology")
            ),
        ]
    )


def _quoted(value: Any) -> str:
    return (
        f"'{value}'"
        if " " in str(value)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


def cached_report(spec: PlanSpec, path: Path) -> dict[str, Any]:
    """The report of a plan from its file, which is written where it is missing.

    Raises:
        UserError: the file holds another plan.
    """
    if not path.exists():
        report = compile_plan(spec).report()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1) + "\n")
    report = json.loads(path.read_text())
    if report["command"] != plan_command(spec):
        raise UserError(
            f"{path} holds the plan of {report['command']}, not of {plan_command(spec)}: "
            "delete it to plan again"
        )
    return report


def compile_plan(spec: PlanSpec) -> Plan:
    """Compile the programs of a spec, one after the other.

    Raises:
        UserError: a flag is invalid, libtpu is missing or the mesh does not fit the chips.
    """
    if not spec.topology:
        raise UserError("give the chips with --topology=v5e:4x4, v5p:2x2x2 or '2x v5e:4x4'")
    chip, names = chip_spec(spec.topology), [name for name in spec.programs.split(",") if name]
    unknown = set(names) - {"update", *SAMPLING_PROGRAMS}
    if unknown or not names:
        raise UserError(
            f"--programs names some of {', '.join(['update', *SAMPLING_PROGRAMS])}, not "
            f"{', '.join(sorted(unknown)) or 'none'}"
        )
    if spec.microbatches < 1:
        raise UserError("an update has at least one microbatch")
    mesh = topology_mesh(spec.topology, spec.mesh())
    programs, learner = update_programs(spec, mesh)
    engine = EnginePrograms(
        spec,
        topology_mesh(
            spec.engine_topology or _host_topology(spec.topology, chip, mesh.size),
            spec.engine_config().mesh,
        ),
    )
    sampled, serving = _sampling_costs(
        engine, chip, mesh, learner, spec.separate_chips, set(names) & set(SAMPLING_PROGRAMS)
    )
    also_resident = learner | ({} if spec.separate_chips else serving)
    trained = {
        x.name: program_cost(x, compile_program(x), chip, also_resident)
        for x in programs
        if "update" in names
    }
    slices = len({slice_index(x) for x in mesh.devices.flat})
    return Plan(spec, chip, mesh.size, slices, trained | sampled)


def _host_topology(topology: str, chip: ChipSpec, chips: int) -> str:
    """The chips of one host of a topology."""
    return (
        f"{chip.name}:{chip.host_shape}"
        if chips > math.prod(int(n) for n in chip.host_shape.split("x"))
        else topology
    )


def _sampling_costs(
    engine: EnginePrograms,
    chip: ChipSpec,
    learner_mesh: Mesh,
    learner_bytes: dict[str, int],
    is_apart: bool,
    names: Collection[str],
) -> tuple[dict[str, ProgramCost], dict[str, int]]:
    """The costs of the engine's named programs, and the bytes that it holds between programs.

    `publish` is `reshard` on the learner's chips and `publish` on the engine's.
    """
    weights = engine.weight_shapes()
    resident = {
        "engine weights": bytes_per_device(weights),
        "cache": bytes_per_device(engine.cache_shapes),
        "parked": bytes_per_device(engine.parked_shapes),
    }
    shared_bytes = {} if is_apart else learner_bytes
    costs: dict[str, ProgramCost] = {}
    if "publish" in names:
        reshard, write = engine.publication_programs(learner_mesh, weights)
        on_chip = learner_bytes | ({} if is_apart else resident)
        costs["reshard"] = program_cost(reshard, compile_program(reshard), chip, on_chip)
        # Of a shard that another chip holds there are two copies until it is written.
        on_chip = shared_bytes | resident | {"sent shards": write.arguments["arrays on their way"]}
        on_chip["engine weights"] -= write.arguments["replaced"]
        costs["publish"] = program_cost(write, compile_program(write), chip, on_chip)
    for program in engine.sampling_programs(weights, names):
        costs[program.name] = program_cost(
            program, compile_program(program), chip, shared_bytes | resident
        )
    return costs, resident
