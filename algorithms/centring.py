"""Means, deviations and whitening over whatever shares a key."""

import numpy as np


def group_mean(values: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Mean of `values` [U] over each key, given back per unit [U]; of equal values it is exactly that value."""
    count = np.bincount(key)
    lowest = np.full(len(count), np.inf)
    np.minimum.at(lowest, key, values)
    return lowest[key] + (np.bincount(key, values - lowest[key]) / np.maximum(count, 1))[key]


def centre(
    values: np.ndarray, key: np.ndarray, *, std: bool = False, eps: float = 1e-6, leave_one_out: bool = False, keep_alone: bool = False
) -> np.ndarray:
    """x - mean_key(x), or with `std` (x - mean_key(x)) / (std_key(x) + eps); for units [U] with keys >= 0 [U].

    std is the unbiased one (n - 1). `leave_one_out` takes the mean of the others: n / (n - 1) times as much. A unit that is
    alone with its key becomes 0; with `keep_alone` it stays as it is (mean 0, std 1). Equal values become exactly 0.
    """
    values = np.asarray(values, np.float64)
    if not len(values):
        return np.zeros(0)
    count = np.bincount(key)[key]
    alone = count == 1
    centred = values - np.where(alone & keep_alone, 0.0, group_mean(values, key))
    others = np.maximum(count - 1, 1)
    if leave_one_out:
        centred = centred * np.where(alone, 1.0, count / others)
    if not std:
        return centred
    variance = np.bincount(key, centred**2)[key] / others
    return centred / (np.where(alone, 1.0, np.sqrt(variance)) + eps)


def whitened(values: np.ndarray) -> np.ndarray:
    """(x - mean) / sqrt(variance + 1e-8), the variance unbiased; equal values, and one alone, become exactly 0."""
    centred = centre(values, np.zeros(len(values), np.int64))
    return centred / np.sqrt((centred**2).sum() / max(len(values) - 1, 1) + 1e-8)
