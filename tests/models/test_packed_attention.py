"""cuDNN's attention over packed sequences: the layout made of segment ids, the choice of a program
by the number of sequences, and what a backward pass computes again.
"""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from agentrl_jax.launch.benchmarks.attention import Attention, relative_error, value_and_gradients
from agentrl_jax.models import attention_kernels, flash_attention, presets
from agentrl_jax.models.flash_attention import cudnn_rows, packed_sequences
from agentrl_jax.models.kernel_inputs import KernelInputs, ScoreOptions
from agentrl_jax.models.plain_attention import plain_rows
from agentrl_jax.policy import PolicyInputs


@pytest.mark.parametrize(
    ("segments", "limit", "lengths", "offsets", "count"),
    [
        ([[1, 1, 2, 0, 0]], 4, [[2, 1, 2, -1]], [[0, 2, 3, -1, -1]], 3),
        ([[1, 1, 1, 1]], 2, [[4, -1]], [[0, -1, -1]], 1),
        ([[1, 2, 3]], 2, [[1, 1]], [[0, 1, -1]], 3),  # a third is past the limit
        ([[0, 0]], 2, [[2, -1]], [[0, -1, -1]], 1),  # padding alone
        ([[1, 1, 2], [1, 0, 0]], 3, [[2, 1, -1], [1, 2, -1]], [[0, 2, -1, -1], [0, 1, -1, -1]], 2),
    ],
)
def test_each_run_of_a_segment_is_a_sequence(
    segments: list, limit: int, lengths: list, offsets: list, count: int
):
    got = packed_sequences(jnp.asarray(segments, jnp.int32), limit)
    assert [np.asarray(x).tolist() for x in got] == [lengths, offsets, count]
    assert {x.dtype.name for x in got} == {"int32"}


@pytest.mark.parametrize("sequences", [2, 6, 14])
def test_the_number_of_sequences_chooses_a_program_and_no_result(
    monkeypatch: pytest.MonkeyPatch, sequences: int
):
    programs: list[str] = []

    def note(name: str, array: Array) -> Array:
        jax.debug.callback(lambda: programs.append(name))
        return array

    def packed(
        query: Array, key: Array, value: Array, lengths: Array, offsets: Array, scale: float
    ) -> Array:
        """Plain attention over segments that are rebuilt from lengths and offsets."""
        columns = jnp.arange(query.shape[1])[None]
        starts, ends = offsets[:, :-1, None], (offsets[:, :-1] + lengths)[:, :, None]
        inside = (starts >= 0) & (columns[None] >= starts) & (columns[None] < ends)
        segments = 1 + jnp.argmax(inside, axis=1)
        first = jnp.take_along_axis(offsets, segments - 1, axis=1)
        shape = (*query.shape[:2], key.shape[2], -1, query.shape[-1])
        arrays = query.reshape(shape), key, value, columns - first, segments
        y = plain_rows(KernelInputs.of_rows(*arrays), ScoreOptions(scale)).reshape(query.shape)
        return note(f"packed {lengths.shape[1]}", y)

    def masked(inputs: KernelInputs, options: ScoreOptions) -> Array:
        return note("masked", plain_rows(inputs, options))

    monkeypatch.setattr(flash_attention, "packed_cudnn_attention", packed)
    monkeypatch.setattr(flash_attention, "masked_cudnn_rows", masked)
    monkeypatch.setattr(flash_attention, "supports_packed_sequences", lambda: True)
    monkeypatch.setattr(flash_attention, "PACKED_TOKENS", (16, 8))
    inputs, weights, _ = Attention(2, 64, sequences, 4, 2, 8).inputs()
    inputs = dataclasses.replace(
        inputs, **{x: getattr(inputs, x).astype(jnp.float32) for x in ("query", "key", "value")}
    )
    got, want = (
        value_and_gradients(kernel, ScoreOptions(0.3))(inputs, weights)
        for kernel in (cudnn_rows, plain_rows)
    )
    assert all(relative_error(x, y) < 1e-5 for x, y in zip(got, want))
    jax.effects_barrier()
    assert set(programs) == {{2: "packed 4", 6: "packed 8", 14: "masked"}[sequences]}


@pytest.mark.parametrize("option", [{"window": 5}, {}])
def test_windows_and_older_gpus_take_the_dense_mask(monkeypatch: pytest.MonkeyPatch, option: dict):
    monkeypatch.setattr(flash_attention, "supports_packed_sequences", lambda: bool(option))
    monkeypatch.setattr(flash_attention, "masked_cudnn_rows", plain_rows)
    inputs, *_ = Attention(1, 16, 2, 2, 1, 8).inputs()
    options = ScoreOptions(0.3, **option)
    assert jnp.array_equal(cudnn_rows(inputs, options), plain_rows(inputs, options))


def test_a_backward_pass_computes_no_attention_again(monkeypatch: pytest.MonkeyPatch):
    from jax._src.cudnn import fused_attention_stablehlo

    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91000)
    monkeypatch.setattr(fused_attention_stablehlo, "check_compute_capability", lambda _: True)
    monkeypatch.setattr(
        fused_attention_stablehlo, "is_cuda_compute_capability_equal", lambda _: False
    )
    monkeypatch.setattr(attention_kernels, "platform", lambda: "cuda")
    config, _ = presets.qwen3_0_6b()
    config = dataclasses.replace(config, layers=3, compute_dtype="bfloat16")
    policy = config.build(256)

    def loss(params: dict, tokens: Array) -> Array:
        inputs = PolicyInputs(tokens=tokens, positions=tokens, segment_ids=tokens)
        return policy.apply(params, inputs).hidden.astype(jnp.float32).sum()

    params = jax.eval_shape(policy.init, jax.random.key(0))
    traced = jax.jit(jax.grad(loss)).trace(params, jax.ShapeDtypeStruct((2, 512), jnp.int32))
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    kernels = re.findall(r"__cudnn\$fmha\w*", text)
    assert sorted(kernels) == sorted(
        f"__cudnn$fmha{bias}Softmax{direction}"
        for bias in ("", "", "ScaleBias")  # two sizes of packed rows and the dense mask
        for direction in ("", "Backward")
    )
