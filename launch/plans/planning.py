"""A whole plan: every program of a subject compiled, what a step takes, what does not fit."""

import dataclasses
import json
import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl_jax.chips import Chip, chip_of
from agentrl_jax.errors import UserError
from agentrl_jax.launch.plans.figures import Figures, build, figures
from agentrl_jax.launch.plans.programs import Engine, held, update
from agentrl_jax.launch.plans.subject import Subject
from agentrl_jax.topology import described_mesh, slice_of

UPDATE, SAMPLING = ("gradient", "optimizer"), ("publish", "prefill", "decode", "move")


@dataclass(frozen=True)
class Plan:
    """Of a subject on its chips."""

    subject: Subject
    chip: Chip
    chips: int
    slices: int
    programs: dict[str, Figures]

    @property
    def fits(self) -> bool:
        return not any(x.missing for x in self.programs.values())

    def update_seconds(self, overlapped: bool = True) -> float:
        """Of a step: its microbatches, and the optimizer. 0 where they are not planned, or do not compile."""
        return sum(n * self._seconds(name, overlapped) for name, n in zip(UPDATE, (self.subject.microbatches, 1)))

    def _seconds(self, name: str, overlapped: bool) -> float:
        found = self.programs.get(name)
        return 0.0 if found is None else found.seconds if overlapped else found.seconds_apart

    def summary(self) -> dict[str, float]:
        """Rates at the chip's peaks, where everything overlaps; `_apart`: where nothing does. MFU counts what the model itself takes."""
        found: dict[str, float] = {}
        gradient, decode, prefill = (self.programs.get(name) for name in ("gradient", "decode", "prefill"))
        for suffix, overlapped in (("", True), ("_apart", False)):
            step = self.update_seconds(overlapped)
            if gradient and step and not gradient.failure:
                n = self.subject.microbatches
                found |= {
                    f"update_seconds{suffix}": step, f"update_tokens_per_second{suffix}": n * gradient.tokens / step,
                    f"update_mfu{suffix}": n * gradient.useful / step / self.chip.operations,
                }  # fmt: skip
            for name, program in (("prefill", prefill), ("decode", decode)):
                if program and not program.failure:
                    took, engines = self._seconds(name, overlapped), self.chips // math.prod(program.mesh.values())
                    found |= {
                        f"{name}_seconds{suffix}": took, f"{name}_tokens_per_second{suffix}": engines * program.tokens / took,
                        f"{name}_mfu{suffix}": program.useful / took / self.chip.operations,
                    }  # fmt: skip
        return found

    def moved(self) -> dict[str, int]:
        """Bytes that a chip sends in an update, by the axes of the mesh."""
        found: dict[str, int] = {}
        for name, n in zip(UPDATE, (self.subject.microbatches, 1)):
            for x in self.programs[name].exchanges if name in self.programs else ():
                found[x.axes] = found.get(x.axes, 0) + n * x.sent
        return found

    def report(self) -> dict[str, Any]:
        """As JSON."""
        programs = {
            name: dataclasses.asdict(x) | {"seconds": x.seconds, "seconds_apart": x.seconds_apart, "bound": x.bound}
            for name, x in self.programs.items()
        }
        return {
            "command": command(self.subject), "chips": self.chips, "slices": self.slices, "available": int(self.chip.memory),
            "fits": self.fits, "summary": self.summary(), "sent": self.moved(), "programs": programs,
        }  # fmt: skip


def command(subject: Subject) -> str:
    """What to type for its plan."""
    given = [(x.name, getattr(subject, x.name)) for x in dataclasses.fields(subject) if getattr(subject, x.name) != x.default]
    return " ".join(["agentrl-plan", *(f"--{name}={_quoted(value)}" for name, value in sorted(given, key=lambda x: x[0] != "topology"))])


def _quoted(value: Any) -> str:
    return f"'{value}'" if " " in str(value) else str(value).lower() if isinstance(value, bool) else str(value)


def kept_report(subject: Subject, path: Path) -> dict[str, Any]:
    """The report of a plan from its file, or made and put there. Raises UserError where the file's plan is of something else."""
    if not path.exists():
        report = plan(subject).report()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1) + "\n")
    report = json.loads(path.read_text())
    if report["command"] != command(subject):
        raise UserError(f"{path} holds the plan of {report['command']}, not of {command(subject)}: delete it to make it anew")
    return report


def plan(subject: Subject) -> Plan:
    """Compile what the subject asks for, one program after the other.

    Raises:
        UserError: a flag makes no sense, libtpu is missing or the mesh does not fit the chips.
    """
    if not subject.topology:
        raise UserError("say for which chips with --topology=v5e:4x4, v5p:2x2x2 or '2x v5e:4x4'")
    chip, asked = chip_of(subject.topology), [name for name in subject.programs.split(",") if name]
    unknown = set(asked) - {"update", *SAMPLING}
    if unknown or not asked:
        raise UserError(f"--programs names some of {', '.join(['update', *SAMPLING])}, not {', '.join(sorted(unknown)) or 'none'}")
    if subject.microbatches < 1:
        raise UserError("an update has at least one microbatch")
    mesh = described_mesh(subject.topology, subject.mesh())
    programs, learner = update(subject, mesh)
    engine = Engine(subject, described_mesh(subject.engine_topology or _host(subject.topology, chip, mesh.size), subject.engine().mesh))
    sampled, serving = _sampling(engine, chip, {} if subject.apart else learner, set(asked) & set(SAMPLING))
    beside = learner | ({} if subject.apart else serving)
    trained = {x.name: figures(x, build(x), chip, beside) for x in programs if "update" in asked}
    slices = len({slice_of(x) for x in mesh.devices.flat})
    return Plan(subject, chip, mesh.size, slices, trained | sampled)


def _host(topology: str, chip: Chip, chips: int) -> str:
    """The chips of one host of a topology."""
    return f"{chip.name}:{chip.host}" if chips > math.prod(int(n) for n in chip.host.split("x")) else topology


def _sampling(engine: Engine, chip: Chip, learner: dict[str, int], names: Collection[str]) -> tuple[dict[str, Figures], dict[str, int]]:
    """The figures of the engine's programs that are named, and what it holds between programs.

    Publishing is compiled before others, and shown where it fails: it says how the weights lie on the chips.
    """
    publish = engine.publish()
    kept = {"engine weights": publish.arguments["copy"], "cache": held(engine.cache), "parked": held(engine.parked)}
    if not names:
        return {}, kept
    built = build(publish)
    if built.compiled is None:
        return {"publish": figures(publish, built, chip, learner | kept)}, kept
    weights = engine.weights(built.compiled)
    kept["engine weights"] = held(weights)
    found = {"publish": figures(publish, built, chip, learner | kept)} if "publish" in names else {}
    for program in engine.sampling(weights, names):
        found[program.name] = figures(program, build(program), chip, learner | kept)
    return found, kept
