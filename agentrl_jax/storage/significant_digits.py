"""Floats as JSON has them: rounded to some significant digits."""

import numpy as np

MIN_VECTOR = 32  # numbers from which on NumPy is faster than formatting one by one
MAX_EXPONENT = 22  # powers of ten up to this one are exact in float64
POWERS = np.array([float(f"1e{i}") for i in range(MAX_EXPONENT + 1)])


def significant(values: np.ndarray, digits: int) -> list[float]:
    """The numbers rounded to so many significant digits, each the float of its decimal.

    Nine digits identify a float32 uniquely.
    """
    if len(values) < MIN_VECTOR:
        return [float(f"{value:.{digits}g}") for value in values.tolist()]
    x = values.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = digits - 1 - np.floor(np.log10(np.abs(x)))
    regular = np.isfinite(exponent) & (np.abs(exponent) <= MAX_EXPONENT)
    shift = np.where(regular, exponent, 0).astype(np.int64)
    up, down = POWERS[np.maximum(shift, 0)], POWERS[np.maximum(-shift, 0)]
    rounded = np.where(regular, np.rint(x * up / down) / up * down, x).tolist()
    for i in np.flatnonzero(~regular & np.isfinite(x) & (x != 0)).tolist():
        rounded[i] = float(f"{x[i]:.{digits}g}")
    return rounded


def significant_rows(rows: np.ndarray, digits: int) -> list[list[float]]:
    """`significant` of each row."""
    return [significant(row, digits) for row in rows]
