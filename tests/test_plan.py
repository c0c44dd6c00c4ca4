"""`agentrl-plan`: what it is told, what it reads from programs, and, with libtpu, exact plans of small shapes for described chips."""

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from described import needs_libtpu, outcome
from hand_made import mesh_of
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from agentrl_jax.chips import CHIPS
from agentrl_jax.errors import UserError
from agentrl_jax.launch.benches.scaling import Scaling
from agentrl_jax.launch.plans.figures import Built, Figures, build, figures
from agentrl_jax.launch.plans.planning import Plan, command, kept_report, plan
from agentrl_jax.launch.plans.programs import Engine, Program, held, update
from agentrl_jax.launch.plans.report import lines
from agentrl_jax.launch.plans.subject import Subject, numbers
from agentrl_jax.launch.plans.tables import plans_table, scaling_table

ROOT = Path(__file__).resolve().parent.parent
SIZES = "layers=2,width=256,hidden=512,heads=4,kv_heads=4,head_size=64,vocab=1024"
SMALL: dict[str, Any] = {"sizes": SIZES, "length": 128, "positions": 256, "engine_rows": 4, "chunk": 64}
PARAMETERS = 1024 * 256 + 2 * (4 * 256 * 256 + 3 * 256 * 512 + 2 * 256) + 256  # embedding, layers with their norms, the last norm


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "--topology=v5e:4x4"),
        ({"topology": "v99:4x4", "preset": "qwen3_8b"}, "only those of v5e, v6e, v5p"),
        ({"topology": "v5e:4x4", "programs": ""}, "--programs names some of"),
        ({"topology": "v5e:4x4", "programs": "update,sleep"}, "move, not sleep"),
        ({"topology": "v5e:4x4", "microbatches": 0}, "at least one microbatch"),
        ({"topology": "v5e:4by4", "preset": "qwen3_8b"}, "a topology is written like v5e:4x4"),
    ],
)
def test_nonsense_is_answered_with_one_sentence(fields: dict[str, Any], said: str):
    with pytest.raises(UserError, match=re.escape(said)):
        plan(Subject(**fields))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "give a model's folder"),
        ({"preset": "qwen3_8b", "model": "."}, "not both"),
        ({"preset": "qwen9"}, "there is no preset 'qwen9', only"),
        ({"sizes": "layers=two"}, "--sizes takes name=number"),
        ({"sizes": "rope=3"}, "not 'rope=3'"),
        ({"sizes": "heads=3,kv_heads=2"}, "multiple of its kv_heads"),
        ({"sizes": "layers=1", "kept": "everything"}, "A block can keep"),
        ({"sizes": "layers=1", "quantise": "nf4"}, "needs --rank"),
        ({"sizes": "layers=1", "rank": 2, "quantise": "int3"}, "one of nf4 and int8"),
    ],
)
def test_a_model_that_is_none_is_named(fields: dict[str, Any], said: str):
    with pytest.raises(UserError, match=re.escape(said)):
        Subject(**fields).policy()


def test_sizes_go_over_those_of_a_preset():
    policy = Subject(preset="qwen3_0_6b", sizes="layers=3,vocab=512").decoder()
    assert (policy.config.layers, policy.config.width, policy.vocab_size) == (3, 1024, 512)
    assert numbers("layers=3,tied_head=0") == {"layers": 3, "tied_head": False} and numbers("") == {}


def test_the_command_says_what_is_not_a_default():
    subject = Subject(topology="2x v5e:4x4", preset="qwen3_8b", data=2, apart=True)
    assert command(subject) == "agentrl-plan --topology='2x v5e:4x4' --preset=qwen3_8b --data=2 --apart=true"


