"""The XLA flags of each accelerator, set before JAX starts; JAX is not imported here.

What each flag does, and where that is written:

- `xla_tpu_enable_data_parallel_all_reduce_opt`, `xla_tpu_data_parallel_opt_different_sized_ops`:
  the all-reduce of data parallelism between slices overlaps with more of the program, also where
  sizes differ (jax-ml/jax, docs/xla_flags.md; `DATA_PARALLEL_OVERLAP` of AI-Hypercomputer/maxtext,
  benchmarks/xla_flags_library.py).
- `xla_enable_async_all_gather`: all-gathers run beside other operations (docs/xla_flags.md).
- `xla_tpu_enable_async_collective_fusion`, `..._fuse_all_gather`, `..._multiple_steps`,
  `xla_tpu_overlap_compute_collective_tc`: all-gathers are fused with the computations between their
  start and their end (docs/xla_flags.md; `CF_FOR_ALL_GATHER` of maxtext, in its configs of v5e).
  libtpu 0.0.52 refuses to compile with `fuse_all_gather` for any other chip.
- `xla_gpu_enable_latency_hiding_scheduler`: collectives overlap with computations
  (docs/xla_flags.md and docs/gpu_performance_tips.md of jax-ml/jax).
- `xla_gpu_enable_pipelined_all_gather`, `..._reduce_scatter`, `..._all_reduce`: those of a loop's
  next iteration start in this one (docs/xla_flags.md).
"""

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from agentrl_jax.errors import UserError

XLA_VARIABLE = "XLA_FLAGS"  # read by jaxlib, which ends the process at a flag that it does not know
TPU_VARIABLE = "LIBTPU_INIT_ARGS"  # read by libtpu

_DATA_PARALLEL = (
    "--xla_tpu_enable_data_parallel_all_reduce_opt=true",
    "--xla_tpu_data_parallel_opt_different_sized_ops=true",
)
_ASYNC_GATHER = (*_DATA_PARALLEL, "--xla_enable_async_all_gather=true")
FLAGS: dict[str, tuple[str, ...]] = {
    "v4": _ASYNC_GATHER,
    "v5e": (
        *_ASYNC_GATHER,
        "--xla_tpu_enable_async_collective_fusion=true",
        "--xla_tpu_enable_async_collective_fusion_fuse_all_gather=true",
        "--xla_tpu_enable_async_collective_fusion_multiple_steps=true",
        "--xla_tpu_overlap_compute_collective_tc=true",
    ),
    "v5p": _ASYNC_GATHER,
    "v6e": _ASYNC_GATHER,
    "tpu7x": _DATA_PARALLEL,
    "gpu": (
        "--xla_gpu_enable_latency_hiding_scheduler=true",
        "--xla_gpu_enable_pipelined_all_gather=true",
        "--xla_gpu_enable_pipelined_reduce_scatter=true",
        "--xla_gpu_enable_pipelined_all_reduce=true",
    ),
}
# Of a TPU's PCI device, as hardware_utils.py of JAX 0.10 has them.
PCI_VENDOR = "0x1ae0"
PCI_DEVICES = {
    "0x005e": "v4",
    "0x0062": "v5p",
    "0x0063": "v5e",
    "0x006f": "v6e",
    "0x0076": "tpu7x",
}
GPU_FILES = ("nvidia0", "nvidiactl", "dxg")  # in /dev, likewise


@dataclass(frozen=True)
class ChosenFlags:
    """The flags that a process sets."""

    chip: str  # a key of `FLAGS`; "" for a CPU or an unknown chip
    variable: str  # the environment variable that holds them
    flags: tuple[str, ...]

    def __str__(self) -> str:
        return f"XLA flags of {self.chip or 'the command line'}, in {self.variable}: " + " ".join(
            self.flags
        )


def detect_chip(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> str:
    """The accelerator that JAX will use, by the machine's files; "" for a CPU or an unknown one.

    Args:
        environ: where JAX_PLATFORMS names other platforms, an accelerator is not used.
        root: of the file system.
    """
    platforms = set(filter(None, environ.get("JAX_PLATFORMS", "").split(",")))
    if not platforms or "tpu" in platforms:
        for vendor in sorted((root / "sys/bus/pci/devices").glob("*/vendor")):
            if vendor.read_text().strip() == PCI_VENDOR:
                device = (vendor.parent / "device").read_text().strip()
                if device in PCI_DEVICES:
                    return PCI_DEVICES[device]
    is_gpu = any((root / "dev" / name).exists() for name in GPU_FILES)
    return "gpu" if is_gpu and (not platforms or platforms & {"gpu", "cuda"}) else ""


def set_flags(
    choice: str, chip: str, environ: MutableMapping[str, str] = os.environ
) -> ChosenFlags | None:
    """Set the flags of a chip in the environment variable that its compiler reads.

    Of the table's flags, those that the variable has already stay as the user has set them.

    Args:
        choice: "default": those of the table; "none"; or the flags themselves, which replace the
            table and win over the variable.
        chip: see `detect_chip`.
        environ: is changed; JAX must not have started.

    Returns:
        What was set; None for nothing.

    Raises:
        UserError: `choice` is none of these.
    """
    if choice == "none" or (choice == "default" and chip not in FLAGS):
        return None
    variable = XLA_VARIABLE if chip in ("", "gpu") else TPU_VARIABLE
    present = environ.get(variable, "").split()
    if choice == "default":
        names = set(map(_name, present))
        added = tuple(flag for flag in FLAGS[chip] if _name(flag) not in names)
    else:
        added = tuple(choice.split())
        if not added or not all(flag.startswith("--xla_") for flag in added):
            raise UserError(
                "--xla_flags is default, none, or flags in quotation marks, as "
                f"'--xla_enable_async_all_gather=true': not {choice!r}"
            )
        chosen = set(map(_name, added))
        present = [flag for flag in present if _name(flag) not in chosen]
    if not added:
        return None
    environ[variable] = " ".join((*present, *added))
    return ChosenFlags(chip if choice == "default" else "", variable, added)


def _name(flag: str) -> str:
    return flag.lstrip("-").partition("=")[0]
