"""`attention`: the attention kernels over packed rows on this device: time, and error against
float32.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax.distributed.sharding import platform
from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks.bounds import measure_ceilings, seconds_of_call
from agentrl_jax.launch.benchmarks.shapes import run_environment
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.models.flash_attention import cudnn_rows, masked_cudnn_rows, splash_rows
from agentrl_jax.models.kernel_inputs import KernelInputs, Query, ScoreOptions
from agentrl_jax.models.plain_attention import plain_rows

Kernel = Callable[[KernelInputs, ScoreOptions], Query]
KERNELS: dict[str, dict[str, Kernel]] = {
    "cpu": {"plain": plain_rows},
    "rocm": {"plain": plain_rows},
    "cuda": {"plain": plain_rows, "masked_cudnn": masked_cudnn_rows, "cudnn": cudnn_rows},
    "tpu": {"plain": plain_rows, "splash": splash_rows},
}


@dataclasses.dataclass
class Attention:
    """Forward and backward of one layer's attention over rows of several sequences."""

    rows: int = option(2, "Rows.", 1)
    length: int = option(512, "Tokens of a row.", 2)
    sequences: int = option(4, "Sequences of a row, of random lengths; the rest is padding.", 1)
    heads: int = option(16, "Query heads.", 1)
    kv_heads: int = option(8, "Key and value heads.", 1)
    head_size: int = option(128, "Size of a head.", 2)

    def prepare(self) -> None:
        """Raises UserError for sizes that do not fit together."""
        if self.sequences >= self.length:
            raise UserError(f"--sequences={self.sequences} needs rows of more than as many tokens")
        if self.heads % self.kv_heads:
            raise UserError(f"--kv_heads={self.kv_heads} does not divide --heads={self.heads}")

    def run(self) -> dict[str, Any]:
        """Measure and report."""
        inputs, weights, pairs = self.inputs()
        options = ScoreOptions(self.head_size**-0.5)
        exact = value_and_gradients(plain_rows, options)(_cast(inputs, jnp.float32), weights)
        # forward two products of each pair, backward five
        flops = 14.0 * pairs * self.heads * self.head_size
        ceiling = measure_ceilings("bfloat16").flops_per_second
        report: dict[str, Any] = {"bench": "attention", "sizes": dataclasses.asdict(self)}
        for name, kernel in KERNELS[platform()].items():
            program = value_and_gradients(kernel, options)
            result = program(_cast(inputs, jnp.bfloat16), weights)
            repeat = functools.partial(_ignore_first, program, inputs, weights)
            seconds = seconds_of_call(repeat, None)
            report[name] = {
                "seconds": seconds,
                "fraction_of_a_product": flops / seconds / ceiling,
                "relative_errors": [relative_error(x, y) for x, y in zip(result, exact)],
            }
        return {**report, **run_environment()}

    def inputs(self) -> tuple[KernelInputs, jax.Array, int]:
        """Random arrays in bfloat16, the weights of the outputs in a sum, 0 at padding, and how
        many pairs of tokens attend to each other.
        """
        rng = np.random.default_rng(0)
        segments, positions = np.zeros((2, self.rows, self.length), np.int32)
        pairs = 0
        for row in range(self.rows):
            ends = np.sort(rng.choice(np.arange(1, self.length), self.sequences, replace=False))
            for i, (start, end) in enumerate(zip([0, *ends], ends)):
                segments[row, start:end] = i + 1
                positions[row, start:end] = np.arange(end - start)
                pairs += (end - start) * (end - start + 1) // 2
        shape = (self.rows, self.length, self.kv_heads)
        group = self.heads // self.kv_heads
        query, tilt = rng.normal(size=(2, *shape, group, self.head_size))
        key, value = rng.normal(size=(2, *shape, self.head_size))
        inputs = KernelInputs.of_rows(
            jnp.asarray(query, jnp.bfloat16),
            jnp.asarray(key, jnp.bfloat16),
            jnp.asarray(value, jnp.bfloat16),
            jnp.asarray(positions),
            jnp.asarray(segments),
        )
        tilt *= segments[:, :, None, None, None] > 0
        return inputs, jnp.asarray(tilt, jnp.float32), int(pairs)


def value_and_gradients(kernel: Kernel, options: ScoreOptions) -> Callable[..., tuple[Any, ...]]:
    """A program: the outputs at real tokens, and the gradients of a weighted sum of them."""

    @jax.jit
    def program(inputs: KernelInputs, weights: jax.Array) -> tuple[Any, ...]:
        def objective(query: Any, key: Any, value: Any) -> tuple[jax.Array, jax.Array]:
            y = kernel(dataclasses.replace(inputs, query=query, key=key, value=value), options)
            return jnp.sum(y.astype(jnp.float32) * weights), jnp.where(weights == 0, 0, y)

        arrays = inputs.query, inputs.key, inputs.value
        gradients, y = jax.grad(objective, argnums=(0, 1, 2), has_aux=True)(*arrays)
        return y, *gradients

    return program


def relative_error(x: Any, exact: Any) -> float:
    """`|x - exact| / |exact|`; NaN where either has one."""
    x, exact = np.asarray(x, np.float64), np.asarray(exact, np.float64)
    return float(f"{np.linalg.norm(x - exact) / np.linalg.norm(exact):.3g}")


def _ignore_first(program: Callable[..., Any], inputs: Any, weights: Any, last: Any) -> Any:
    return program(inputs, weights)


def _cast(inputs: KernelInputs, dtype: Any) -> KernelInputs:
    query, key, value = (x.astype(dtype) for x in (inputs.query, inputs.key, inputs.value))
    return dataclasses.replace(inputs, query=query, key=key, value=value)
