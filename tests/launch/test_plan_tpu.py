"""`agentrl-plan` with libtpu: exact collectives and bounded memory of small shapes on TPUs."""

import json
from typing import Any

import pytest
from support.described import needs_libtpu, run_python
from support.small_plan import PARAMETERS, SMALL

# (kind, axes, bytes that a chip gets, times) of every collective, for the shape `SMALL`: its
# matrices hold 256 x 256 (attention, 4) and 256 x 512 (MLP, 3) numbers in each of 2 layers, its
# embedding 1024 x 256. Activations and gathered weights are bfloat16.
ENGINE_COLLECTIVES = {
    "publish": [],
    # embedding, first layer; of the last one only keys and values are computed
    "prefill": [("all-reduce", "tensor", 4 * 64 * 256 * 2, 1 + 2)],
    "decode": [
        # embedding; attention and MLP of each layer
        ("all-reduce", "tensor", 4 * 256 * 2, 1 + 2 * 2),
        # softmax and sampling over a split vocabulary
        ("all-reduce", "tensor", 4 * 4, 10),
        ("all-reduce", "tensor", 3 * 4 * 4, 1),
        ("all-gather", "tensor", 128, 1),
        ("all-to-all", "tensor", 1024 * 4, 3),
        ("collective-permute", "tensor", 48, 1),
    ],
    "move": [],
}
EXPECTED: dict[str, dict[str, Any]] = {
    "v5e:4x4": {
        "flags": ["--data=2", "--fsdp=4", "--tensor=2", "--rows=16"],
        "gradient": [
            # attention: forward, recomputed, backward
            ("all-gather", "fsdp", 256 * 128 * 2, 2 * 4 * 3),
            ("all-gather", "fsdp", 256 * 256 * 2, 2 * 3 * 2),  # MLP: forward, backward
            # two forward, one recomputed, two backward in each layer
            ("all-reduce", "tensor", 2 * 128 * 256 * 2, 2 * 5),
            # gradients
            ("reduce-scatter", "fsdp", 64 * 256 * 2, 2 * 3),
            ("reduce-scatter", "fsdp", 64 * 128 * 2, 2 * 3),
            # of one attention matrix, which XLA does not scatter
            ("all-reduce", "fsdp", 256 * 128 * 2, 2),
            # a chip's share of a layer's gradients
            ("all-reduce", "data", (3 * 64 * 256 + 4 * 64 * 128) * 2, 2),
            ("all-reduce", "data x fsdp", 2 * 256 * 4, 2),  # norms
            ("all-gather", "fsdp", 512 * 256 * 2, 1),  # the head
            ("all-reduce", "data x fsdp", 512 * 256 * 4, 1),  # its gradient
            # the embedding's, with the last norm and sums for metrics
            ("all-reduce", "data x fsdp", 512 * 256 * 4 + 256 * 4 + 36, 1),
            # the embedding's lookup, split over everything
            ("all-gather", "data x part of fsdp", 524_288, 1),
            ("all-gather", "data x part of fsdp", 262_144, 1),
            ("all-gather", "tensor", 131_072, 1),
            ("collective-permute", "data x fsdp x tensor", 131_072, 2),
            ("collective-permute", "data x fsdp x tensor", 65_536, 1),
            # softmax over a split vocabulary
            ("all-reduce", "tensor", 254 * 256 * 2, 1),
            ("all-reduce", "tensor", 3 * 254 * 4, 1),
            ("all-reduce", "tensor", 254 * 4, 1),
        ],
        # the norm: whether it is finite, and the clipping inside the condition
        "optimizer": [
            ("all-reduce", "fsdp", 32, 2),
            ("all-reduce", "tensor", 20, 2),
            ("all-reduce", "tensor", 12, 2),
        ],
        # the largest array, 524,288 bytes in the engine's bfloat16
        "reshard": [
            ("all-gather", "data x part of fsdp", 131_072, 1),
            ("collective-permute", "data x fsdp x tensor", 32_768, 1),
        ],
        "temporaries": {
            "reshard": 100_000,
            "gradient": 2_700_000,
            "optimizer": 1_860_000,
            "prefill": 100_000,
            "decode": 1_150_000,
            "move": 200_000,
        },
    },
    "v5p:4x4x4": {
        "flags": ["--data=4", "--fsdp=4", "--tensor=4", "--rows=64"],
        "gradient": [
            ("all-gather", "fsdp", 256 * 64 * 2, 22),
            ("all-gather", "fsdp", 256 * 128 * 2, 2 * 3 * 2),
            ("all-reduce", "tensor", 4 * 128 * 256 * 2, 2 * 5),
            # gradients: XLA scatters none here
            ("all-reduce", "fsdp", 3 * 256 * 128 * 2, 2),
            ("all-reduce", "fsdp", 4 * 256 * 64 * 2, 2),
            ("all-reduce", "data", (3 * 64 * 128 + 4 * 64 * 64) * 2, 2),
            ("all-reduce", "data x fsdp", 2 * 256 * 4, 2),
            ("all-reduce", "data x fsdp", 256 * 256 * 4 + 256 * 4 + 36, 1),
            ("all-reduce", "data x fsdp", 256 * 256 * 4, 1),
            ("all-gather", "fsdp", 256 * 256 * 2, 1),
            ("all-reduce", "tensor", 508 * 256 * 2, 1),
            ("all-gather", "data", 262_144, 1),
            ("all-gather", "data", 131_072, 1),
            ("all-gather", "tensor", 262_144, 1),
            ("collective-permute", "data x fsdp x tensor", 65_536, 2),
            ("collective-permute", "data x fsdp x tensor", 32_768, 1),
            ("all-reduce", "tensor", 3 * 508 * 4, 1),
            ("all-reduce", "tensor", 508 * 4, 1),
        ],
        "optimizer": [
            ("all-reduce", "tensor", 32, 2),
            ("all-reduce", "fsdp", 20, 2),
            ("all-reduce", "fsdp", 12, 2),
        ],
        "reshard": [
            ("all-gather", "fsdp x tensor", 524_288, 1),
            ("all-gather", "data x fsdp", 131_072, 1),
        ],
        "temporaries": {
            "reshard": 1_070_000,
            "gradient": 6_000_000,
            "optimizer": 1_840_000,
            "prefill": 1_750_000,
            "decode": 3_850_000,
            "move": 200_000,
        },
    },
}


