"""Rotary position embeddings (Su et al. 2021, arXiv:2104.09864), halves split as in Hugging Face checkpoints."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from agentrl_jax.errors import UserError

Frequencies = Float[np.ndarray, "half"]


@dataclass
class Rope:
    """Unscaled: pair i turns by `position * theta^(-2i / head_size)`."""

    theta: float = 10_000.0

    def frequencies(self, head_size: int) -> tuple[Frequencies, float]:
        """Radians per position of each pair, float32, and the factor on cosine and sine. Raises UserError on senseless values."""
        if self.theta <= 0:
            raise UserError(f"A rope's theta must be positive, not {self.theta}.")
        return (1.0 / self.theta ** (np.arange(0, head_size, 2, dtype=np.float32) / np.float32(head_size))).astype(np.float32), 1.0


@dataclass
class LinearRope(Rope):
    """Every frequency divided by `factor`: positions are interpolated (Chen et al. 2023, arXiv:2306.15595)."""

    factor: float = 1.0

    def frequencies(self, head_size: int) -> tuple[Frequencies, float]:
        plain, scale = super().frequencies(head_size)
        return plain / np.float32(self.factor), scale


@dataclass
class Llama3Rope(Rope):
    """Llama 3.1's: wavelengths beyond `original / low` are divided by `factor`, those below `original / high` stay, linear between."""

    factor: float = 8.0
    low: float = 1.0  # low_freq_factor
    high: float = 4.0  # high_freq_factor
    original: int = 8192  # positions that the weights were first trained for

    def frequencies(self, head_size: int) -> tuple[Frequencies, float]:
        plain, scale = super().frequencies(head_size)
        turns = self.original * plain / (2 * np.pi)  # of each pair, over the original context
        kept = np.clip((turns - self.low) / (self.high - self.low), 0.0, 1.0)
        return (plain * (kept + (1 - kept) / self.factor)).astype(np.float32), scale


@dataclass
class YarnRope(Rope):
    """YaRN (Peng et al. 2023, arXiv:2309.00071): slow pairs interpolated by `factor`, fast ones not, and sharper attention.

    A pair that turns n times over the original context is kept where n > fast, interpolated where n < slow, linear in its index between.
    """

    factor: float = 1.0
    original: int = 4096
    fast: float = 32.0  # beta_fast
    slow: float = 1.0  # beta_slow
    attention: float = 0.0  # factor on cosine and sine; 0: 0.1 log(factor) + 1
    truncate: bool = True  # round the two border indices outwards

    def frequencies(self, head_size: int) -> tuple[Frequencies, float]:
        plain, _ = super().frequencies(head_size)

        def index(turns: float) -> float:
            return head_size * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(self.theta))

        low, high = index(self.fast), index(self.slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, head_size - 1)
        ramp = np.clip((np.arange(head_size // 2, dtype=np.float32) - low) / (high - low or 0.001), 0.0, 1.0)
        scale = self.attention or (0.1 * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0)
        return (plain * (1 - ramp) + plain / self.factor * ramp).astype(np.float32), scale


def rotation(positions: Int[Array, "B T"], head_size: int, rope: Rope) -> tuple[Float[Array, "B T 1 half"], Float[Array, "B T 1 half"]]:
    """Cosine and sine of each pair's angle, float32, with an axis for heads."""
    frequencies, scale = rope.frequencies(head_size)
    angles = positions[:, :, None, None].astype(jnp.float32) * frequencies[None, None, None, :]
    return jnp.cos(angles) * scale, jnp.sin(angles) * scale


def rotation_below(
    size: int, positions: Int[Array, "B T"], head_size: int, rope: Rope
) -> tuple[Float[Array, "B T 1 half"], Float[Array, "B T 1 half"]]:
    """`rotation` for positions below `size`; on a CPU from a table, or each cosine would be computed anew for every head of every layer."""

    def looked_up(positions: Array) -> tuple[Array, Array]:
        frequencies, scale = rope.frequencies(head_size)
        angles = np.arange(size, dtype=np.float32)[:, None] * frequencies
        tables = [jnp.asarray(part(angles) * np.float32(scale)) for part in (np.cos, np.sin)]
        cos, sin = (jnp.take(table, positions, axis=0, mode="clip")[:, :, None] for table in tables)
        return cos, sin

    return jax.lax.platform_dependent(positions, cpu=looked_up, default=lambda positions: rotation(positions, head_size, rope))


def rotate(x: Float[Array, "B T N H"], cos: Float[Array, "B T 1 half"], sin: Float[Array, "B T 1 half"]) -> Float[Array, "B T N H"]:
    """Turn the pairs `(x[i], x[i + H/2])` by their angle, in float32.

    The halves are an axis that is flipped: a concatenation of them would be computed number by number on a CPU.
    """
    halves = x.astype(jnp.float32).reshape(*x.shape[:-1], 2, -1)
    signed = jnp.stack([-sin, sin], axis=-2)
    return (halves * cos[..., None, :] + jnp.flip(halves, axis=-2) * signed).reshape(x.shape).astype(x.dtype)
