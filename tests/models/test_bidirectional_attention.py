"""Attention ahead of a query's position, within an image or a whole segment: every path equals a
loop over queries.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax.models import plain_attention
from agentrl_jax.models.attention import cache_mask
from agentrl_jax.models.flash_attention import masked_cudnn_rows, splash_rows
from agentrl_jax.models.kernel_inputs import KernelInputs, ScoreOptions
from agentrl_jax.models.plain_attention import plain_rows

SCALE = 0.4
PATHS = {
    "plain": plain_rows,
    "a dense mask": functools.partial(masked_cudnn_rows, implementation="xla"),
}


def row(lengths: list[int], images: list[tuple[int, int]], size: int = 8) -> KernelInputs:
    """Segments one after the other in a row, the last one padding; images are (column, tokens)."""
    rng, total = np.random.default_rng(0), sum(lengths)
    positions = np.concatenate([np.arange(n) for n in lengths]).astype(np.int32)
    segments = np.repeat([*range(1, len(lengths)), 0], lengths).astype(np.int32)
    until = positions.copy()
    for column, tokens in images:
        until[column : column + tokens] = positions[column + tokens - 1]
    query = rng.normal(size=(1, total, 2, 3, size)).astype(np.float32)
    key, value = rng.normal(size=(2, 1, total, 2, size)).astype(np.float32)
    arrays = (query, key, value, positions[None], segments[None], until[None])
    return KernelInputs.of_rows(*map(jnp.asarray, arrays))


def loop(inputs: KernelInputs, options: ScoreOptions) -> np.ndarray:
    query, key, value, positions, segments, until = (
        np.asarray(x)[0]
        for x in (
            inputs.query, inputs.key, inputs.value, inputs.positions, inputs.segment_ids,
            inputs.visible_until,
        )
    )  # fmt: skip
    y = np.zeros_like(query)
    for t in range(len(query)):
        seen = [
            s
            for s in range(len(query))
            if segments[s] == segments[t]
            and (not options.causal or positions[s] <= until[t])
            and (not options.window or positions[t] - positions[s] < options.window)
        ]
        for k, m in np.ndindex(query.shape[1:3]):
            scores = options.scale * key[seen, k] @ query[t, k, m]
            weights = np.exp(scores - scores.max())
            y[t, k, m] = weights @ value[seen, k] / weights.sum()
    return y


SMALL = row([9, 6, 3], [(2, 4), (7, 2), (10, 3)])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("options", [{}, {"window": 3}, {"causal": False}], ids=str)
def test_every_path_equals_a_loop(path, options):
    options = ScoreOptions(SCALE, **options)
    got = jax.jit(lambda inputs: PATHS[path](inputs, options))(SMALL)[0]
    real = np.asarray(SMALL.segment_ids)[0] > 0
    np.testing.assert_allclose(got[real], loop(SMALL, options)[real], atol=1e-5)


@pytest.mark.parametrize("options", [{"window": 4}, {"causal": False}], ids=str)
def test_queries_in_blocks_give_the_same(options, monkeypatch: pytest.MonkeyPatch):
    options = ScoreOptions(SCALE, **options)
    want = plain_rows(SMALL, options)
    monkeypatch.setattr(plain_attention, "MAX_SCORES", 6 * 18 * 18 // 4)
    np.testing.assert_allclose(plain_rows(SMALL, options), want, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("window", [0, 100])
def test_a_tpus_kernel_attends_to_whole_segments(window):
    options = ScoreOptions(SCALE, window, causal=False)
    inputs = row([100, 20, 8], [(3, 4)], size=64)
    got = splash_rows(inputs, options, interpret=True)[0]
    real = np.asarray(inputs.segment_ids)[0] > 0
    want = loop(inputs, ScoreOptions(SCALE, causal=False))
    np.testing.assert_allclose(got[real], want[real], atol=1e-5)


def test_slots_of_a_cache_are_seen_to_the_end_of_an_image():
    positions, until = jnp.array([[3, 4, 5]]), jnp.array([[4, 4, 9]])
    got = np.asarray(cache_mask(positions, 7, 8, 3, until))[0].astype(int)
    np.testing.assert_array_equal(
        got, [[0, 1, 1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1, 1, 0]]
    )
