"""Collectives parsed from hand-written HLO and from programs on eight fake devices."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from jax.stages import Lowered
from support.fixtures import device_mesh

from agentrl_jax.compiler.hlo_collectives import Collective, parse_collectives

HLO = """HloModule jit_f, num_partitions=8

%inner (p: f32[2,8]) -> f32[8,8] {
  %p = f32[2,8]{1,0} parameter(0)
  ROOT %all-gather.1 = f32[8,8]{1,0} all-gather(%p), channel_id=1, replica_groups=[2,4]<=[8], dimensions={0}
}

%again (p: f32[2,8]) -> f32[8,8] {
  %p = f32[2,8]{1,0} parameter(0)
  ROOT %all-gather.2 = f32[8,8]{1,0} all-gather(%p), channel_id=1, replica_groups=[2,4]<=[8], dimensions={0}
}

%all-reduce-scatter (p: bf16[8,4]) -> bf16[2,4] {
  %p = bf16[8,4]{1,0} parameter(0)
  %all-reduce.9 = bf16[8,4]{1,0} all-reduce(%p), channel_id=9, replica_groups={{0,2,4,6},{1,3,5,7}}, to_apply=%add
  ROOT %dynamic-slice.1 = bf16[2,4]{1,0} dynamic-slice(%all-reduce.9, %n, %zero), dynamic_slice_sizes={2,4}
}

%deeper (s: (s32[], f32[2,8])) -> (s32[], f32[2,8]) {
  %s = (s32[], f32[2,8]) parameter(0)
  %all-to-all.1 = f32[4]{0} all-to-all(%s), channel_id=6, replica_groups={{0,1,2,3},{4,5,6,7}}
}

%test.deeper (s: (s32[], f32[2,8])) -> pred[] {
  %s = (s32[], f32[2,8]) parameter(0)
}

%body (s: (s32[], f32[2,8])) -> (s32[], f32[2,8]) {
  %s = (s32[], f32[2,8]) parameter(0)
  %fusion = f32[8,8]{1,0} fusion(%s), kind=kCustom, calls=%inner
  %fusion.1 = f32[8,8]{1,0} fusion(%s), kind=kCustom, calls=%again
  %fusion.2 = bf16[2,4]{1,0} fusion(%s), kind=kCustom, calls=%all-reduce-scatter
  %permute = (bf16[4,4]{1,0}, bf16[4,4]{1,0}, u32[], u32[]) collective-permute-start(%s), channel_id=2, source_target_pairs={{0,1},{1,0}}
  %while.2 = (s32[], f32[2,8]) while(%s), condition=%test.deeper, body=%deeper, backend_config={"known_trip_count":{"n":"5"}}
}

%test (s: (s32[], f32[2,8])) -> pred[] {
  %three = s32[]{:T(128)} constant(3)
  %s = (s32[], f32[2,8]) parameter(0)
  %count = s32[]{:T(128)} get-tuple-element(%s), index=0
  ROOT %lt = pred[]{:T(512)} compare(%count, %three), direction=LT
}

%open.test (s: (s32[], f32[2,8])) -> pred[] {
  %s = (s32[], f32[2,8]) parameter(0)
  %live = pred[] all-reduce(%s), channel_id=7, replica_groups={}, to_apply=%or
  ROOT %and = pred[] and(%live, %live)
}

%open (s: (s32[], f32[2,8])) -> (s32[], f32[2,8]) {
  %s = (s32[], f32[2,8]) parameter(0)
  %reduced = f32[2]{0} reduce-scatter(%s), channel_id=8, replica_groups=[4,2]<=[2,4]T(1,0), to_apply=%add
}

