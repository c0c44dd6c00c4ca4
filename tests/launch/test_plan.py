"""`agentrl-plan`: options, costs of programs, reports, and the tables of docs/scaling.md."""

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from support.fixtures import device_mesh
from support.small_plan import PARAMETERS, SMALL

from agentrl_jax.compiler.hardware import CHIP_SPECS
from agentrl_jax.compiler.topology import program_memory
from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks.scaling import Scaling
from agentrl_jax.launch.plans.figures import (
    CompileResult,
    compile_program,
    program_cost,
)
from agentrl_jax.launch.plans.model_shapes import parse_sizes
from agentrl_jax.launch.plans.planning import Plan, cached_report, compile_plan, plan_command
from agentrl_jax.launch.plans.programs import (
    EnginePrograms,
    Program,
    bytes_per_device,
    update_programs,
)
from agentrl_jax.launch.plans.report import format_plan
from agentrl_jax.launch.plans.subject import PlanSpec
from agentrl_jax.launch.plans.tables import plans_table, scaling_table

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "--topology=v5e:4x4"),
        ({"topology": "v99:4x4", "preset": "qwen3_8b"}, "only those of v5e, v6e, v5p"),
        ({"topology": "v5e:4x4", "programs": ""}, "--programs names some of"),
        ({"topology": "v5e:4x4", "programs": "update,sleep"}, "move, not sleep"),
        ({"topology": "v5e:4x4", "microbatches": 0}, "at least one microbatch"),
        ({"topology": "v5e:4by4", "preset": "qwen3_8b"}, "a topology is written like v5e:4x4"),
    ],
)
def test_invalid_options_are_refused(fields: dict[str, Any], message: str):
    with pytest.raises(UserError, match=re.escape(message)):
        compile_plan(PlanSpec(**fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "give a model's folder"),
        ({"preset": "qwen3_8b", "model": "."}, "not both"),
        ({"preset": "qwen9"}, "there is no preset 'qwen9', only"),
        ({"sizes": "layers=two"}, "--sizes takes name=number"),
        ({"sizes": "rope=3"}, "not 'rope=3'"),
        ({"sizes": "heads=3,kv_heads=2"}, "multiple of its kv_heads"),
        ({"sizes": "layers=1", "saved_activations": "everything"}, "A block can keep"),
        ({"sizes": "layers=1", "quantize": "nf4"}, "needs --rank"),
        ({"sizes": "layers=1", "rank": 2, "quantize": "int3"}, "one of nf4 and int8"),
    ],
)
def test_an_invalid_model_is_refused(fields: dict[str, Any], message: str):
    with pytest.raises(UserError, match=re.escape(message)):
        PlanSpec(**fields).policy()


def test_sizes_override_those_of_a_preset():
    policy = PlanSpec(preset="qwen3_0_6b", sizes="layers=3,vocab=512").decoder()
    assert (policy.config.layers, policy.config.width, policy.vocab_size) == (3, 1024, 512)
    assert (
        parse_sizes("layers=3,tied_head=0") == {"layers": 3, "tied_head": False}
        and parse_sizes("") == {}
    )


def test_the_command_lists_non_default_options():
    subject = PlanSpec(topology="2x v5e:4x4", preset="qwen3_8b", data=2, separate_chips=True)
    assert (
        plan_command(subject)
        == "agentrl-plan --topology='2x v5e:4x4' --preset=qwen3_8b --data=2 --separate_chips=true"
    )


def test_the_memory_of_an_update_by_kind():
    mesh = device_mesh(data=2, fsdp=2, tensor=2)
    (gradient, optimizer), resident = update_programs(PlanSpec(**SMALL, rows=8), mesh)
    assert (
        gradient.arguments["weights"] == ((PARAMETERS - 5 * 256) // 4 + 5 * 256) * 4
    )  # norms are whole
    assert gradient.arguments["gradient"] == gradient.arguments["weights"] == resident["weights"]
    assert gradient.arguments["batch"] == 8 // 4 * 128 * (
        13 * 4 + 1
    )  # thirteen arrays of four bytes and a mask
    assert (
        optimizer.arguments["moments"] == resident["moments"] == 2 * resident["weights"] + 2 * 4
    )  # and two counters
    assert (gradient.tokens, gradient.model_flops > 0, "reference" in resident) == (
        8 * 128,
        True,
        False,
    )
    assert (
        update_programs(PlanSpec(**SMALL, rows=8, kl=0.1), mesh)[1]["reference"]
        == resident["weights"]
    )


@pytest.mark.slow
def test_only_adapters_have_a_gradient():
    mesh = device_mesh(fsdp=8)
    (gradient, _), resident = update_programs(PlanSpec(**SMALL, rows=8, rank=2), mesh)
    each = 2 * (4 * (256 + 256) + 3 * (256 + 512)) * 2 * 4  # two layers, rank 2
    assert (
        each // 8 <= gradient.arguments["gradient"] <= each
        and resident["moments"] == 2 * gradient.arguments["gradient"] + 2 * 4
    )
    dense_gradient, _ = update_programs(PlanSpec(**SMALL, rows=8), mesh)
    assert gradient.model_flops == pytest.approx(dense_gradient[0].model_flops * 2 / 3)


