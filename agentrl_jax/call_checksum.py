"""`call_checksum`: proves that a recorded call is what its engine sampled."""

import struct
import zlib
from collections.abc import Callable

import numpy as np

# `call_checksum`, or what an engine gets in its place where nothing is to be checked.
CallChecksum = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float], int]
_pack_float = struct.Struct("f").pack


def call_checksum(
    prompt: np.ndarray,
    action: np.ndarray,
    sampler_logp: np.ndarray,
    version: np.ndarray,
    temperature: float,
) -> int:
    """A number other than 0 that depends on every bit of what an engine sampled and recorded."""
    checksum = zlib.crc32(_pack_float(temperature), len(prompt))
    for array in (prompt, action, sampler_logp, version):
        try:
            checksum = zlib.crc32(array.data, checksum)
        except (BufferError, ValueError):  # not contiguous
            checksum = zlib.crc32(array.tobytes(), checksum)
    return checksum or 1


def no_checksum(
    prompt: np.ndarray,
    action: np.ndarray,
    sampler_logp: np.ndarray,
    version: np.ndarray,
    temperature: float,
) -> int:
    """0: the checksum is not known."""
    return 0
