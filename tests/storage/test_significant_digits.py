"""Numbers of the log: their decimals, one by one and many at once."""

import numpy as np
import pytest

from agentrl_jax.storage.significant_digits import MIN_VECTOR, significant


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e-10, 1e-3, 1.0, 1e5, 1e12, 1e30])
@pytest.mark.parametrize("digits", [6, 9])
def test_many_numbers_are_rounded_as_each_one_is(scale: float, digits: int):
    rng = np.random.default_rng(0)
    values = (rng.normal(size=2000) * scale).astype(np.float32)
    values[:5] = 0.0, -0.0, np.inf, -np.inf, np.nan
    one_by_one = [float(f"{value:.{digits}g}") for value in values.tolist()]
    np.testing.assert_array_equal(significant(values, digits), one_by_one)
    few = values[: MIN_VECTOR - 1]
    np.testing.assert_array_equal(significant(few, digits), one_by_one[: len(few)])
    if digits == 9:
        np.testing.assert_array_equal(np.array(significant(values, 9), np.float32), values)
