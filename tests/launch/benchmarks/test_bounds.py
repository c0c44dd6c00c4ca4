"""The least work of a decoder, by its shape; bounds of time; the benchmark of attention kernels."""

import math
from pathlib import Path

import numpy as np
import pytest
from support.commands import assert_one_clear_sentence, run

from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks.attention import Attention
from agentrl_jax.launch.benchmarks.bounds import (
    Ceilings,
    ModelWork,
    median_or_none,
    update_report,
)
from agentrl_jax.launch.benchmarks.shapes import ModelShape
from agentrl_jax.launch.benchmarks.update import Update
from agentrl_jax.models import presets

SHAPE = ModelShape(layers=2, width=16, hidden=24, heads=4, kv_heads=2, head_size=8, vocab=50)


def test_a_tokens_products_are_two_operations_a_weight_of_a_matrix():
    policy, _ = SHAPE.build()
    norms = 2 * (2 * 16 + 2 * 8) + 16  # of layers: two of the width, two of a head; the last
    weights = SHAPE.params - norms
    work = ModelWork.of(policy)
    assert work.product_flops == 2 * weights and work.matrix_bytes == 4 * weights
    assert work.slot_bytes == 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, size, float32


def test_only_pairs_that_attend_to_each_other_count():
    work = ModelWork(product_flops=100.0, pair_flops=1.0, matrix_bytes=0.0, slot_bytes=0.0)
    assert work.forward_flops([3]) == 300 + 6
    assert work.forward_flops([3, 2]) == 500 + 6 + 3
    assert work.forward_flops([2], cached=10) == 200 + 3 + 20
    assert work.training_flops([3]) == 3 * work.forward_flops([3])


def test_a_step_takes_the_longer_of_its_products_and_its_reads():
    work = ModelWork(product_flops=8.0, pair_flops=1.0, matrix_bytes=100.0, slot_bytes=10.0)
    reads = Ceilings(1e9, 10.0, 0.0, None)
    assert math.isclose(work.decode_seconds(reads, rows=2, prompt=3, new=2), 18.0 + 20.0)
    products = Ceilings(1.0, 1e9, 0.0, None)
    assert math.isclose(work.decode_seconds(products, rows=2, prompt=3, new=2), 24.0 + 26.0)
    cached = Ceilings(1.0, 1e-9, 1000.0, None)  # whatever fits in a cache is not read from memory
    assert cached.seconds(5.0, 999.0) == 5.0


def test_a_device_without_a_published_peak_has_no_utilization():
    policy, _ = SHAPE.build()
    report = update_report(policy, flops=1e9, seconds=2.0)
    assert report["mfu"] is None and report["bound_seconds"] is not None
    assert report["fraction_of_bound"] == report["bound_seconds"] / 2
    assert median_or_none([1.0, None]) is None and median_or_none([1.0, 3.0]) == 2.0


@pytest.mark.slow
@pytest.mark.parametrize("share_prompt", [False, True])
def test_an_update_reports_the_bound_of_the_tokens_it_was_given(share_prompt: bool):
    sizes = {"batch": 4, "group": 2, "prompt": 6, "new": 5}
    shape = {name: getattr(SHAPE, name) for name in ("layers", "width", "hidden", "vocab")}
    bench = Update(repeats=1, share_prompt=share_prompt)
    for name, size in {**shape, **sizes}.items():
        setattr(bench, name, size)
    report = bench.run()
    assert report["bound"]["mfu"] is None
    work = ModelWork.of(bench.build()[0])
    want = 4 * work.training_flops([11])
    if share_prompt:
        want = 2 * work.training_flops([5]) + 4 * work.training_flops([6], 5)
    assert report["ours"]["flops"]["median"] == pytest.approx(want, rel=1e-4)


def test_the_attention_bench_reports_every_kernel_of_the_platform():
    bench = Attention(rows=1, length=32, sequences=3, heads=4, kv_heads=2, head_size=8)
    report = bench.run()
    assert len(report["plain"]["relative_errors"]) == 4  # output and three gradients
    assert all(0 < x < 0.02 for x in report["plain"]["relative_errors"])
    _, weights, pairs = bench.inputs()
    tokens = int(np.sum(np.any(np.asarray(weights) != 0, axis=(2, 3, 4))))
    assert 3 <= tokens < 32 and tokens <= pairs <= tokens * (tokens + 1) // 2
    with pytest.raises(UserError, match="--sequences=32"):
        Attention(length=32, sequences=32).prepare()
    with pytest.raises(UserError, match="--kv_heads=3"):
        Attention(heads=4, kv_heads=3).prepare()


def test_a_preset_is_a_published_shape_in_bfloat16():
    shape = ModelShape(preset="qwen3_0_6b")
    config, vocab = presets.qwen3_0_6b()
    assert shape.config().layers == config.layers and shape.vocab == vocab
    assert shape.config().compute_dtype == "bfloat16"
    for name in ("qwen3_600b", "_qwen3", "DecoderConfig"):
        with pytest.raises(UserError, match=f"--preset={name} is none of"):
            ModelShape(preset=name).config()


@pytest.mark.slow
def test_an_unknown_preset_is_one_sentence(tmp_path: Path):
    assert_one_clear_sentence(run("bench", "sampling", "--preset=gpt5"), "--preset=gpt5")
