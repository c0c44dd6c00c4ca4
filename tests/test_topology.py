"""Described chips, and what compiled programs are said to hold and to move."""

import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from hand_made import mesh_of, minute_policy
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec

from agentrl_jax.errors import UserError
from agentrl_jax.sharding import MeshConfig
from agentrl_jax.topology import ENVIRONMENT, Collective, collectives, described_mesh, gathered_stacks, memory

ROOT = Path(__file__).resolve().parent.parent
needs_libtpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu describes TPUs; it is not installed")

HLO = """HloModule jit_f

%inner (p: f32[2,8]) -> f32[8,8] {
  %p = f32[2,8]{1,0} parameter(0)
  ROOT %all-gather.1 = f32[8,8]{1,0} all-gather(%p), channel_id=1, dimensions={0}
}

%again (p: f32[2,8]) -> f32[8,8] {
  %p = f32[2,8]{1,0} parameter(0)
  ROOT %all-gather.2 = f32[8,8]{1,0} all-gather(%p), channel_id=1, dimensions={0}
}

%body (s: (s32[], f32[2,8])) -> (s32[], f32[2,8]) {
  %s = (s32[], f32[2,8]) parameter(0)
  %fusion = f32[8,8]{1,0} fusion(%s), kind=kCustom, calls=%inner
  %permute = (bf16[4,4]{1,0}, bf16[4,4]{1,0}, u32[], u32[]) collective-permute-start(%s), channel_id=2
}

ENTRY %main (x: f32[2,8]) -> f32[2,8] {
  %x = f32[2,8]{1,0:T(8,128)} parameter(0)
  %while.1 = (s32[], f32[2,8]) while(%x), condition=%test, body=%body
  %gathered = (f32[2,8]{1,0}, f32[8,8]{1,0}) all-gather-start(%x), channel_id=3
  %sums = (f32[]{:T(128)}, f32[3]{0}) all-reduce(%x, %x), channel_id=4, to_apply=%add
  %started = f32[5]{0} all-reduce-start(%x), channel_id=5, to_apply=%add
}
"""


def test_exchanges_are_read_from_a_programs_text():
    assert collectives(HLO) == [
        Collective("all-gather", ((8, 8),), 256, loop=True),  # both of channel 1 are one
        Collective("all-gather", ((8, 8),), 256, loop=False),
        Collective("collective-permute", ((4, 4),), 32, loop=True),
        Collective("all-reduce", ((5,),), 20, loop=False),
        Collective("all-reduce", ((), (3,)), 16, loop=False),
    ]


def test_exchanges_of_a_real_program_on_eight_devices():
    mesh = mesh_of(data=8)
    rows, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())

    @functools.partial(jax.jit, out_shardings=whole)
    def total(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, _: (c + (x * c.sum()).sum(0), None), jnp.zeros(4), None, length=3)[0]

    compiled = total.lower(jax.ShapeDtypeStruct((16, 4), jnp.float32, sharding=rows)).compile()
    found = [x for x in collectives(compiled.as_text() or "") if (4,) in x.shapes]
    assert [(x.kind, x.bytes, x.loop) for x in found] == [("all-reduce", 16, True)]
    held = memory(compiled)
    assert held.arguments == 2 * 4 * 4 and held.outputs >= 16 and held.total == held.arguments + held.outputs + held.temporary


def test_a_gather_of_all_layers_is_seen():
    mesh, policy = mesh_of(fsdp=8), minute_policy(layers=3)
    stack = jax.ShapeDtypeStruct((3, 16, 32), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(None, "fsdp")))
    whole = jax.jit(jnp.sin, out_shardings=NamedSharding(mesh, PartitionSpec())).lower(stack).compile().as_text() or ""
    one = jax.jit(lambda x: x[1], out_shardings=NamedSharding(mesh, PartitionSpec())).lower(stack).compile().as_text() or ""
    assert [x.shapes for x in gathered_stacks(whole, policy, mesh)] == [((3, 16, 32),)]
    assert gathered_stacks(one, policy, mesh) == [] and any(x.kind == "all-gather" for x in collectives(one))


def test_a_topology_that_is_none_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch):
    for variable in ENVIRONMENT:
        monkeypatch.setenv(variable, "")  # restored afterwards, whatever is set meanwhile

    def fails(platform: str, topology_name: str) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(topologies, "get_topology_desc", fails)
    with pytest.raises(UserError, match=r"there is no TPU topology 'v5e:3x5' to compile for: install libtpu"):
        described_mesh("v5e:3x5", MeshConfig())


def outcome(*command: str) -> str:
    """What another process prints: this one must not load libtpu."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@needs_libtpu
def test_the_loss_holds_a_small_part_of_the_logits():
    found = json.loads(outcome("benchmarks/tpu_compile.py", "loss"))
    assert found["logits"] == 4 * 4096 * 151_936 * 4 and found["temporary"] < 0.1 * found["logits"]


@pytest.mark.slow
@needs_libtpu
def test_layers_are_gathered_one_at_a_time_on_a_tpu():
    command = ("--topology", "v5e:2x2", "--fsdp", "2", "--tensor", "2", "--layers", "3", "--rows", "2", "--length", "256")
    found = json.loads(outcome("benchmarks/tpu_compile.py", "update", *command))  # fails where they are not
    assert found["mesh"] == {"data": 1, "fsdp": 2, "expert": 1, "tensor": 2}
    assert any(x["kind"] == "all-gather" and x["loop"] for x in found["gradient"]["collectives"])


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
