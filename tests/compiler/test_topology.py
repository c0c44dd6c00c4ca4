"""TPU topologies, the memory of compiled programs, and checks of programs compiled for TPUs."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec
from support.described import needs_libtpu, run_python
from support.fixtures import device_mesh, tiny_policy
from support.hlo_checks import stacked_all_gathers

from agentrl_jax.compiler.hlo_collectives import parse_collectives
from agentrl_jax.compiler.topology import (
    LIBTPU_ENV,
    program_memory,
    topology_mesh,
)
from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.errors import UserError


def test_an_all_gather_of_all_layers_is_detected():
    mesh, policy = device_mesh(fsdp=8), tiny_policy(layers=3)
    split, replicated = (
        NamedSharding(mesh, spec) for spec in (PartitionSpec(None, "fsdp"), PartitionSpec())
    )
    stack = jax.ShapeDtypeStruct((3, 16, 32), jnp.float32, sharding=split)

    def hlo_of(f: Callable[[jax.Array], jax.Array]) -> str:
        return jax.jit(f, out_shardings=replicated).lower(stack).compile().as_text() or ""

    all_layers, one_layer = hlo_of(jnp.sin), hlo_of(lambda x: x[1])
    assert [x.shapes for x in stacked_all_gathers(all_layers, policy, mesh)] == [((3, 16, 32),)]
    assert stacked_all_gathers(one_layer, policy, mesh) == []
    assert any(x.kind == "all-gather" for x in parse_collectives(one_layer))


def test_program_memory_adds_up_arguments_outputs_and_temporaries():
    rows = NamedSharding(device_mesh(data=8), PartitionSpec("data"))
    x = jax.ShapeDtypeStruct((16, 4), jnp.float32, sharding=rows)
    memory = program_memory(jax.jit(lambda x: x.sum(0)).lower(x).compile())
    assert memory.arguments == 2 * 4 * 4 and memory.outputs >= 16
    assert memory.total == memory.arguments + memory.outputs + memory.temporary


@pytest.mark.parametrize(
    "name",
    [
        "",
        "v5e",
        "v5e:",
        "v5e:4by4",
        "0v5e:4x4",
        "x v5e:4x4",
        "2 v5e:4x4",
        "v5e:4x4 v5e:4x4",
        "V5E:4x4",
    ],
)
def test_a_malformed_topology_name_is_refused(name: str):
    with pytest.raises(UserError, match="a topology is written like v5e:4x4"):
        topology_mesh(name, MeshConfig())


@dataclass(frozen=True)
class Chip:
    id: int
    slice_index: int
    platform: str = "cpu"
    device_kind: str = "cpu"
    process_index: int = 0


class Slices:
    """Two slices of four chips."""

    devices = tuple(Chip(i, i // 4) for i in range(8))


def test_the_data_axis_spans_slices(monkeypatch: pytest.MonkeyPatch):
    for variable in LIBTPU_ENV:
        monkeypatch.setenv(variable, "")
    arguments = {}
    monkeypatch.setattr(
        topologies, "get_topology_desc", lambda **kwargs: arguments.update(kwargs) or Slices
    )
    mesh = topology_mesh("2x v5e:2x2", MeshConfig(data=-1, fsdp=2))
    assert arguments == {"platform": "tpu", "topology_name": "v5e:2x2", "num_slices": 2}
    assert dict(mesh.shape) == {"data": 4, "fsdp": 2, "expert": 1, "tensor": 1}
    assert [x.slice_index for x in mesh.devices[:, 0, 0, 0]] == [0, 0, 1, 1]
    assert dict(topology_mesh("2x v5e:2x2", MeshConfig(data=2, fsdp=-1)).shape)["fsdp"] == 4
    with pytest.raises(UserError, match="the data axis spans slices: 1 is not a multiple of the 2"):
        topology_mesh("2x v5e:2x2", MeshConfig(data=1, fsdp=8))


def test_an_unknown_topology_is_refused(monkeypatch: pytest.MonkeyPatch):
    for variable in LIBTPU_ENV:
        monkeypatch.setenv(variable, "")  # so that it is restored afterwards

    def fails(platform: str, topology_name: str) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(topologies, "get_topology_desc", fails)
    with pytest.raises(
        UserError, match=r"there is no TPU topology 'v5e:3x5' to compile for: install libtpu"
    ):
        topology_mesh("v5e:3x5", MeshConfig())


@pytest.mark.slow
@needs_libtpu
def test_the_loss_holds_a_small_part_of_the_logits():
    memory = json.loads(run_python("benchmarks/studies/loss_memory.py"))
    assert memory["logits"] == 4 * 4096 * 151_936 * 4
    assert memory["temporary"] < 0.1 * memory["logits"]


@pytest.mark.slow
@needs_libtpu
def test_layers_are_gathered_one_at_a_time_on_a_tpu():
    code = """