def test_what_an_update_holds_by_kind():
    mesh = mesh_of(data=2, fsdp=2, tensor=2)
    (gradient, optimizer), kept = update(Subject(**SMALL, rows=8), mesh)
    assert gradient.arguments["weights"] == ((PARAMETERS - 5 * 256) // 4 + 5 * 256) * 4  # norms are whole
    assert gradient.arguments["gradient"] == gradient.arguments["weights"] == kept["weights"]
    assert gradient.arguments["batch"] == 8 // 4 * 128 * (13 * 4 + 1)  # thirteen arrays of four bytes and a mask
    assert optimizer.arguments["moments"] == kept["moments"] == 2 * kept["weights"] + 2 * 4  # and two counters
    assert (gradient.tokens, gradient.useful > 0, "reference" in kept) == (8 * 128, True, False)
    assert update(Subject(**SMALL, rows=8, kl=0.1), mesh)[1]["reference"] == kept["weights"]


def test_adapters_have_the_only_gradient():
    mesh = mesh_of(fsdp=8)
    (gradient, _), kept = update(Subject(**SMALL, rows=8, rank=2), mesh)
    each = 2 * (4 * (256 + 256) + 3 * (256 + 512)) * 2 * 4  # two layers, rank 2
    assert each // 8 <= gradient.arguments["gradient"] <= each and kept["moments"] == 2 * gradient.arguments["gradient"] + 2 * 4
    whole, _ = update(Subject(**SMALL, rows=8), mesh)
    assert gradient.useful == pytest.approx(whole[0].useful * 2 / 3)


def test_an_engine_holds_weights_and_cache():
    engine = Engine(Subject(**SMALL, parked=3), mesh_of(tensor=4))
    row = 2 * 2 * 4 * 256 * 64 * 2  # keys and values of two layers, four heads, 256 positions of 64 numbers of two bytes
    assert held(engine.cache) == 4 * row // 4 and held(engine.parked) == 3 * row // 4
    assert engine.publish().arguments["copy"] == pytest.approx(PARAMETERS * 4 / 4, rel=0.01)


def summing(mesh: Mesh) -> Program:
    """Three products of split matrices, summed over `tensor`."""
    x = jax.ShapeDtypeStruct((8, 64), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("data", "tensor")))
    w = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("tensor")))
    out = NamedSharding(mesh, PartitionSpec("data"))

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, _: (jnp.tanh(jax.lax.with_sharding_constraint(c @ w, out)), None), x, None, length=3)[0]

    with jax.set_mesh(mesh):
        traced = jax.jit(f, out_shardings=out).trace(x, w)
    return Program("gradient", mesh, traced, {"weights": held(w), "batch": held(x)}, held(w) + held(x), 8, 3.0 * 2 * 8 * 64 * 64)


def test_figures_of_a_compiled_program():
    program, chip = summing(mesh_of(data=2, tensor=4)), CHIPS["v5e"]
    found = figures(program, build(program), chip, {"weights": 7, "moments": 1000})
    assert found.arguments == {"weights": 64 * 64, "batch": 4 * 16 * 4} and found.beside == {"moments": 1000}
    assert found.total == sum(found.arguments.values()) + found.padding + found.outputs + found.temporary + 1000
    assert (found.missing, found.failure) == (0, "") and found.outputs == 4 * 64 * 4
    sums = [(x.kind, x.axes, x.members, x.bytes, x.times) for x in found.exchanges if x.axes == "tensor" and x.kind == "all-reduce"]
    assert sums == [("all-reduce", "tensor", 4, 4 * 64 * 4, 3)]
    assert found.operations == found.useful == 3 * 2 * 8 * 64 * 64 / 8
    assert found.compute_seconds == found.operations / 197e12 and found.bound == "links"
    assert found.seconds < found.seconds_apart <= found.seconds + found.compute_seconds + found.memory_seconds
    assert found.traffic == held_bytes(found) + 2 * found.temporary + 2 * sum(x.bytes * x.times for x in found.exchanges)
    full = figures(program, build(program), dataclasses.replace(chip, memory=100.0), {})
    assert full.missing == full.total - 100


def held_bytes(x: Figures) -> int:
    return sum(x.arguments.values())


REFUSED = "E1000: Ran out of memory on HBM, the total memory required for HLO temporaries (20.00G) exceeds available HBM (15.75G)."


def made(**fields: Any) -> Plan:
    """A plan of one program, with an optimizer of no cost."""
    program, chip = summing(mesh_of(data=2, tensor=4)), CHIPS["v5e"]
    built = Built(None, "", REFUSED, 1.0) if fields.pop("refused", False) else build(program)
    subject = Subject(topology="v5e:2x4", sizes="layers=1", **fields)
    return Plan(subject, chip, 8, 1, {"gradient": figures(program, built, chip, {"moments": 1000})})


