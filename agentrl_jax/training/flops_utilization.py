"""Model FLOPs utilization: the FLOPs of a step's programs, by those that its devices could do."""

from collections.abc import Callable, Mapping
from typing import Any

from jax.sharding import Mesh

from agentrl_jax.compiler.flops import matmul_flops
from agentrl_jax.compiler.hardware import dense_peak
from agentrl_jax.learner.program_meter import PROGRAM_METER, ProgramKind, ProgramWork


def start_meter(mesh: Mesh, log: Callable[[str], None]) -> float | None:
    """Begin to measure the programs on a mesh whose device has a published peak, which is returned;
    elsewhere None, after a line that says so.
    """
    device = mesh.devices.flat[0]
    peak = dense_peak(device.device_kind)
    if peak is None:
        log(
            f"no metrics mfu/...: there is no published peak of this device ({device.device_kind}) "
            "in agentrl_jax/compiler/hardware.py"
        )
    else:
        PROGRAM_METER.start(matmul_flops)
    return peak


def utilization_metrics(
    work: Mapping[ProgramKind, ProgramWork], seconds: float, peak: float | None
) -> dict[str, Any]:
    """FLOPs of a device by `peak` and by the seconds that it ran each kind of program, and of all
    programs by the seconds of the step; nothing without a peak.

    Args:
        work: of the step's programs.
        seconds: of the step.
        peak: FLOPs per second of a device.
    """
    if peak is None or not work:
        return {}
    total = sum(x.flops for x in work.values())
    return {
        **{f"mfu/{kind}": x.flops / x.seconds / peak for kind, x in work.items() if x.seconds},
        "mfu/step": total / seconds / peak,
    }