def run_plan(topology: str, *flags: str) -> dict[str, Any]:
    """The report of the command itself."""
    options = [f"--{name}={value}" for name, value in SMALL.items()]
    return json.loads(
        run_python(
            "-m", "agentrl_jax.launch.plan", "--json", f"--topology={topology}", *options, *flags
        )
    )


@pytest.mark.slow
@needs_libtpu
@pytest.mark.parametrize("topology", EXPECTED)
def test_exact_exchanges_and_bounded_memory_on_a_tpu(topology: str):
    expected = ENGINE_COLLECTIVES | EXPECTED[topology]
    report = run_plan(topology, *expected["flags"], "--programs=update,publish,prefill,decode,move")
    learner = {"gradient", "optimizer", "reshard"}
    assert set(report["programs"]) == learner | set(ENGINE_COLLECTIVES) and report["fits"]
    for name, x in report["programs"].items():
        collectives = sorted((e["kind"], e["axes"], e["bytes"], e["times"]) for e in x["exchanges"])
        assert collectives == sorted(expected[name]), name
        assert x["temporary"] <= expected["temporaries"].get(name, 0), name
        assert (
            x["total"]
            <= 1.01
            * (
                sum(x["arguments"].values())
                + sum(x["resident"].values())
                + x["temporary"]
                + x["outputs"]
            )
            + 2**20
        )
    mesh = report["programs"]["gradient"]["mesh"]
    norms, parts = 5 * 256, mesh["fsdp"] * mesh["tensor"]
    assert (
        report["programs"]["gradient"]["arguments"]["weights"]
        == ((PARAMETERS - norms) // parts + norms) * 4
    )  # norms are not sharded
    assert (
        report["programs"]["prefill"]["arguments"]["engine weights"]
        == (PARAMETERS - norms) // 4 * 2 + norms * 4
    )  # matrices are bfloat16 in the engine


@pytest.mark.slow
@needs_libtpu
def test_slices_exchange_gradients_over_the_network():
    report = run_plan("2x v5e:2x2", "--data=2", "--fsdp=4", "--rows=8", "--programs=update")
    x = report["programs"]["gradient"]
    between = [e for e in x["exchanges"] if e["axes"] == "data"]
    assert (
        report["slices"] == 2
        and x["network_seconds"] > 0
        and all(e["network"] == e["sent"] for e in between)
    )
    layer = (
        (4 * 256 * 256 + 3 * 256 * 512) * 2 // 4
    )  # bytes of a chip's share of a layer's gradient
    assert sum(e["bytes"] * e["times"] for e in between if e["kind"] == "all-reduce") >= 2 * layer
    assert not any(e["network"] for e in x["exchanges"] if e["axes"] == "fsdp")


@pytest.mark.slow
@needs_libtpu
def test_a_model_too_large_for_the_chips_is_refused_with_a_number():
    report = json.loads(
        run_python(
            "-m",
            "agentrl_jax.launch.plan",
            "--json",
            "--topology=v5e:1x1",
            "--preset=qwen3_0_6b",
            "--rows=64",
            "--length=4096",
            "--programs=update",
        )
    )
    assert not report["fits"] and report["programs"]["gradient"]["missing"] > 2**30
    weights = report["programs"]["gradient"]["arguments"]["weights"]
    assert weights == 596_049_920 * 4


@pytest.mark.slow
@needs_libtpu
def test_a_step_of_decode_does_not_copy_the_cache():
    """With several key heads per chip, a scatter of all of them would copy the cache every step."""
    sizes = "layers=2,width=256,hidden=512,heads=8,kv_heads=8,head_size=128,vocab=1024"
    report = run_plan(
        "v5e:2x2",
        f"--sizes={sizes}",
        "--engine_rows=8",
        "--positions=2048",
        "--engine_tensor=4",
        "--programs=decode,prefill",
    )
    for name in ("decode", "prefill"):
        program = report["programs"][name]
        assert program["arguments"]["cache"] == 2 * 2 * 8 * 2 * 2048 * 128 * 2
        assert program["temporary"] < program["arguments"]["cache"] / 4, name