def test_a_plan_in_words_in_json_and_in_markdown():
    found = made(microbatches=5)
    said = lines(found, show=1)
    assert "v5e:2x4: 8 chips, 15.75 GiB each for programs" in said and "moments, beside it" in said and "everything fits" in said
    assert re.search(r"all-reduce +tensor +4 +1,024 +3 ", said)
    report = json.loads(json.dumps(found.report()))
    assert report["summary"]["update_seconds"] == pytest.approx(5 * found.programs["gradient"].seconds)
    assert report["summary"]["update_tokens_per_second"] == pytest.approx(8 / found.programs["gradient"].seconds)
    assert report["sent"]["tensor"] == 5 * sum(x.sent for x in found.programs["gradient"].exchanges if x.axes == "tensor")
    shown = plans_table({"mine": report})
    assert (
        "### mine" in shown and "`agentrl-plan --topology=v5e:2x4" in shown and "| gradient | weights 4.00 KiB, batch 256.00 B |" in shown
    )
    assert scaling_table([("weak", report)]).count("\n") == 2


def test_what_does_not_fit_is_said_with_how_much():
    found = made(refused=True)
    x = found.programs["gradient"]
    assert x.temporary == 20 * 2**30 and x.missing == x.total - CHIPS["v5e"].memory > 4 * 2**30 and not found.fits
    said = lines(found, show=1)
    assert (
        "does not compile: E1000" in said and "gradient does not fit: it takes at least 20.00 GiB, 4.25 GiB too much (temporaries" in said
    )
    report = found.report()
    assert report["summary"] == {} and "**gradient does not fit: at least 4.25 GiB too much.**" in plans_table({"mine": report})
    assert "does not compile" in scaling_table([("weak", report)])


def test_a_kept_plan_is_not_made_again_and_must_be_of_the_same(tmp_path: Path):
    found = made()
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(found.report()))
    assert kept_report(found.subject, path)["chips"] == 8
    with pytest.raises(UserError, match="delete it to make it anew"):
        kept_report(dataclasses.replace(found.subject, rows=3), path)


