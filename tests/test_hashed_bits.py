"""Bits of arrays are uniform, unlike from array to array, and follow from the index alone."""

import numpy as np
import scipy.stats

from agentrl_jax.hashed_bits import array_bits

SHAPE = (16, 32, 64)


def bits(number: int, *key: int) -> np.ndarray:
    return np.asarray(array_bits(np.array(key, np.uint32), number, SHAPE))


def test_the_bits_of_an_array_are_uniform_and_those_of_two_unrelated():
    arrays = [bits(0, 1, 2), bits(1, 1, 2), bits(0, 3, 2), bits(0, 1, 3)]
    uniform = [x.ravel() * 2.0**-32 for x in arrays]
    for x in uniform:
        assert scipy.stats.kstest(x, "uniform").pvalue > 1e-4
        assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 4.5 / np.sqrt(len(x))
    correlation = np.corrcoef(uniform) - np.eye(len(uniform))
    assert np.abs(correlation).max() < 4.5 / np.sqrt(uniform[0].size)


def test_the_bits_follow_from_the_index():
    key = np.array([1, 2], np.uint32)
    np.testing.assert_array_equal(array_bits(key, 0, (8, *SHAPE[1:])), bits(0, 1, 2)[:8])
    flat = array_bits(key, 0, (np.prod(SHAPE).item(),))
    np.testing.assert_array_equal(np.reshape(flat, SHAPE), bits(0, 1, 2))
