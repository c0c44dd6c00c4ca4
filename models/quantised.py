"""Weights in 4 or 8 bits, each block of neighbours scaled by its largest: QLoRA's frozen base (Dettmers et al. 2023, arXiv:2305.14314)."""

import itertools
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int8, Integer, UInt8

from agentrl_jax.record import record, static

BLOCK = 64  # neighbours along the last axis that share a scale; where it does not divide the axis, the most that do

# Quantiles of a normal distribution between -1 and 1, eight above a 0 of their own and seven below (the paper's appendix E).
NF4 = (
    -1.0, -0.696192801, -0.525073051, -0.394917488, -0.284441382, -0.18477343, -0.091050036, 0.0,
    0.0795803, 0.160930201, 0.246112302, 0.337915242, 0.440709829, 0.562617004, 0.722956836, 1.0,
)  # fmt: skip


@record
class Quantised:
    """A weight [*axes, last] in few bits. Its axes are kept, so that stacks are sliced and meshes split it as the weight itself.

    weight[..., i] = scales[..., i // size] decode(codes)[..., i]    with blocks of size = last / blocks
    """

    codes: Integer[Array, "*axes packed"]
    scales: Float32[Array, "*axes blocks"]  # the largest absolute value of each block
    decode: Callable[[Array], Array] = static()  # codes [*axes, packed] -> numbers between -1 and 1, [*axes, last]
    dtype: str = static()  # of the weight

    def dense(self) -> Float[Array, "*axes last"]:
        values = self.decode(self.codes)
        blocks = values.reshape(*self.scales.shape, -1) * self.scales[..., None]
        return blocks.reshape(values.shape).astype(self.dtype)


def is_quantised(x: object) -> bool:
    return isinstance(x, Quantised)


def nf4(x: Float[Array, "*axes last"]) -> Quantised | Float[Array, "*axes last"]:
    """4-bit NormalFloat: each number of a block over its largest becomes the nearest of `NF4`, 4.5 bits with the scales.

    `x` itself where the last axis is odd: two codes share a byte, the first in its lower half.
    """
    return x if x.shape[-1] % 2 else _quantised(x, _to_nf4, _from_nf4)


def int8(x: Float[Array, "*axes last"]) -> Quantised | Float[Array, "*axes last"]:
    """8-bit integers: each number of a block over its largest becomes the nearest multiple of 1 / 127, 8.5 bits with the scales.

    `x` itself where no block of two or more divides the last axis.
    """
    return _quantised(x, _to_int8, _from_int8)


def _quantised(x: Array, encode: Callable[[Array], Array], decode: Callable[[Array], Array]) -> Quantised | Array:
    last = x.shape[-1]
    size = max(n for n in range(1, BLOCK + 1) if last % n == 0)
    if size == 1:
        return x
    blocks = x.astype(jnp.float32).reshape(*x.shape[:-1], last // size, size)
    scales = jnp.max(jnp.abs(blocks), axis=-1)
    shares = blocks / jnp.where(scales > 0, scales, 1.0)[..., None]
    return Quantised(codes=encode(shares.reshape(x.shape)), scales=scales, decode=decode, dtype=x.dtype.name)


def _to_nf4(x: Float32[Array, "*axes last"]) -> UInt8[Array, "*axes half"]:
    codes = jnp.zeros(x.shape, jnp.uint8)
    for low, high in itertools.pairwise(NF4):
        codes += (x > (low + high) / 2).astype(jnp.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << 4


def _from_nf4(codes: UInt8[Array, "*axes half"]) -> Float32[Array, "*axes last"]:
    pairs = jnp.stack([codes & 15, codes >> 4], axis=-1)
    levels = jnp.asarray(NF4, jnp.float32).at[pairs]
    return levels.get(mode="promise_in_bounds").reshape(*codes.shape[:-1], -1)  # with a check of bounds it is no longer fused


def _to_int8(x: Float32[Array, "*axes last"]) -> Int8[Array, "*axes last"]:
    return jnp.round(x * 127).astype(jnp.int8)


def _from_int8(codes: Int8[Array, "*axes last"]) -> Float32[Array, "*axes last"]:
    return codes.astype(jnp.float32) / 127
