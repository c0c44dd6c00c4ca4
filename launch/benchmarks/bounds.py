"""Lower bounds on the time of an update and of decoding, from what this device has been measured to
do and the least work that the model needs.
"""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax.compiler.hardware import dense_peak
from agentrl_jax.models.decoder import Decoder

REPEATS = 5
CPU_CACHE_BYTES = 32.0 * 2**20


@dataclass(frozen=True)
class Ceilings:
    """What one device reaches in a large matrix product and in a large copy."""

    flops_per_second: float  # products in the policy's compute dtype
    bytes_per_second: float  # read and written, both counted
    cache_bytes: float  # data that fits in it may be read faster
    published_flops_per_second: float | None  # in bfloat16, dense; None where none is listed

    def seconds(self, flops: float, num_bytes: float) -> float:
        """The time of work that needs so much of each, if the two overlap entirely."""
        products = flops / self.flops_per_second
        if num_bytes <= self.cache_bytes:
            return products
        return max(products, num_bytes / self.bytes_per_second)


@functools.cache
def measure_ceilings(dtype: str) -> Ceilings:
    """Measure a square matrix product and an update of a large array on the default device."""
    is_cpu = jax.default_backend() == "cpu"
    size, copied = (2048, 2**26) if is_cpu else (8192, 2**29)
    matrix = jax.random.normal(jax.random.key(0), (size, size), jnp.dtype(dtype))
    matrix /= size**0.5  # so that its powers stay finite
    vector = jnp.zeros(copied, jnp.float32)
    return Ceilings(
        2.0 * size**3 / seconds_of_call(jax.jit(lambda x: x @ matrix), matrix),
        2.0 * vector.nbytes / seconds_of_call(jax.jit(lambda x: x + 1, donate_argnums=0), vector),
        CPU_CACHE_BYTES if is_cpu else 0.0,
        dense_peak(jax.devices()[0].device_kind),
    )


def seconds_of_call(program: Callable[[Any], Any], x: Any) -> float:
    """Seconds of `x = program(x)`, of ten enqueued together, the fastest of `REPEATS`."""
    x = jax.block_until_ready(program(x))
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        for _ in range(10):
            x = program(x)
        jax.block_until_ready(x)
        seconds.append((time.perf_counter() - began) / 10)
    return min(seconds)


@dataclass(frozen=True)
class ModelWork:
    """The least work of a dense decoder."""

    product_flops: float  # of a token's products with all matrices, the head included
    pair_flops: float  # of a pair of tokens of which one attends to the other, in all layers
    matrix_bytes: float  # of the matrices in the compute dtype
    slot_bytes: float  # of one token's keys and values in all layers

    @classmethod
    def of(cls, policy: Decoder) -> "ModelWork":
        """Of a policy's shape; norms and biases are left out."""
        c = policy.config
        heads = c.width * c.head_size * (2 * c.heads + 2 * c.kv_heads)
        matrices = c.layers * (heads + 3 * c.width * c.hidden) + policy.vocab_size * c.width
        itemsize = jnp.dtype(c.compute_dtype).itemsize
        return cls(
            2.0 * matrices,
            4.0 * c.layers * c.heads * c.head_size,
            float(matrices * itemsize),
            2.0 * c.layers * c.kv_heads * c.head_size * itemsize,
        )

    def forward_flops(self, lengths: Sequence[int], cached: int = 0) -> float:
        """Of sequences of these lengths, each after `cached` tokens that are not computed again."""
        n = np.asarray(lengths, np.float64)
        pairs = n * (n + 1) / 2 + n * cached
        return float(self.product_flops * n.sum() + self.pair_flops * pairs.sum())

    def training_flops(self, lengths: Sequence[int], cached: int = 0) -> float:
        """Forward and backward, without recomputation: three times the forward pass."""
        return 3 * self.forward_flops(lengths, cached)

    def decode_seconds(self, ceilings: Ceilings, rows: int, prompt: int, new: int) -> float:
        """Of `new` tokens for each of `rows` prompts: every step reads the matrices once and the
        keys and values of all earlier tokens.
        """
        attended = rows * (prompt + np.arange(1, new + 1))
        return sum(
            ceilings.seconds(
                self.product_flops * rows + self.pair_flops * pairs,
                self.matrix_bytes + self.slot_bytes * pairs,
            )
            for pairs in attended
        )


def update_report(
    policy: Decoder, flops: float, seconds: float, devices: int = 1
) -> dict[str, float | None]:
    """The bound of an update's FLOPs, and what fraction of it and of the published peak is reached.

    Args:
        policy: whose compute dtype counts.
        flops: of the update, see `ModelWork.training_flops`.
        seconds: that it took.
        devices: that shared the work.
    """
    ceilings = measure_ceilings(policy.config.compute_dtype)
    bound = flops / ceilings.flops_per_second / devices
    published = ceilings.published_flops_per_second
    return {
        "bound_seconds": bound,
        "fraction_of_bound": bound / seconds,
        "mfu": flops / seconds / devices / published if published else None,
    }


def median_or_none(values: Sequence[float | None]) -> float | None:
    """The median to four digits; None where any value is."""
    known = [x for x in values if x is not None]
    return float(f"{np.median(known):.4g}") if len(known) == len(values) else None
