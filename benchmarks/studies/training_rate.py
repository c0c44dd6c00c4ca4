"""The fraction of a device's matrix rate that an update of a published shape reaches.

    python benchmarks/studies/training_rate.py --preset qwen3_0_6b --rows 8 --length 4096

on an accelerator; `--layers 1 --rows 1 --length 64 --size 1024` is a quick test on a CPU.

Trains on packed rows of random tokens and prints one line of JSON. The matrix rate is measured with
square products in bfloat16 before the steps and again after them; medians over the repeats.
Operations are those of `agentrl_jax.models.memory_estimate`, without recomputation.
"""

import argparse
import dataclasses
import json
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax.algorithms.losses.policy import negative_log_likelihood
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningBatch
from agentrl_jax.distributed.sharding import MeshConfig, make_mesh, platform
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.learner.packing import Batch
from agentrl_jax.models import presets
from agentrl_jax.models.memory_estimate import estimate_memory


def matrix_rate(size: int, repeats: int) -> float:
    """Operations per second of a bfloat16 product of two square matrices on one device."""
    a = jnp.ones((size, size), jnp.bfloat16)
    product = jax.jit(lambda a, b: a @ b)
    jax.block_until_ready(product(a, a))
    return (
        2
        * size**3
        / statistics.median(elapsed_seconds(lambda: product(a, a)) for _ in range(repeats))
    )


def elapsed_seconds(call: Any) -> float:
    began = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - began


def random_batch(rows: int, length: int, vocab_size: int) -> Batch:
    """Two packed segments per row; every token but the first of each is trained."""
    segments = np.broadcast_to(
        np.repeat(np.array([1, 2], np.int32), [length // 2, length - length // 2]), (rows, length)
    )
    positions = np.concatenate([np.arange(length // 2), np.arange(length - length // 2)]).astype(
        np.int32
    )
    positions = np.broadcast_to(positions, (rows, length))
    tokens = np.random.default_rng(0).integers(0, vocab_size, (rows, length), np.int32)
    real = np.ones((rows, length), np.float32)
    return Batch(
        tokens=tokens,
        positions=positions,
        segment_ids=segments,
        turns=np.zeros_like(tokens),
        version=np.zeros_like(tokens),
        action_mask=positions > 0,
        sampler_logp=np.zeros_like(real),
        temperature=real,
        weight=real / real.size,
    )


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Time updates between two measurements of the matrix rate."""
    config, vocab_size = getattr(presets, args.preset)()
    config = dataclasses.replace(
        config,
        layers=args.layers or config.layers,
        param_dtype=args.param_dtype,
        compute_dtype="bfloat16",
    )
    policy = dataclasses.replace(config, saved_activations=tuple(args.kept)).build(vocab_size)
    mesh = make_mesh(MeshConfig())
    learner = Learner(
        policy,
        AdamWConfig().build(100),
        lambda logp, entropy, batch: (negative_log_likelihood(logp), {}),
        mesh,
    )
    state = learner.init(jax.random.key(0), policy.init(jax.random.key(0)))
    batch = [BehaviorCloningBatch(batch=random_batch(args.rows, args.length, vocab_size))]
    rates, seconds = [matrix_rate(args.size, args.repeats)], []
    for _ in range(args.repeats + 2):
        began = time.perf_counter()
        state, metrics = learner.update(state, batch)
        jax.block_until_ready((state.params, metrics))
        seconds.append(time.perf_counter() - began)
    rates.append(matrix_rate(args.size, args.repeats))
    step, rate = statistics.median(seconds[2:]), statistics.median(rates)
    sizes = estimate_memory(policy, MeshConfig(1, 1, 1, 1), args.length // 2, platform())
    reached = sizes.training_flops * args.rows * args.length / step / jax.device_count()
    return {
        "preset": args.preset,
        "layers": config.layers,
        "rows": args.rows,
        "length": args.length,
        "device": jax.devices()[0].device_kind,
        "devices": jax.device_count(),
        "attention": sizes.attention_kernel,
        "loss": float(metrics["loss"]),
        "step_seconds": round(step, 4),
        "tokens_per_second": round(args.rows * args.length / step),
        "matrix_rate": rate,
        "reached": reached,
        "share": round(reached / rate, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="qwen3_0_6b")
    parser.add_argument("--layers", type=int, default=0, help="0: the preset's")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--param_dtype", default="float32")
    parser.add_argument(
        "--kept",
        nargs="*",
        default=[],
        help="activations to save for the backward pass (DecoderConfig.saved_activations)",
    )
    parser.add_argument("--size", type=int, default=8192, help="of the square matrices")
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
