"""Random bits by hashing a key and an index, an eighth of the work of threefry.

Not cryptographically secure.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt32

from agentrl_jax.pytree import AnyArray


def hash_bits(x: UInt32[Array, "*shape"]) -> UInt32[Array, "*shape"]:
    """Wellons' lowbias32: a bijection of 32-bit numbers whose bits each flip half the others."""
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    return x ^ (x >> 16)


def _hash_words(
    key: UInt32[AnyArray, "*shape 2"], counter: AnyArray
) -> tuple[UInt32[Array, "*shape"], UInt32[Array, "*shape"]]:
    """Two words that depend on both words of a key and on a counter."""
    key = jnp.asarray(key)
    counter = jnp.asarray(counter).astype(jnp.uint32) + np.uint32(0x9E3779B9)
    hashed = hash_bits(key[..., 0] ^ hash_bits(counter))
    return hashed, hash_bits(key[..., 1] ^ hash_bits(hashed))


def random_bits(
    key: UInt32[AnyArray, "B 2"], counter: Int[AnyArray, "B"], size: int
) -> UInt32[Array, "B {size}"]:
    """Random numbers that depend on the row's key, `counter` and the column, and on nothing else.

    Key and counter are hashed to two words, and the column with one and then the other.
    """
    columns = jax.lax.broadcasted_iota(jnp.uint32, (len(key), size), 1)
    return column_bits(key, counter, columns)


def column_bits(
    key: UInt32[AnyArray, "B 2"], counter: Int[AnyArray, "B"], columns: UInt32[AnyArray, "B N"]
) -> UInt32[Array, "B N"]:
    """`random_bits` of some columns."""
    first, second = _hash_words(key, counter)
    return hash_bits(hash_bits(jnp.asarray(columns) ^ first[:, None]) + second[:, None])


def array_bits(
    key: UInt32[AnyArray, "2"], number: int, shape: tuple[int, ...]
) -> UInt32[Array, "*shape"]:
    """Random numbers that depend on the key, the array's number and the index in the array, however
    it is sharded.
    """
    first, second = _hash_words(key, jnp.uint32(number))
    index = jnp.zeros(shape, jnp.uint32)
    for axis in range(len(shape)):
        stride = np.uint32(math.prod(shape[axis + 1 :]) % 2**32)
        index += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * stride
    return hash_bits(hash_bits(index ^ first) + second)