def test_an_engine_holds_weights_and_cache():
    engine = EnginePrograms(PlanSpec(**SMALL, parked=3), device_mesh(tensor=4))
    row = (
        2 * 2 * 4 * 256 * 64 * 2
    )  # keys and values of two layers, four heads, 256 positions of 64 numbers of two bytes
    assert (
        bytes_per_device(engine.cache_shapes) == 4 * row // 4
        and bytes_per_device(engine.parked_shapes) == 3 * row // 4
    )
    weights = engine.weight_shapes()
    assert bytes_per_device(weights) >= PARAMETERS * 2 / 4  # bfloat16; a CPU has the head twice
    learner_mesh = device_mesh(fsdp=8)
    reshard, write = engine.publication_programs(learner_mesh, weights)
    assert write.arguments["arrays on their way"] == pytest.approx(PARAMETERS * 2 / 4, rel=0.02)
    assert write.arguments["replaced"] == bytes_per_device(weights)  # all is one group
    assert reshard.arguments == {"cast array": 1024 * 256 * 2 // 8}
    memory = program_memory(reshard.compile())
    assert memory.outputs == 1024 * 256 * 2 // 4 and memory.temporary < 1024 * 256 * 2


def sum_program(mesh: Mesh) -> Program:
    """Three products of split matrices, summed over `tensor`."""
    x = jax.ShapeDtypeStruct(
        (8, 64), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("data", "tensor"))
    )
    w = jax.ShapeDtypeStruct(
        (64, 64), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("tensor"))
    )
    out = NamedSharding(mesh, PartitionSpec("data"))

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.scan(
            lambda c, _: (jnp.tanh(jax.lax.with_sharding_constraint(c @ w, out)), None),
            x,
            None,
            length=3,
        )[0]

    with jax.set_mesh(mesh):
        traced = jax.jit(f, out_shardings=out).trace(x, w)
    return Program(
        "gradient",
        mesh,
        traced,
        {"weights": bytes_per_device(w), "batch": bytes_per_device(x)},
        bytes_per_device(w) + bytes_per_device(x),
        8,
        3.0 * 2 * 8 * 64 * 64,
    )


def test_the_cost_of_a_compiled_program():
    program, chip = sum_program(device_mesh(data=2, tensor=4)), CHIP_SPECS["v5e"]
    cost = program_cost(program, compile_program(program), chip, {"weights": 7, "moments": 1000})
    assert cost.arguments == {"weights": 64 * 64, "batch": 4 * 16 * 4}
    assert cost.resident == {"moments": 1000}
    argument_bytes = sum(cost.arguments.values())
    assert cost.total == argument_bytes + cost.padding + cost.outputs + cost.temporary + 1000
    assert (cost.missing, cost.failure) == (0, "") and cost.outputs == 4 * 64 * 4
    sums = [
        (x.kind, x.axes, x.members, x.bytes, x.times)
        for x in cost.exchanges
        if x.axes == "tensor" and x.kind == "all-reduce"
    ]
    assert sums == [("all-reduce", "tensor", 4, 4 * 64 * 4, 3)]
    assert cost.operations == cost.useful == 3 * 2 * 8 * 64 * 64 / 8
    assert cost.compute_seconds == cost.operations / 197e12 and cost.bound == "links"
    serial = cost.seconds + cost.compute_seconds + cost.memory_seconds
    assert cost.seconds < cost.seconds_without_overlap <= serial
    received = sum(x.bytes * x.times for x in cost.exchanges)
    assert cost.traffic == argument_bytes + 2 * cost.temporary + 2 * received
    small_chip = dataclasses.replace(chip, memory_bytes=100.0)
    cost = program_cost(program, compile_program(program), small_chip, {})
    assert cost.missing == cost.total - 100


OUT_OF_MEMORY = (
    "E1000: Ran out of memory on HBM, the total memory required for HLO temporaries (20.00G) "
    "exceeds available HBM (15.75G)."
)


def make_plan(is_refused: bool = False, **fields: Any) -> Plan:
    """A plan of one program, with an optimizer of no cost."""
    program, chip = sum_program(device_mesh(data=2, tensor=4)), CHIP_SPECS["v5e"]
    refused = CompileResult(None, "", OUT_OF_MEMORY, 1.0)
    result = refused if is_refused else compile_program(program)
    cost = program_cost(program, result, chip, {"moments": 1000})
    spec = PlanSpec(topology="v5e:2x4", sizes="layers=1", **fields)
    return Plan(spec, chip, 8, 1, {"gradient": cost})


