"""Rotary position embeddings (Su et al. 2021, arXiv:2104.09864), halves split as in Hugging Face
checkpoints.
"""

import math
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from agentrl_jax.config_tree import OMITTED_AT_DEFAULT
from agentrl_jax.errors import UserError

Frequencies = Float[np.ndarray, "half"]


@dataclass(kw_only=True)
class RopeAxes:
    """Which axis of positions rotates which pairs (M-RoPE, Wang et al. 2024, arXiv:2409.12191)."""

    # pairs that time, row and column rotate, together half the head size; (): all axes are one
    sections: tuple[int, ...] = field(default=(), metadata=OMITTED_AT_DEFAULT)
    # the axes alternate over the pairs (Qwen3-VL); False: they are consecutive (Qwen2.5-VL)
    interleaved: bool = field(default=False, metadata=OMITTED_AT_DEFAULT)

    def axis_of_pair(self, pairs: int) -> np.ndarray:
        """The index of each pair's axis.

        sections 2 1 1: 0 0 1 2; interleaved: 0 1 2 0

        Raises:
            UserError: the sections do not add up to the pairs, or are not three.
        """
        if len(self.sections) != 3 or min(self.sections) < 0 or sum(self.sections) != pairs:
            raise UserError(
                f"A rope's sections must be three numbers whose sum is half the head size "
                f"({pairs}), not {self.sections}."
            )
        if not self.interleaved:
            return np.repeat(np.arange(3), self.sections)
        axes = np.zeros(pairs, np.int64)
        for axis in (1, 2):
            axes[axis : 3 * self.sections[axis] : 3] = axis
        return axes


@dataclass
class Rope(RopeAxes):
    """Unscaled: pair i is rotated by `position * theta^(-2i / head_size)`."""

    theta: float = 10_000.0

    def frequencies(self, head_size: int) -> tuple[Frequencies, float]:
        """Radians per position of each pair, float32, and the factor on cosine and sine.

        Raises:
            UserError: theta is not positive.
        """
        if self.theta <= 0:
            raise UserError(f"A rope's theta must be positive, not {self.theta}.")
        if self.sections:
            self.axis_of_pair(head_size // 2)
        exponents = np.arange(0, head_size, 2, dtype=np.float32) / np.float32(head_size)
        return (1.0 / self.theta**exponents).astype(np.float32), 1.0


@dataclass
class LinearRope(Rope):
    """Every frequency divided by `factor`: positions are interpolated (Chen et al. 2023,
    arXiv:2306.15595).
    """

    factor: float = 1.0

    def frequencies(self, head_size: int) -> tuple[Frequencies, float]:
        plain, scale = super().frequencies(head_size)
        return plain / np.float32(self.factor), scale


@dataclass
class Llama3Rope(Rope):
    """Llama 3.1's: frequencies of wavelengths above `original_max_positions / low_freq_factor` are
    divided by `factor`, those below `original_max_positions / high_freq_factor` stay, linear
    between.
    """

    factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 8192  # positions that the weights were first trained for

    def frequencies(self, head_size: int) -> tuple[Frequencies, float]:
        plain, scale = super().frequencies(head_size)
        # rotations of each pair over the original context
        rotations = self.original_max_positions * plain / (2 * np.pi)
        band = self.high_freq_factor - self.low_freq_factor
        unscaled = np.clip((rotations - self.low_freq_factor) / band, 0.0, 1.0)
        return (plain * (unscaled + (1 - unscaled) / self.factor)).astype(np.float32), scale


@dataclass
class YarnRope(Rope):
    """YaRN (Peng et al. 2023, arXiv:2309.00071): slow pairs interpolated by `factor`, fast ones
    not, and sharper attention.

    A pair with n rotations over the original context is unscaled where n > beta_fast, interpolated
    where n < beta_slow, linear in its index between.
    """

    factor: float = 1.0
    original_max_positions: int = 4096
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 0.0  # factor on cosine and sine; 0: 0.1 log(factor) + 1
    truncate: bool = True  # round the two border indices outwards

    def frequencies(self, head_size: int) -> tuple[Frequencies, float]:
        plain, _ = super().frequencies(head_size)

        def index(rotations: float) -> float:
            wavelength = self.original_max_positions / (rotations * 2 * math.pi)
            return head_size * math.log(wavelength) / (2 * math.log(self.theta))

        low, high = index(self.beta_fast), index(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, head_size - 1)
        ramp = np.clip(
            (np.arange(head_size // 2, dtype=np.float32) - low) / (high - low or 0.001), 0.0, 1.0
        )
        scale = self.attention_factor or (
            0.1 * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0
        )
        return (plain * (1 - ramp) + plain / self.factor * ramp).astype(np.float32), scale


def rotary_cos_sin(
    positions: Int[Array, "B T"] | Int[Array, "3 B T"], head_size: int, rope: Rope
) -> tuple[Float[Array, "B T 1 half"], Float[Array, "B T 1 half"]]:
    """Cosine and sine of each pair's angle, float32, with an axis for heads.

    Args:
        positions: one of each token, or those of three axes, of which the rope's sections say which
            rotates a pair.
        head_size: twice the number of pairs.
        rope: the frequencies.
    """
    frequencies, scale = rope.frequencies(head_size)
    if positions.ndim == 3:
        axes = rope.axis_of_pair(head_size // 2)
        angles = jnp.moveaxis(positions[axes], 0, -1).astype(jnp.float32) * frequencies[None, None]
        angles = angles[:, :, None]
    else:
        angles = positions[:, :, None, None].astype(jnp.float32) * frequencies[None, None, None, :]
    return jnp.cos(angles) * scale, jnp.sin(angles) * scale


def tabulated_rotary_cos_sin(
    max_positions: int,
    positions: Int[Array, "B T"] | Int[Array, "3 B T"],
    head_size: int,
    rope: Rope,
) -> tuple[Float[Array, "B T 1 half"], Float[Array, "B T 1 half"]]:
    """`rotary_cos_sin` for positions below `max_positions`; on a CPU from a table, or each cosine
    would be computed again for every head of every layer. Positions of three axes may be larger.
    """
    if positions.ndim == 3:
        return jax.lax.optimization_barrier(rotary_cos_sin(positions, head_size, rope))

    def from_table(positions: Array) -> tuple[Array, Array]:
        frequencies, scale = rope.frequencies(head_size)
        angles = np.arange(max_positions, dtype=np.float32)[:, None] * frequencies
        tables = [jnp.asarray(part(angles) * np.float32(scale)) for part in (np.cos, np.sin)]
        cos, sin = (jnp.take(table, positions, axis=0, mode="clip")[:, :, None] for table in tables)
        return cos, sin

    return jax.lax.platform_dependent(
        positions,
        cpu=from_table,
        default=lambda positions: rotary_cos_sin(positions, head_size, rope),
    )


def apply_rotary(
    x: Float[Array, "B T N H"], cos: Float[Array, "B T 1 half"], sin: Float[Array, "B T 1 half"]
) -> Float[Array, "B T N H"]:
    """Rotate the pairs `(x[i], x[i + H/2])` by their angle, in float32.

    The halves are an axis that is flipped: a concatenation of them would be computed number by
    number on a CPU.
    """
    halves = x.astype(jnp.float32).reshape(*x.shape[:-1], 2, -1)
    signed = jnp.stack([-sin, sin], axis=-2)
    rotated = halves * cos[..., None, :] + jnp.flip(halves, axis=-2) * signed
    return rotated.reshape(x.shape).astype(x.dtype)
