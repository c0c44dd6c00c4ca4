"""Counts how often the host reads the numbers of an array."""

import contextlib
from collections.abc import Iterator
from unittest import mock

import jax.numpy as jnp


@contextlib.contextmanager
def count_host_reads() -> Iterator[list[tuple[int, ...]]]:
    """A list that gets the shape of each array that is read in the block: by `np.asarray`,
    `jax.device_get`, or by JAX itself where it moves an array by way of the host.
    """
    reads: list[tuple[int, ...]] = []
    array_type = type(jnp.zeros(1))
    read = array_type.__dict__["_value"]

    def counted(x: object) -> object:
        reads.append(x.shape)  # type: ignore[attr-defined]
        return read.fget(x)

    with mock.patch.object(array_type, "_value", property(counted)):
        yield reads
