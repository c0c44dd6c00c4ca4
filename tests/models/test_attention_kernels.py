"""Attention over whole rows: every kernel equals a loop over queries, forward and backward; the
choice of a kernel per platform.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import logging
from jax import Array

from agentrl_jax.distributed.sharding import MeshConfig, make_mesh
from agentrl_jax.models import attention_kernels, plain_attention
from agentrl_jax.models.attention_kernels import attend_rows, kernel_for
from agentrl_jax.models.flash_attention import masked_cudnn_rows, splash_rows
from agentrl_jax.models.kernel_inputs import KernelInputs, ScoreOptions
from agentrl_jax.models.plain_attention import plain_rows

SCALE = 0.3
OPTIONS = {
    "causal": {},
    "window": {"window": 5},
    "cap": {"cap": 1.5},
    "both": {"window": 3, "cap": 0.7},
}


def rows(
    lengths: list[list[int]],
    total: int,
    shared: int = 2,
    group: int = 3,
    size: int = 8,
    dtype: Any = np.float32,
) -> tuple[Array, ...]:
    """Random queries, keys and values, and rows of segments of these lengths, padded to `total`
    tokens.
    """
    rng = np.random.default_rng(0)
    positions, segments = (
        np.zeros((len(lengths), total), np.int32),
        np.zeros((len(lengths), total), np.int32),
    )
    for row, parts in enumerate(lengths):
        start = 0
        for i, length in enumerate(parts):
            positions[row, start : start + length], segments[row, start : start + length] = (
                np.arange(length),
                i + 1,
            )
            start += length
    query = rng.normal(size=(len(lengths), total, shared, group, size))
    key, value = rng.normal(size=(2, len(lengths), total, shared, size))
    return (
        *(jnp.asarray(x, dtype) for x in (query, key, value)),
        jnp.asarray(positions),
        jnp.asarray(segments),
    )


def loop(arrays: tuple, window: int = 0, cap: float = 0.0) -> np.ndarray:
    """One query, one head at a time, in float64; zero at padding."""
    q, k, v = (np.asarray(x, np.float64) for x in arrays[:3])
    segments = np.asarray(arrays[4])
    out = np.zeros(q.shape)
    for b, t, shared, m in np.ndindex(q.shape[:4]):
        if segments[b, t]:
            first = int(np.argmax(segments[b] == segments[b, t]))
            near = slice(max(first, t - window + 1) if window else first, t + 1)
            scores = SCALE * k[b, near, shared] @ q[b, t, shared, m]
            scores = cap * np.tanh(scores / cap) if cap else scores
            weights = np.exp(scores - scores.max())
            out[b, t, shared, m] = weights @ v[b, near, shared] / weights.sum()
    return out


def value_and_gradients(
    attend: Callable[..., Array], arrays: tuple[Array, ...], **options: Any
) -> Any:
    """The output at real tokens, and the gradients of a random linear function of it."""
    real = np.asarray(arrays[4] > 0)[:, :, None, None, None]
    tilt = jnp.asarray(
        np.where(real, np.random.default_rng(1).normal(size=arrays[0].shape), 0), jnp.float32
    )

    @jax.jit
    def objective(query: Array, key: Array, value: Array) -> tuple[Array, Array]:
        y = attend(query, key, value, *arrays[3:], scale=SCALE, **options)
        assert y.dtype == arrays[2].dtype and y.shape == arrays[0].shape
        return jnp.sum(y.astype(jnp.float32) * tilt), jnp.where(real, y, 0)

    (_, y), gradients = jax.value_and_grad(objective, argnums=(0, 1, 2), has_aux=True)(*arrays[:3])
    return y, gradients


def over_rows(kernel: Callable[..., Array]) -> Callable[..., Array]:
    """A kernel over rows that attend to themselves."""
    return lambda *arrays, **options: kernel(KernelInputs.of_rows(*arrays), ScoreOptions(**options))


def close(a: Any, b: Any, atol: float) -> None:
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(np.float32(x), np.float32(y), atol=atol, rtol=0),
        a,
        b,
    )


SMALL = rows([[4, 7, 3], [16]], 16)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_plain_path_is_a_loop_over_queries(options: dict):
    y = attend_rows(*SMALL, scale=SCALE, **options)
    close(jnp.where(SMALL[4][:, :, None, None, None] > 0, y, 0), loop(SMALL, **options), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [3, 1000])
@pytest.mark.parametrize("options", [OPTIONS["causal"], OPTIONS["both"]], ids=["causal", "both"])
def test_blocks_of_queries_change_neither_output_nor_gradient(
    monkeypatch: pytest.MonkeyPatch, blocks: int, options: dict
):
    want = value_and_gradients(over_rows(plain_rows), SMALL, **options)
    monkeypatch.setattr(plain_attention, "MAX_SCORES", 2 * 6 * 16 * 16 // blocks)
    close(value_and_gradients(over_rows(plain_rows), SMALL, **options), want, 1e-5)


def test_long_rows_have_no_array_of_all_scores(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plain_attention, "MAX_SCORES", 2 * 6 * 16 * 4)
    text = str(
        jax.make_jaxpr(jax.grad(lambda q: over_rows(plain_rows)(q, *SMALL[1:], scale=SCALE).sum()))(
            SMALL[0]
        )
    )
    assert "f32[2,2,12,16]" in text and "2,48,16]" not in text and "16,16]" not in text


LARGE = rows(
    [[100, 3, 230], [384]], 384, shared=2, group=2, size=64
)  # three blocks of queries and of keys
WIDE = {
    "causal": {},
    "window": {"window": 70},
    "cap": {"cap": 1.5},
    "both": {"window": 150, "cap": 0.7},
}


@pytest.mark.parametrize(
    "options",
    [
        WIDE["both"],
        *(pytest.param(WIDE[name], marks=pytest.mark.slow) for name in ("causal", "window", "cap")),
    ],
)
def test_splash_attention_equals_the_plain_path(options: dict):
    got = value_and_gradients(
        over_rows(functools.partial(splash_rows, interpret=True)), LARGE, **options
    )
    close(got, value_and_gradients(over_rows(plain_rows), LARGE, **options), 2e-5)


@pytest.mark.parametrize(
    "options", [OPTIONS["causal"], OPTIONS["window"]], ids=["causal", "window"]
)
def test_the_arguments_of_cudnn_attention_mean_what_ours_mean(options: dict):
    got = value_and_gradients(
        over_rows(functools.partial(masked_cudnn_rows, implementation="xla")), SMALL, **options
    )
    close(got, value_and_gradients(over_rows(plain_rows), SMALL, **options), 1e-5)


def branched(
    branch_lengths: list[list[int]],
    prefix_lengths: list[int],
    prefix: int,
    branch: int,
    **options: Any,
) -> tuple[tuple, tuple]:
    """Rows of a prefix and branches with these numbers of tokens, and the same sequences as
    separate rows, each with its own copy of the prefix.
    """
    apart = rows(
        [[a + b] for a, parts in zip(prefix_lengths, branch_lengths) for b in parts],
        prefix + branch,
        **options,
    )
    together = []
    for x in apart:
        bins, start = [], 0
        for a, parts in zip(prefix_lengths, branch_lengths):
            reference = x[start : start + len(parts)]
            first = jnp.concatenate([jnp.zeros_like(reference[0, : prefix - a]), reference[0, :a]])
            bins.append(jnp.concatenate([first, *(row[a : a + branch] for row in reference)]))
            start += len(parts)
        together.append(jnp.stack(bins))
    return tuple(together), apart


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_branch_attends_to_its_prefix_and_itself(options: dict):
    prefix_lengths, branch_lengths, prefix, branch = [6, 3, 0], [[4, 1], [2, 4], [4, 3]], 6, 4
    (query, key, value, positions, segments), apart = branched(
        branch_lengths, prefix_lengths, prefix, branch
    )
    # All branches of a row share one prefix: use the first copy in every separate row.
    reference, n = [np.array(x) for x in apart], 0
    for a, parts in zip(prefix_lengths, branch_lengths):
        for x in reference[:3]:
            x[n : n + len(parts), :a] = x[n, :a]
        n += len(parts)
    want = loop(tuple(reference), **options)
    got = np.asarray(
        attend_rows(
            query,
            key,
            value,
            positions,
            segments,
            scale=SCALE,
            prefix_length=prefix,
            branch_length=branch,
            **options,
        )
    )
    n = 0
    for b, (a, parts) in enumerate(zip(prefix_lengths, branch_lengths)):
        close(got[b, prefix - a : prefix], want[n, :a], 1e-5)
        for i, length in enumerate(parts):
            close(
                got[b, prefix + i * branch : prefix + i * branch + length],
                want[n + i, a : a + length],
                1e-5,
            )
        n += len(parts)


def inner_branched(branch: int, **options: Any) -> tuple[tuple, list[list[int]]]:
    """A row of two packed sequences and branches that leave them before their ends, and the columns
    of each text in it: the sequences themselves, and each branch after what precedes it.
    """
    first, second = list(range(2 * branch)), list(range(2 * branch, 3 * branch))
    leaves = [(first, 3, branch), (first, 1, 1), (second, 2, branch - 1), (first, 2 * branch, 2)]
    prefix = 4 * branch  # the last quarter is padding
    arrays = rows([[prefix + len(leaves) * branch]], prefix + len(leaves) * branch, **options)
    positions, segments = np.zeros((2, *arrays[3].shape), np.int32)
    for i, text in enumerate((first, second)):
        positions[0, text], segments[0, text] = np.arange(len(text)), i + 1
    texts = [first, second]
    for i, (text, position, length) in enumerate(leaves):
        columns = [prefix + i * branch + j for j in range(length)]
        positions[0, columns] = position + np.arange(length)
        segments[0, columns] = segments[0, text[0]]
        texts.append([*text[:position], *columns])
    return (*arrays[:3], jnp.asarray(positions), jnp.asarray(segments)), texts


@pytest.mark.parametrize(
    "options", [OPTIONS["causal"], pytest.param(OPTIONS["both"], marks=pytest.mark.slow)]
)
def test_an_inner_branch_attends_to_what_precedes_it_and_itself(options: dict):
    arrays, texts = inner_branched(4)
    shape = {"prefix_length": 16, "branch_length": 4, "inner_branches": True}
    attend = jax.jit(functools.partial(attend_rows, scale=SCALE, **shape, **options))
    got = np.asarray(attend(*arrays))
    for columns in texts:
        ones = np.ones((1, len(columns)), np.int32)
        text = (*(np.asarray(x)[:, columns] for x in arrays[:3]), ones, ones)
        want = loop(text, **options)
        branch_tokens = columns if max(columns) < 16 else [c for c in columns if c >= 16]
        close(got[0, branch_tokens], want[0, -len(branch_tokens) :], 1e-5)


@pytest.mark.slow
def test_splash_attention_serves_inner_branches(monkeypatch: pytest.MonkeyPatch):
    arrays, _ = inner_branched(128, shared=2, group=2, size=64)
    got, want = kernel_on_branches(
        monkeypatch,
        functools.partial(splash_rows, interpret=True),
        arrays,
        {"prefix_length": 512, "branch_length": 128, "inner_branches": True},
    )
    close(got, want, 2e-5)


@pytest.mark.slow
def test_cudnn_attention_serves_inner_branches(monkeypatch: pytest.MonkeyPatch):
    arrays, _ = inner_branched(4)
    shape = {"prefix_length": 16, "branch_length": 4, "inner_branches": True, "window": 3}
    got, want = kernel_on_branches(
        monkeypatch, functools.partial(masked_cudnn_rows, implementation="xla"), arrays, shape
    )
    close(got, want, 1e-5)


def kernel_on_branches(
    monkeypatch: pytest.MonkeyPatch, kernel: Callable[..., Array], arrays: tuple, options: dict
) -> tuple[Any, Any]:
    """Value and gradients by `kernel`, registered for this platform, and by the plain path."""
    want = value_and_gradients(attend_rows, arrays, **options)
    monkeypatch.setitem(attention_kernels.KERNELS, "cpu", kernel)
    return value_and_gradients(attend_rows, arrays, **options), want


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [WIDE["both"], pytest.param(WIDE["causal"], marks=pytest.mark.slow)]
)
def test_splash_attention_serves_branches(monkeypatch: pytest.MonkeyPatch, options: dict):
    arrays, _ = branched([[100, 128], [90, 1]], [256, 200], 256, 128, shared=2, group=2, size=64)
    got, want = kernel_on_branches(
        monkeypatch,
        functools.partial(splash_rows, interpret=True),
        arrays,
        {**options, "prefix_length": 256, "branch_length": 128},
    )
    close(got, want, 2e-5)


@pytest.mark.slow
def test_cudnn_attention_serves_branches(monkeypatch: pytest.MonkeyPatch):
    arrays, _ = branched([[4, 1], [2, 4]], [6, 3], 6, 4)
    options = {"window": 5, "prefix_length": 6, "branch_length": 4}
    got, want = kernel_on_branches(
        monkeypatch, functools.partial(masked_cudnn_rows, implementation="xla"), arrays, options
    )
    close(got, want, 1e-5)


def test_a_narrow_dtype_stays_and_is_near():
    wide, narrow = (
        value_and_gradients(attend_rows, rows([[4, 7, 3], [16]], 16, dtype=dtype))
        for dtype in (jnp.float32, jnp.bfloat16)
    )
    close(wide, narrow, 0.1)


def test_padding_reaches_nothing():
    arrays = rows([[5], [16]], 16)
    other = jnp.where(arrays[4][:, :, None, None] > 0, arrays[1], 7.0)
    close(
        value_and_gradients(attend_rows, arrays)[0],
        value_and_gradients(attend_rows, (arrays[0], other, *arrays[2:]))[0],
        1e-6,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mesh", "shared", "group"),
    [
        (MeshConfig(data=2, fsdp=2, tensor=2), 2, 3),  # key heads over tensor
        (MeshConfig(data=2, tensor=4), 1, 4),  # one key head, so its queries over tensor
        (MeshConfig(fsdp=2, tensor=4), 2, 3),  # neither divides
        (MeshConfig(data=2, expert=2, tensor=2), 2, 1),
        (MeshConfig(data=8), 2, 1),  # rows do not divide
    ],
)
def test_a_mesh_changes_neither_output_nor_gradient(mesh: MeshConfig, shared: int, group: int):
    arrays = rows([[4, 7, 3], [16], [1, 2], [9, 7]], 16, shared, group)
    want = value_and_gradients(attend_rows, arrays)
    with jax.set_mesh(make_mesh(mesh)):
        close(value_and_gradients(attend_rows, arrays), want, 1e-5)


@pytest.mark.parametrize(
    ("case", "name", "reason"),
    [
        (("tpu", 4096, 128, "bfloat16", 50.0), "splash", ""),
        (("tpu", 128, 64, "float32"), "splash", ""),
        (("tpu", 130, 128, "bfloat16"), "plain", "rows of a multiple of 128 tokens, not 130"),
        (("tpu", 128, 80, "bfloat16"), "plain", "multiple of 64, not 80"),
        (("cuda", 4096, 128, "bfloat16"), "cudnn", ""),
        (("cuda", 4096, 128, "float32"), "plain", "not float32"),
        (("cuda", 4096, 256, "bfloat16"), "plain", "at most 128, not 256"),
        (("cuda", 4095, 128, "bfloat16"), "plain", "not 4095"),
        (("cuda", 4096, 128, "bfloat16", 50.0), "plain", "no soft cap"),
        (("cpu", 4096, 128, "bfloat16"), "plain", "no kernel for cpu"),
    ],
)
def test_each_platform_is_served_by_its_own_kernel_where_it_can(
    case: tuple, name: str, reason: str
):
    got = kernel_for(*case)
    assert got[0] == name and reason in got[1] and bool(reason) == bool(got[1])


def test_a_refusal_is_reported_once(monkeypatch: pytest.MonkeyPatch):
    warnings_seen: list[str] = []
    monkeypatch.setattr(logging, "warning", warnings_seen.append)
    monkeypatch.setattr(attention_kernels, "platform", lambda: "tpu")
    for _ in range(2):
        close(attend_rows(*SMALL, scale=SCALE), over_rows(plain_rows)(*SMALL, scale=SCALE), 0)
    assert warnings_seen == [
        "attention on tpu takes the plain path: "
        "splash attention needs rows of a multiple of 128 tokens, not 16"
    ]


@pytest.mark.slow
def test_a_kernel_in_the_program_is_left_out_when_lowered_for_another_platform(
    monkeypatch: pytest.MonkeyPatch,
):
    want = value_and_gradients(attend_rows, LARGE)
    monkeypatch.setattr(attention_kernels, "platform", lambda: "tpu")
    traced = jax.jit(lambda q: attend_rows(q, *LARGE[1:], scale=SCALE)).trace(LARGE[0])
    assert "pallas_call" in str(traced.jaxpr) and "tpu_custom_call" not in traced.lower().as_text()
    assert "tpu_custom_call" in traced.lower(lowering_platforms=("tpu",)).as_text()
    close(value_and_gradients(attend_rows, LARGE), want, 1e-6)
