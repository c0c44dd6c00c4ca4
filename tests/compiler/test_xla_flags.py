"""The compiler's flags of each chip: which chip there is, whose flags win, and that a CPU starts
with every table.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.described import needs_libtpu, run_python

from agentrl_jax.compiler.xla_flags import (
    FLAGS,
    PCI_VENDOR,
    TPU_VARIABLE,
    XLA_VARIABLE,
    detect_chip,
    set_flags,
)
from agentrl_jax.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


def machine(folder: Path, pci: tuple[str, str] | None = None, file: str = "") -> Path:
    """The root of a file system with one PCI device, by vendor and device, and one file in /dev."""
    if pci:
        device = folder / "sys/bus/pci/devices/0000:00:05.0"
        device.mkdir(parents=True)
        for name, number in zip(("vendor", "device"), pci):
            (device / name).write_text(f"{number}\n")
    if file:
        (folder / "dev").mkdir()
        (folder / "dev" / file).touch()
    return folder


@pytest.mark.parametrize(
    ("pci", "file", "platforms", "chip"),
    [
        ((PCI_VENDOR, "0x005e"), "", "", "v4"),
        ((PCI_VENDOR, "0x0062"), "", "tpu,cpu", "v5p"),
        ((PCI_VENDOR, "0x0063"), "", "", "v5e"),
        ((PCI_VENDOR, "0x006f"), "", "", "v6e"),
        ((PCI_VENDOR, "0x0076"), "", "", "tpu7x"),
        ((PCI_VENDOR, "0x0027"), "", "", ""),  # a v3, of which there is no table
        ((PCI_VENDOR, "0x0063"), "", "cpu", ""),
        (("0x10de", "0x0063"), "", "", ""),  # another vendor's
        (None, "nvidia0", "", "gpu"),
        (None, "nvidiactl", "cuda", "gpu"),
        (None, "nvidia0", "cpu", ""),
        (None, "nvidia0", "tpu", ""),
        (None, "", "", ""),
    ],
)
def test_the_chip_is_known_by_the_files_of_the_machine(
    pci: tuple[str, str] | None, file: str, platforms: str, chip: str, tmp_path: Path
):
    assert detect_chip({"JAX_PLATFORMS": platforms}, machine(tmp_path, pci, file)) == chip


@pytest.mark.parametrize("chip", FLAGS)
def test_the_flags_of_a_chip_are_in_the_variable_that_its_compiler_reads(chip: str):
    environ: dict[str, str] = {}
    chosen = set_flags("default", chip, environ)
    variable = XLA_VARIABLE if chip == "gpu" else TPU_VARIABLE
    assert environ == {variable: " ".join(FLAGS[chip])}
    assert chosen is not None and chosen.flags == FLAGS[chip]
    assert str(chosen).startswith(f"XLA flags of {chip}, in {variable}: --xla_")
    assert len({flag.partition("=")[0] for flag in FLAGS[chip]}) == len(FLAGS[chip])
    # jaxlib ends the process at a flag of libtpu's, and libtpu at one of a GPU's.
    assert all(("xla_gpu_" in flag) == (chip == "gpu") for flag in FLAGS[chip])


def test_a_users_flag_wins_over_the_same_one_of_the_table():
    users = "--xla_tpu_enable_data_parallel_all_reduce_opt=false --xla_tpu_other=3"
    environ = {TPU_VARIABLE: users}
    chosen = set_flags("default", "tpu7x", environ)
    rest = "--xla_tpu_data_parallel_opt_different_sized_ops=true"
    assert chosen is not None and chosen.flags == (rest,)
    assert environ == {TPU_VARIABLE: f"{users} {rest}"}
    everything = {TPU_VARIABLE: " ".join(FLAGS["v5e"])}
    assert set_flags("default", "v5e", dict(everything)) is None


def test_flags_of_the_command_line_replace_the_table_and_win_over_the_variable():
    environ = {TPU_VARIABLE: "--xla_a=1 --xla_b=2"}
    chosen = set_flags("--xla_b=3 --xla_c=4", "v5e", environ)
    assert environ == {TPU_VARIABLE: "--xla_a=1 --xla_b=3 --xla_c=4"}
    assert str(chosen).startswith("XLA flags of the command line, in LIBTPU_INIT_ARGS: --xla_b=3")
    on_cpu: dict[str, str] = {}
    set_flags("--xla_c=4", "", on_cpu)
    assert on_cpu == {XLA_VARIABLE: "--xla_c=4"}


@pytest.mark.parametrize(("choice", "chip"), [("none", "v5e"), ("none", ""), ("default", "")])
def test_nothing_is_set_without_a_table(choice: str, chip: str):
    environ: dict[str, str] = {}
    assert set_flags(choice, chip, environ) is None and environ == {}


@pytest.mark.parametrize("choice", ["", "fast", "xla_a=1", "--xla_a=1 -b"])
def test_what_is_no_flag_is_refused(choice: str):
    with pytest.raises(UserError, match="--xla_flags is default, none, or flags"):
        set_flags(choice, "v5e", {})


COMMAND = """
import json, os, sys
from unittest import mock
from agentrl_jax.launch import cli
from agentrl_jax.compiler import xla_flags

cli.define_xla_flag()
for chip in xla_flags.FLAGS:  # as if all of them were here
    if chip != "gpu":
        xla_flags.set_flags("default", chip)
assert "jax" not in sys.modules

def main():
    import jax
    print(json.dumps([os.environ["XLA_FLAGS"], jax.default_backend(), int(jax.jit(abs)(-3))]))

with mock.patch.object(xla_flags, "detect_chip", lambda: "gpu"):
    sys.exit(cli.run(main, ["a command"]))
"""


def test_a_cpu_starts_with_every_table_and_a_command_prints_what_it_sets():
    environ = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    result = subprocess.run(
        [sys.executable, "-c", COMMAND],
        env={**environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    flags = " ".join(FLAGS["gpu"])
    assert json.loads(result.stdout) == [f"{environ['XLA_FLAGS']} {flags}", "cpu", 3]
    assert f"XLA flags of gpu, in XLA_FLAGS: {flags}" in result.stderr


COMPILED = """
import os, sys
from agentrl_jax.compiler.xla_flags import set_flags

chip, name = sys.argv[1:]
set_flags("default", chip)
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from agentrl_jax.compiler.topology import topology_devices

mesh = Mesh(np.array(topology_devices(name)), ("fsdp",))  # make_mesh takes no v4 without megacore
rows = NamedSharding(mesh, PartitionSpec("fsdp"))
x = jax.ShapeDtypeStruct((1024, 1024), "bfloat16", sharding=rows)
print(jax.jit(lambda a, b: a @ b, out_shardings=rows).lower(x, x).compile() is not None)
"""


@pytest.mark.slow
@needs_libtpu
@pytest.mark.parametrize(
    ("chip", "topology"),
    [("v4", "v4:2x2x1"), ("v5e", "v5e:2x2"), ("v5p", "v5p:2x2x1"), ("v6e", "v6e:2x2")],
)
def test_libtpu_compiles_with_the_table_of_its_chip(chip: str, topology: str):
    assert run_python("-c", COMPILED, chip, topology).strip() == "True"