def test_a_plan_as_text_json_and_markdown():
    plan = make_plan(microbatches=5)
    cost = plan.programs["gradient"]
    text = format_plan(plan, max_exchanges=1)
    assert "v5e:2x4: 8 chips, 15.75 GiB each for programs" in text
    assert "moments, resident" in text and "everything fits" in text
    assert re.search(r"all-reduce +tensor +4 +1,024 +3 ", text)
    report = json.loads(json.dumps(plan.report()))
    assert report["summary"]["update_seconds"] == pytest.approx(5 * cost.seconds)
    assert report["summary"]["update_tokens_per_second"] == pytest.approx(8 / cost.seconds)
    sent = sum(x.sent for x in cost.exchanges if x.axes == "tensor")
    assert report["sent"]["tensor"] == 5 * sent
    tables = plans_table({"mine": report})
    assert "### mine" in tables and "`agentrl-plan --topology=v5e:2x4" in tables
    assert "| gradient | weights 4.00 KiB, batch 256.00 B |" in tables
    assert scaling_table([("weak", report)]).count("\n") == 2


def test_a_plan_that_does_not_fit_reports_by_how_much():
    plan = make_plan(is_refused=True)
    cost = plan.programs["gradient"]
    assert cost.temporary == 20 * 2**30 and not plan.fits
    assert cost.missing == cost.total - CHIP_SPECS["v5e"].memory_bytes > 4 * 2**30
    text = format_plan(plan, max_exchanges=1)
    assert "does not compile: E1000" in text
    message = "gradient does not fit: it takes at least 20.00 GiB, 4.25 GiB too much (temporaries"
    assert message in text
    report = plan.report()
    assert report["summary"] == {}
    message = "**gradient does not fit: at least 4.25 GiB too much.**"
    assert message in plans_table({"mine": report})
    assert "does not compile" in scaling_table([("weak", report)])


def test_a_stored_plan_is_reused_and_must_be_of_the_same_options(tmp_path: Path):
    plan = make_plan()
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(plan.report()))
    assert cached_report(plan.spec, path)["chips"] == 8
    with pytest.raises(UserError, match="delete it to plan again"):
        cached_report(dataclasses.replace(plan.spec, rows=3), path)


@pytest.mark.slow
def test_scaling_goes_from_one_chip_to_256_weak_and_strong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    bench = Scaling(folder=str(tmp_path), rows_per_chip=2, total_rows=64)
    cells = bench.cells()
    assert [(kind, x.rows) for kind, _, x in cells if x.topology in ("v5e:1x1", "v5e:16x16")] == [
        ("weak", 2), ("weak", 512), ("strong", 64), ("strong", 256),
    ]  # fmt: skip
    assert all(
        math.prod(map(int, re.findall(r"\d+", x.topology[3:]))) == int(name.split("-")[1][:-5])
        for _, name, x in cells
    )
    for _, name, subject in cells:
        (tmp_path / name).write_text(
            json.dumps(make_plan().report() | {"command": plan_command(subject)})
        )
    report = bench.run()
    assert len(report["cells"]) == len(cells) == 16 and all(
        cell["sent"] > 0 for cell in report["cells"]
    )
    assert capsys.readouterr().out.count("\n| ") == 16


def test_the_tables_of_the_docs_are_those_of_the_stored_plans():
    """Every figure comes from a report of `agentrl-plan`, which is stored with its command."""
    text = (ROOT / "docs" / "scaling.md").read_text()
    results = ROOT / "benchmarks" / "results"
    plans = {path.stem: json.loads(path.read_text()) for path in (results / "plans").glob("*.json")}
    tables = re.findall(r"^### (\S+)$", text, re.MULTILINE)
    assert tables and set(tables) == set(plans)
    for name in tables:
        assert plans_table({name: plans[name]}) in text, (
            f"docs/scaling.md: {name} is not what its report says"
        )
    cells = {
        path.stem: json.loads(path.read_text()) for path in (results / "scaling").glob("*.json")
    }
    ordered = [
        (kind, cells[f"{kind}-{n}"])
        for kind in ("weak", "strong")
        for n in Scaling.slices
        if f"{kind}-{n}" in cells
    ]
    assert len(ordered) == len(cells) and (not cells or scaling_table(ordered) in text)


@pytest.mark.parametrize("name", ["qwen3_8b-v5e-64-engine"])
def test_xlas_count_is_about_the_same_where_no_loop_hides_operations(name: str):
    """Prefill and a step of decode have no scan, so XLA's own count holds for them.

    It leaves out operations of prefill's last layer whose results are unused.
    """
    programs = json.loads((ROOT / "benchmarks" / "results" / "plans" / f"{name}.json").read_text())[
        "programs"
    ]
    for x in (programs["prefill"], programs["decode"]):
        assert x["xla_operations"] == pytest.approx(x["operations"], rel=0.03)