def test_scaling_goes_from_one_chip_to_256_weak_and_strong(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    bench = Scaling(folder=str(tmp_path), each=2, whole=64)
    cells = bench.cells()
    assert [(kind, x.rows) for kind, _, x in cells if x.topology in ("v5e:1x1", "v5e:16x16")] == [
        ("weak", 2), ("weak", 512), ("strong", 64), ("strong", 256),
    ]  # fmt: skip
    assert all(math.prod(map(int, re.findall(r"\d+", x.topology[3:]))) == int(name.split("-")[1][:-5]) for _, name, x in cells)
    for _, name, subject in cells:
        (tmp_path / name).write_text(json.dumps(made().report() | {"command": command(subject)}))
    found = bench.run()
    assert len(found["cells"]) == len(cells) == 16 and all(cell["sent"] > 0 for cell in found["cells"])
    assert capsys.readouterr().out.count("\n| ") == 16


def test_the_tables_of_the_docs_are_those_of_the_kept_plans():
    """Every figure in them comes from a report of `agentrl-plan` that is kept beside its command."""
    text = (ROOT / "docs" / "scaling.md").read_text()
    results = ROOT / "benchmarks" / "results"
    plans = {path.stem: json.loads(path.read_text()) for path in (results / "plans").glob("*.json")}
    shown = re.findall(r"^### (\S+)$", text, re.MULTILINE)
    assert shown and set(shown) == set(plans)
    for name in shown:
        assert plans_table({name: plans[name]}) in text, f"docs/scaling.md: {name} is not what its report says"
    cells = {path.stem: json.loads(path.read_text()) for path in (results / "scaling").glob("*.json")}
    ordered = [(kind, cells[f"{kind}-{n}"]) for kind in ("weak", "strong") for n in Scaling.slices if f"{kind}-{n}" in cells]
    assert len(ordered) == len(cells) and (not cells or scaling_table(ordered) in text)


@pytest.mark.parametrize("name", ["qwen3_8b-v5e-64"])
def test_xla_counts_about_the_same_operations_where_it_sees_all_of_them(name: str):
    """Prefill and a step of decode are not scanned, so XLA's own count holds for them; it leaves out what prefill's last layer wastes."""
    programs = json.loads((ROOT / "benchmarks" / "results" / "plans" / f"{name}.json").read_text())["programs"]
    for x in (programs["prefill"], programs["decode"]):
        assert x["xla_operations"] == pytest.approx(x["operations"], rel=0.03)


# (kind, axes, bytes that a chip gets, times) of every exchange, for the shape `SMALL`, whose matrices hold 256 x 256 (attention, 4) and
# 256 x 512 (MLP, 3) numbers in each of 2 layers, whose embedding holds 1024 x 256. Activations and gathered weights are bfloat16.
SAMPLED = {
    "publish": [],
    "prefill": [("all-reduce", "tensor", 4 * 64 * 256 * 2, 1 + 2)],  # embedding, first layer; of the last one keys and values suffice
    "decode": [
        ("all-reduce", "tensor", 4 * 256 * 2, 1 + 2 * 2),  # embedding; attention and MLP of each layer
        ("all-reduce", "tensor", 4 * 4, 10), ("all-reduce", "tensor", 3 * 4 * 4, 1),  # softmax and sampling over a split vocabulary
        ("all-gather", "tensor", 128, 1), ("all-to-all", "tensor", 1024 * 4, 3), ("collective-permute", "tensor", 48, 1),
    ],
    "move": [],
}  # fmt: skip
EXACT: dict[str, dict[str, Any]] = {
    "v5e:4x4": {
        "flags": ["--data=2", "--fsdp=4", "--tensor=2", "--rows=16"],
        "gradient": [
            ("all-gather", "fsdp", 256 * 128 * 2, 2 * 4 * 3),  # attention: forward, recomputed, backward
            ("all-gather", "fsdp", 256 * 256 * 2, 2 * 3 * 2),  # MLP: forward, backward
            ("all-reduce", "tensor", 2 * 128 * 256 * 2, 2 * 5),  # two forward, one recomputed, two backward in each layer
            ("reduce-scatter", "fsdp", 64 * 256 * 2, 2 * 3), ("reduce-scatter", "fsdp", 64 * 128 * 2, 2 * 3),  # gradients
            ("all-reduce", "fsdp", 256 * 128 * 2, 2),  # of one attention matrix, which XLA does not scatter
            ("all-reduce", "data", (3 * 64 * 256 + 4 * 64 * 128) * 2, 2),  # a chip's share of a layer's gradients
            ("all-reduce", "data x fsdp", 2 * 256 * 4, 2),  # norms
            ("all-gather", "fsdp", 512 * 256 * 2, 1),  # the head
            ("all-reduce", "data x fsdp", 512 * 256 * 4, 1),  # its gradient
            ("all-reduce", "data x fsdp", 512 * 256 * 4 + 256 * 4 + 36, 1),  # the embedding's, with the last norm and sums for metrics
            # the embedding's lookup, split over everything
            ("all-gather", "data x part of fsdp", 524_288, 1), ("all-gather", "data x part of fsdp", 262_144, 1),
            ("all-gather", "tensor", 131_072, 1), ("collective-permute", "data x fsdp x tensor", 131_072, 2),
            ("collective-permute", "data x fsdp x tensor", 65_536, 1),
            # softmax over a split vocabulary
            ("all-reduce", "tensor", 254 * 129 * 4, 1), ("all-reduce", "tensor", 2 * 254 * 4, 1), ("all-reduce", "tensor", 254 * 4, 1),
        ],
        "optimizer": [("all-reduce", "fsdp", 32, 1), ("all-reduce", "tensor", 20, 1), ("all-reduce", "tensor", 12, 1)],  # the norm
        "temporaries": {"gradient": 2_700_000, "optimizer": 1_750_000, "prefill": 100_000, "decode": 1_150_000, "move": 200_000},
    },
    "v5p:4x4x4": {
        "flags": ["--data=4", "--fsdp=4", "--tensor=4", "--rows=64"],
        "gradient": [
            ("all-gather", "fsdp", 256 * 64 * 2, 22), ("all-gather", "fsdp", 256 * 128 * 2, 2 * 3 * 2),
            ("all-reduce", "tensor", 4 * 128 * 256 * 2, 2 * 5),
            ("all-reduce", "fsdp", 3 * 256 * 128 * 2, 2), ("all-reduce", "fsdp", 4 * 256 * 64 * 2, 2),  # gradients: XLA scatters none here
            ("all-reduce", "data", (3 * 64 * 128 + 4 * 64 * 64) * 2, 2),
            ("all-reduce", "data x fsdp", 2 * 256 * 4, 2), ("all-reduce", "data x fsdp", 256 * 256 * 4 + 256 * 4 + 36, 1),
            ("all-reduce", "data x fsdp", 256 * 256 * 4, 1),
            ("all-gather", "fsdp", 256 * 256 * 2, 1), ("all-reduce", "tensor", 508 * 129 * 4, 1),
            ("all-gather", "data", 262_144, 1), ("all-gather", "data", 131_072, 1), ("all-gather", "tensor", 262_144, 1),
            ("collective-permute", "data x fsdp x tensor", 65_536, 2), ("collective-permute", "data x fsdp x tensor", 32_768, 1),
            ("all-reduce", "tensor", 2 * 508 * 4, 1), ("all-reduce", "tensor", 508 * 4, 1),
        ],
        "optimizer": [("all-reduce", "tensor", 32, 1), ("all-reduce", "fsdp", 20, 1), ("all-reduce", "fsdp", 12, 1)],
        "temporaries": {"gradient": 6_000_000, "optimizer": 1_800_000, "prefill": 1_750_000, "decode": 3_850_000, "move": 200_000},
    },
}  # fmt: skip


def planned(topology: str, *flags: str) -> dict[str, Any]:
    """The report of the command itself."""
    given = [f"--{name}={value}" for name, value in SMALL.items()]
    return json.loads(outcome("-m", "agentrl_jax.launch.plan", "--json", f"--topology={topology}", *given, *flags))


@pytest.mark.slow
@needs_libtpu
@pytest.mark.parametrize("topology", EXACT)
def test_exact_exchanges_and_bounded_memory_on_a_tpu(topology: str):
    expected = SAMPLED | EXACT[topology]
    found = planned(topology, *expected["flags"], "--programs=update,publish,prefill,decode,move")
    assert set(found["programs"]) == {"gradient", "optimizer", *SAMPLED} and found["fits"]
    for name, x in found["programs"].items():
        moved = sorted((e["kind"], e["axes"], e["bytes"], e["times"]) for e in x["exchanges"])
        assert moved == sorted(expected[name]), name
        assert x["temporary"] <= expected["temporaries"].get(name, 0), name
        assert x["total"] <= 1.01 * (sum(x["arguments"].values()) + sum(x["beside"].values()) + x["temporary"] + x["outputs"]) + 2**20
    mesh = found["programs"]["gradient"]["mesh"]
    norms, parts = 5 * 256, mesh["fsdp"] * mesh["tensor"]
    assert found["programs"]["gradient"]["arguments"]["weights"] == ((PARAMETERS - norms) // parts + norms) * 4  # norms are whole
    assert found["programs"]["prefill"]["arguments"]["engine weights"] == ((PARAMETERS - norms) // 4 + norms) * 4


@pytest.mark.slow
@needs_libtpu
def test_slices_exchange_gradients_over_the_network():
    found = planned("2x v5e:2x2", "--data=2", "--fsdp=4", "--rows=8", "--programs=update")
    x = found["programs"]["gradient"]
    between = [e for e in x["exchanges"] if e["axes"] == "data"]
    assert found["slices"] == 2 and x["network_seconds"] > 0 and all(e["network"] == e["sent"] for e in between)
    layer = (4 * 256 * 256 + 3 * 256 * 512) * 2 // 4  # bytes of a chip's share of a layer's gradient
    assert sum(e["bytes"] * e["times"] for e in between if e["kind"] == "all-reduce") >= 2 * layer
    assert not any(e["network"] for e in x["exchanges"] if e["axes"] == "fsdp")


@pytest.mark.slow
@needs_libtpu
def test_what_the_chips_cannot_hold_is_refused_with_a_number():
    found = json.loads(outcome("-m", "agentrl_jax.launch.plan", "--json", "--topology=v5e:1x1", "--preset=qwen3_0_6b",
                               "--rows=64", "--length=4096", "--programs=update"))  # fmt: skip
    assert not found["fits"] and found["programs"]["gradient"]["missing"] > 2**30
    weights = found["programs"]["gradient"]["arguments"]["weights"]
    assert weights == 596_049_920 * 4


@pytest.mark.slow
@needs_libtpu
def test_a_step_of_decode_lays_no_cache_out_anew():
    """With several key heads on a chip a scatter of all of them would copy the whole cache, in and out, in every step."""
    sizes = "layers=2,width=256,hidden=512,heads=8,kv_heads=8,head_size=128,vocab=1024"
    report = planned("v5e:2x2", f"--sizes={sizes}", "--engine_rows=8", "--positions=2048", "--engine_tensor=4", "--programs=decode,prefill")
    for name in ("decode", "prefill"):
        program = report["programs"][name]
        assert program["arguments"]["cache"] == 2 * 2 * 8 * 2 * 2048 * 128 * 2
        assert program["temporary"] < program["arguments"]["cache"] / 4, name
