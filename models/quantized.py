"""Weights in 4 or 8 bits with blockwise absmax scales: QLoRA's frozen base (Dettmers et al. 2023,
arXiv:2305.14314).
"""

import itertools
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int8, Integer, UInt8

from agentrl_jax.pytree import pytree_dataclass, static_field

# numbers along the last axis that share a scale; where it does not divide the axis, its largest
# divisor below
BLOCK_SIZE = 64

# Quantiles of a normal distribution between -1 and 1 with an exact 0, eight above and seven below
# it (the paper's appendix E).
NF4_LEVELS = (
    -1.0, -0.696192801, -0.525073051, -0.394917488, -0.284441382, -0.18477343, -0.091050036, 0.0,
    0.0795803, 0.160930201, 0.246112302, 0.337915242, 0.440709829, 0.562617004, 0.722956836, 1.0,
)  # fmt: skip


@pytree_dataclass
class QuantizedWeight:
    """A weight [*axes, last] in 4 or 8 bits. Its axes are those of the weight, so that stacks are
    sliced and meshes split it in the same way.

    weight[..., i] = scales[..., i // size] decode(codes)[..., i], size = last / blocks
    """

    codes: Integer[Array, "*axes packed"]
    scales: Float32[Array, "*axes blocks"]  # the largest absolute value of each block
    # codes [*axes, packed] -> numbers between -1 and 1, [*axes, last]
    decode: Callable[[Array], Array] = static_field()
    dtype: str = static_field()  # of the weight

    def dequantize(self) -> Float[Array, "*axes last"]:
        values = self.decode(self.codes)
        blocks = values.reshape(*self.scales.shape, -1) * self.scales[..., None]
        return blocks.reshape(values.shape).astype(self.dtype)


def is_quantized(x: object) -> bool:
    return isinstance(x, QuantizedWeight)


def nf4(x: Float[Array, "*axes last"]) -> QuantizedWeight | Float[Array, "*axes last"]:
    """4-bit NormalFloat: each number, divided by the absmax of its block, is rounded to the nearest
    of `NF4_LEVELS`; 4.5 bits with the scales.

    `x` itself where the last axis is odd: two codes share a byte, the first in its lower half.
    """
    return x if x.shape[-1] % 2 else _quantize_blocks(x, _encode_nf4, _decode_nf4)


def int8(x: Float[Array, "*axes last"]) -> QuantizedWeight | Float[Array, "*axes last"]:
    """8-bit integers: each number, divided by the absmax of its block, is rounded to the nearest
    multiple of 1 / 127; 8.5 bits with the scales.

    `x` itself where no block of two or more divides the last axis.
    """
    return _quantize_blocks(x, _encode_int8, _decode_int8)


def _quantize_blocks(
    x: Array, encode: Callable[[Array], Array], decode: Callable[[Array], Array]
) -> QuantizedWeight | Array:
    last = x.shape[-1]
    size = max(n for n in range(1, BLOCK_SIZE + 1) if last % n == 0)
    if size == 1:
        return x
    blocks = x.astype(jnp.float32).reshape(*x.shape[:-1], last // size, size)
    scales = jnp.max(jnp.abs(blocks), axis=-1)
    normalized = blocks / jnp.where(scales > 0, scales, 1.0)[..., None]
    codes = encode(normalized.reshape(x.shape))
    return QuantizedWeight(codes=codes, scales=scales, decode=decode, dtype=x.dtype.name)


def _encode_nf4(x: Float32[Array, "*axes last"]) -> UInt8[Array, "*axes half"]:
    codes = jnp.zeros(x.shape, jnp.uint8)
    for low, high in itertools.pairwise(NF4_LEVELS):
        codes += (x > (low + high) / 2).astype(jnp.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << 4


def _decode_nf4(codes: UInt8[Array, "*axes half"]) -> Float32[Array, "*axes last"]:
    pairs = jnp.stack([codes & 15, codes >> 4], axis=-1)
    levels = jnp.asarray(NF4_LEVELS, jnp.float32).at[pairs]
    # with a bounds check the lookup would not be fused
    return levels.get(mode="promise_in_bounds").reshape(*codes.shape[:-1], -1)


def _encode_int8(x: Float32[Array, "*axes last"]) -> Int8[Array, "*axes last"]:
    return jnp.round(x * 127).astype(jnp.int8)


def _decode_int8(codes: Int8[Array, "*axes last"]) -> Float32[Array, "*axes last"]:
    return codes.astype(jnp.float32) / 127