ENTRY %main (x: f32[2,8]) -> f32[2,8] {
  %x = f32[2,8]{1,0:T(8,128)} parameter(0)
  %one = s32[]{:T(128)} constant(1)
  %from = s32[]{:T(128)} copy(%one)
  %carried = (s32[]{:T(128)}, /*index=1*/f32[2,8]{1,0}) tuple(%from, %x)
  %while.1 = (s32[], f32[2,8]) while(%carried), condition=%test, body=%body
  %while.3 = (s32[], f32[2,8]) while(%while.1), condition=%open.test, body=%open
  %gathered = (f32[2,8]{1,0}, f32[8,8]{1,0}) all-gather-start(%x), channel_id=3, replica_groups=[2,4]<=[8]
  %sums = (f32[]{:T(128)}, f32[3]{0}) all-reduce(%x, %x), channel_id=4, replica_groups=[1,8]<=[8], to_apply=%add
  %started = f32[5]{0} all-reduce-start(%x), channel_id=5, replica_groups=[1,8]<=[8], to_apply=%add
}
"""  # noqa: E501


def parse_fields(hlo: str) -> list[tuple[Any, ...]]:
    return [
        (x.kind, x.shapes, x.num_bytes, x.count, x.in_loop, x.in_unbounded_loop)
        for x in parse_collectives(hlo)
    ]


def test_collectives_are_parsed_with_shapes_bytes_and_counts():
    assert parse_fields(HLO) == [
        # From 1 to 3 are two iterations; both of channel 1 are one.
        ("all-gather", ((8, 8),), 256, 2, True, False),
        ("all-gather", ((8, 8),), 256, 1, False, False),
        ("collective-permute", ((4, 4),), 32, 2, True, False),
        ("all-reduce", ((5,),), 20, 1, False, False),
        ("all-to-all", ((4,),), 16, 10, True, False),  # five times in each of the two
        ("reduce-scatter", ((2, 4),), 16, 2, True, False),  # an all-reduce and a slice
        ("all-reduce", ((), (3,)), 16, 1, False, False),
        ("reduce-scatter", ((2,),), 8, 1, True, True),  # an unknown number of times
        ("all-reduce", ((),), 1, 1, True, True),
    ]


def test_all_devices_are_one_group_where_none_is_listed():
    assert parse_collectives(HLO)[-1].groups == (tuple(range(8)),)


GROUPS = {
    "{{0,2},{1,3}}": ((0, 2), (1, 3)),
    "{}": ((0, 1, 2, 3, 4, 5, 6, 7),),
    "[4,2]<=[8]": ((0, 1), (2, 3), (4, 5), (6, 7)),
    "[2,4]<=[4,2]T(1,0)": ((0, 2, 4, 6), (1, 3, 5, 7)),
    "[4,2]<=[2,2,2]T(0,2,1)": ((0, 2), (1, 3), (4, 6), (5, 7)),
    "mesh['axis_0'=4,'axis_1'=2] {'axis_0'}": ((0, 2, 4, 6), (1, 3, 5, 7)),
    "mesh['axis_0'=4,'axis_1'=2] {'axis_1'}": ((0, 1), (2, 3), (4, 5), (6, 7)),
    "mesh['axis_0'=4,'axis_1'=2] {'axis_0','axis_1'}": ((0, 1, 2, 3, 4, 5, 6, 7),),
    "mesh['axis_0'=4,'axis_1'=2] {'axis_1','axis_0'}": ((0, 2, 4, 6, 1, 3, 5, 7),),
    "mesh['axis_0'=8] {'axis_0':(2)2}": ((0, 2), (1, 3), (4, 6), (5, 7)),
    "mesh['axis_0'=8] {'axis_0':(1)2}": ((0, 4), (1, 5), (2, 6), (3, 7)),
    "mesh['a'=4], device_ids=(3,2,1,0) {'a'}": ((3, 2, 1, 0),),
    "mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'}": ((0, 2), (1, 3)),
}


@pytest.mark.parametrize("notation", GROUPS)
def test_groups_are_parsed_in_every_notation(notation: str):
    line = (
        f"  ROOT %x = f32[4]{{0}} all-reduce(%p), channel_id=1, replica_groups={notation}, "
        "use_global_device_ids=true, to_apply=%add"
    )
    (x,) = parse_collectives(
        f"HloModule f, num_partitions=8\n\nENTRY %main (p: f32[4]) -> f32[4] {{\n{line}\n}}\n"
    )
    assert x.groups == GROUPS[notation]


def test_groups_in_an_unknown_notation_are_an_error():
    text = HLO.replace("replica_groups=[2,4]<=[8]", "replica_groups=<everyone>")
    with pytest.raises(ValueError, match="cannot read the device groups of"):
        parse_collectives(text)


def collective(kind: str, *groups: tuple[int, ...], size: int = 1200) -> Collective:
    return Collective(kind, ((size,),), size, groups)


@pytest.mark.parametrize(
    ("groups", "axes"),
    [
        (((0, 4), (1, 5), (2, 6), (3, 7)), ("data",)),
        (((0, 2), (1, 3), (4, 6), (5, 7)), ("fsdp",)),
        (((0, 1), (2, 3), (4, 5), (6, 7)), ("tensor",)),
        (((0, 2, 4, 6), (1, 3, 5, 7)), ("data", "fsdp")),
        (((0, 1, 2, 3, 4, 5, 6, 7),), ("data", "fsdp", "tensor")),
        (((0,), (1,)), ()),
    ],
)
def test_groups_span_axes_of_the_mesh(groups: tuple[tuple[int, ...], ...], axes: tuple[str, ...]):
    mesh = device_mesh(data=2, fsdp=2, tensor=2)
    assert collective("all-reduce", *groups).mesh_axes(mesh) == axes


def test_groups_that_span_a_part_of_an_axis_are_named_so():
    mesh = device_mesh(data=8)
    assert collective("all-reduce", (0, 1), (2, 3)).mesh_axes(mesh) == ("part of data",)


def test_a_permutation_spans_the_axes_that_its_pairs_cross():
    mesh = device_mesh(data=2, fsdp=4)
    pairs = (0, 0), (1, 2), (2, 1), (3, 3)
    assert collective("collective-permute", *pairs).mesh_axes(mesh) == ("fsdp",)
    assert collective("collective-permute", (0, 5)).mesh_axes(mesh) == ("data", "fsdp")


def test_bytes_sent_in_a_ring():
    four = (0, 1, 2, 3)
    sent = {
        kind: collective(kind, four).sent_bytes
        for kind in ("all-gather", "all-reduce", "reduce-scatter", "all-to-all")
    }
    assert sent == {
        "all-gather": 900,
        "all-reduce": 1800,
        "reduce-scatter": 3600,
        "all-to-all": 1200,
    }
    assert collective("collective-permute", (0, 1)).sent_bytes == 1200


def compiled_text(lowered: Lowered) -> str:
    return lowered.compile().as_text() or ""


def test_collectives_of_a_compiled_program():
    mesh = device_mesh(data=4, tensor=2)
    rows = NamedSharding(mesh, PartitionSpec("data", "tensor"))

    @functools.partial(jax.jit, out_shardings=NamedSharding(mesh, PartitionSpec()))
    def total(x: jax.Array) -> jax.Array:
        return jax.lax.scan(
            lambda c, _: (c + (x * c.sum()).sum(0), None), jnp.zeros(4), None, length=3
        )[0]

    hlo = compiled_text(total.lower(jax.ShapeDtypeStruct((16, 4), jnp.float32, sharding=rows)))
    in_loop = [x for x in parse_collectives(hlo) if x.in_loop]
    assert in_loop and all(x.count == 3 for x in in_loop)
    sums = [x for x in in_loop if x.kind == "all-reduce" and x.mesh_axes(mesh) == ("data",)]
    assert [x.num_bytes for x in sums] == [4 * 4 // 2]
    assert all(sorted(map(len, x.groups)) == [4, 4] for x in sums)


def test_a_loop_that_ends_depending_on_data_is_unbounded():
    mesh = device_mesh(data=8)
    rows = NamedSharding(mesh, PartitionSpec("data"))

    def body(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda x: jnp.sum(x) < 100, lambda x: x + jnp.max(x), x)

    x = jax.ShapeDtypeStruct((16,), jnp.float32, sharding=rows)
    hlo = compiled_text(jax.jit(body).lower(x))
    assert {(x.kind, x.count, x.in_unbounded_loop) for x in parse_collectives(hlo)} == {
        ("all-reduce", 1, True)
    }
