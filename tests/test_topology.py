"""Described chips, and what compiled programs are said to hold and to move."""

import json
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pytest
from described import needs_libtpu, outcome
from hand_made import mesh_of, minute_policy
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec

from agentrl_jax.collectives import collectives
from agentrl_jax.errors import UserError
from agentrl_jax.sharding import MeshConfig
from agentrl_jax.topology import ENVIRONMENT, described_mesh, gathered_stacks, memory


def test_a_gather_of_all_layers_is_seen():
    mesh, policy = mesh_of(fsdp=8), minute_policy(layers=3)
    stack = jax.ShapeDtypeStruct((3, 16, 32), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(None, "fsdp")))
    whole = jax.jit(jnp.sin, out_shardings=NamedSharding(mesh, PartitionSpec())).lower(stack).compile().as_text() or ""
    one = jax.jit(lambda x: x[1], out_shardings=NamedSharding(mesh, PartitionSpec())).lower(stack).compile().as_text() or ""
    assert [x.shapes for x in gathered_stacks(whole, policy, mesh)] == [((3, 16, 32),)]
    assert gathered_stacks(one, policy, mesh) == [] and any(x.kind == "all-gather" for x in collectives(one))


def test_memory_is_what_a_program_is_given_makes_and_needs():
    rows = NamedSharding(mesh_of(data=8), PartitionSpec("data"))
    held = memory(jax.jit(lambda x: x.sum(0)).lower(jax.ShapeDtypeStruct((16, 4), jnp.float32, sharding=rows)).compile())
    assert held.arguments == 2 * 4 * 4 and held.outputs >= 16 and held.total == held.arguments + held.outputs + held.temporary


@pytest.mark.parametrize("name", ["", "v5e", "v5e:", "v5e:4by4", "0v5e:4x4", "x v5e:4x4", "2 v5e:4x4", "v5e:4x4 v5e:4x4", "V5E:4x4"])
def test_a_topology_is_written_in_one_way(name: str):
    with pytest.raises(UserError, match="a topology is written like v5e:4x4"):
        described_mesh(name, MeshConfig())


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


def test_the_data_axis_goes_over_slices(monkeypatch: pytest.MonkeyPatch):
    for variable in ENVIRONMENT:
        monkeypatch.setenv(variable, "")
    asked = {}
    monkeypatch.setattr(topologies, "get_topology_desc", lambda **given: asked.update(given) or Slices)
    mesh = described_mesh("2x v5e:2x2", MeshConfig(data=-1, fsdp=2))
    assert asked == {"platform": "tpu", "topology_name": "v5e:2x2", "num_slices": 2}
    assert dict(mesh.shape) == {"data": 4, "fsdp": 2, "expert": 1, "tensor": 1}
    assert [x.slice_index for x in mesh.devices[:, 0, 0, 0]] == [0, 0, 1, 1]
    assert dict(described_mesh("2x v5e:2x2", MeshConfig(data=2, fsdp=-1)).shape)["fsdp"] == 4
    with pytest.raises(UserError, match="the data axis goes over slices: 1 is no multiple of the 2"):
        described_mesh("2x v5e:2x2", MeshConfig(data=1, fsdp=8))


def test_a_topology_that_is_none_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch):
    for variable in ENVIRONMENT:
        monkeypatch.setenv(variable, "")  # restored afterwards, whatever is set meanwhile

    def fails(platform: str, topology_name: str) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(topologies, "get_topology_desc", fails)
    with pytest.raises(UserError, match=r"there is no TPU topology 'v5e:3x5' to compile for: install libtpu"):
        described_mesh("v5e:3x5", MeshConfig())


@pytest.mark.slow
@needs_libtpu
def test_the_loss_holds_a_small_part_of_the_logits():
    found = json.loads(outcome("benchmarks/loss_memory.py"))
    assert found["logits"] == 4 * 4096 * 151_936 * 4 and found["temporary"] < 0.1 * found["logits"]


@pytest.mark.slow
@needs_libtpu
def test_layers_are_gathered_one_at_a_time_on_a_tpu():
    code = """
from agentrl_jax.launch.plans.programs import update
from agentrl_jax.launch.plans.subject import Subject
from agentrl_jax.topology import described_mesh, gathered_stacks

subject = Subject(topology="v5e:2x2", preset="qwen3_0_6b", sizes="layers=3", fsdp=2, tensor=2, rows=2, length=256)
mesh = described_mesh(subject.topology, subject.mesh())
gradient = update(subject, mesh)[0][0].compile().as_text()
print(gathered_stacks(gradient, subject.policy(), mesh), gradient.count(" all-gather("))
"""
    gathered, count = outcome("-c", code).rsplit(maxsplit=1)
    assert gathered == "[]" and int(count) > 3


@pytest.mark.slow
@needs_libtpu
def test_attention_compiles_for_a_tpu_as_splash_attention():
    """Every head size, dtype and option that `served_by` promises, forward and backward, split over rows and heads."""
    code = """
import jax, jax.numpy as jnp
from agentrl_jax.models.kernels import attend_rows, served_by
from agentrl_jax.sharding import MeshConfig
from agentrl_jax.topology import described_mesh

with jax.set_mesh(described_mesh("v5e:2x2", MeshConfig(data=2, tensor=2))):
    cases = [
        (512, 128, "bfloat16", 0, 0.0, {}), (128, 64, "float32", 100, 20.0, {}), (256, 256, "bfloat16", 64, 0.0, {}),
        (640, 128, "bfloat16", 300, 0.0, {"stem": 256, "branch": 128}),
    ]
    for length, size, dtype, window, cap, branches in cases:
        assert served_by("tpu", length, size, dtype, cap)[0] == "splash"
        query = jax.ShapeDtypeStruct((2, length, 2, 2, size), jnp.dtype(dtype))
        shared, ids = jax.ShapeDtypeStruct((2, length, 2, size), jnp.dtype(dtype)), jax.ShapeDtypeStruct((2, length), jnp.int32)
        loss = lambda q, k, v, *ids: attend_rows(q, k, v, *ids, scale=0.1, window=window, cap=cap, **branches).astype(jnp.float32).sum()
        compiled = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(query, shared, shared, ids, ids).compile()
        print(compiled.as_text().count("tpu_custom_call"))
"""
    assert all(int(count) >= 3 for count in outcome("-c", code).split())  # forward, queries' and keys' gradients


@pytest.mark.slow
@needs_libtpu
def test_a_mesh_may_split_an_axis_of_the_torus():
    code = """
import json
from agentrl_jax.sharding import MeshConfig
from agentrl_jax.topology import described_mesh

for name in ("v6e:4x4", "v5e:4x4"):
    print(json.dumps(described_mesh(name, MeshConfig(data=2, fsdp=4, tensor=2)).shape))
print(json.dumps(described_mesh("v5p:4x4x4", MeshConfig(data=2, fsdp=4, expert=2, tensor=4)).shape))
"""
    *small, large = map(json.loads, outcome("-c", code).splitlines())
    assert small == [{"data": 2, "fsdp": 4, "expert": 1, "tensor": 2}] * 2
    assert large == {"data": 2, "fsdp": 4, "expert": 2, "tensor": 4}