import sys
sys.path.append("tests")
from support.hlo_checks import stacked_all_gathers
from agentrl_jax.launch.plans.figures import compile_program
from agentrl_jax.launch.plans.programs import update_programs
from agentrl_jax.launch.plans.subject import PlanSpec
from agentrl_jax.compiler.topology import topology_mesh

shape = dict(sizes="layers=3", fsdp=2, tensor=2, rows=2, length=256)
spec = PlanSpec(topology="v5e:2x2", preset="qwen3_0_6b", **shape)
mesh = topology_mesh(spec.topology, spec.mesh())
(gradient, _), _ = update_programs(spec, mesh)
hlo = compile_program(gradient).text
print(stacked_all_gathers(hlo, spec.policy(), mesh), hlo.count(" all-gather("))
"""
    gathered, count = run_python("-c", code).rsplit(maxsplit=1)
    assert gathered == "[]" and int(count) > 3


@pytest.mark.slow
@needs_libtpu
def test_attention_compiles_for_a_tpu_as_splash_attention():
    """Every head size, dtype and option of `kernel_for`, forward and backward, on a mesh."""
    code = """
import jax, jax.numpy as jnp
from agentrl_jax.models.attention_kernels import attend_rows, kernel_for
from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.compiler.topology import topology_mesh

cases = [
    (512, 128, "bfloat16", 0, 0.0, {}),
    (128, 64, "float32", 100, 20.0, {}),
    (256, 256, "bfloat16", 64, 0.0, {}),
    (640, 128, "bfloat16", 300, 0.0, {"prefix_length": 256, "branch_length": 128}),
]
with jax.set_mesh(topology_mesh("v5e:2x2", MeshConfig(data=2, tensor=2))):
    for length, size, dtype, window, cap, branches in cases:
        assert kernel_for("tpu", length, size, dtype, cap)[0] == "splash"

        def loss(query, key, value, *ids):
            options = dict(scale=0.1, window=window, cap=cap, **branches)
            return attend_rows(query, key, value, *ids, **options).astype(jnp.float32).sum()

        query = jax.ShapeDtypeStruct((2, length, 2, 2, size), jnp.dtype(dtype))
        key = jax.ShapeDtypeStruct((2, length, 2, size), jnp.dtype(dtype))
        ids = jax.ShapeDtypeStruct((2, length), jnp.int32)
        gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
        compiled = gradient.lower(query, key, key, ids, ids).compile()
        print(compiled.as_text().count("tpu_custom_call"))
"""
    # The forward kernel, and the gradients of queries and of keys.
    assert all(int(count) >= 3 for count in run_python("-c", code).split())


@pytest.mark.slow
@needs_libtpu
def test_a_mesh_may_split_an_axis_of_the_torus():
    code = """
import json
from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.compiler.topology import topology_mesh

for name in ("v6e:4x4", "v5e:4x4"):
    print(json.dumps(topology_mesh(name, MeshConfig(data=2, fsdp=4, tensor=2)).shape))
config = MeshConfig(data=2, fsdp=4, expert=2, tensor=4)
print(json.dumps(topology_mesh("v5p:4x4x4", config).shape))
"""
    *small, large = map(json.loads, run_python("-c", code).splitlines())
    assert small == [{"data": 2, "fsdp": 4, "expert": 1, "tensor": 2}] * 2
    assert large == {"data": 2, "fsdp": 4, "expert": 2, "tensor": 4}
