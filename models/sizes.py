"""What a decoder takes before anything is allocated: parameters, bytes on each device, operations a token."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType

from agentrl_jax.models.decoder import Decoder, DecoderConfig, kinds, runs
from agentrl_jax.models.kernels import served_by
from agentrl_jax.sharding import AXES, MeshConfig, is_names, partition, shards


@dataclass(frozen=True)
class Sizes:
    """Of one decoder on one mesh. Bytes are those of one device; activations and the runtime's own are not counted."""

    parameters: int
    active: int  # parameters at work on one token
    weights: int
    gradient: int
    moments: int  # AdamW's two, in the weights' dtype
    cache: int  # keys and values of one row of full length; rows of an engine live whole on each of its devices
    forward: int  # floating-point operations a token, averaged over a row of full length
    training: int  # forward and backward, nothing recomputed
    attention: str  # what rows of that length are attended with


def sizes_of(policy: Decoder, mesh: MeshConfig, length: int, platform: str) -> Sizes:
    """`mesh` must have no -1; its devices need not exist.

    forward = 2 x (active parameters but the embedding's lookup) + 4 x heads x head_size x tokens seen, per layer.
    """
    c = policy.config
    devices = AbstractMesh(tuple(getattr(mesh, axis) for axis in AXES), AXES, axis_types=(AxisType.Auto,) * len(AXES))
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    total = sum(math.prod(x.shape) for x in jax.tree.leaves(shapes))

    def held(names: Any, x: Any) -> int:
        parts = [axes if isinstance(axes, tuple) else (axes,) for axes in partition(devices, names, x.shape) if axes]
        return math.prod(x.shape) // math.prod(shards(devices, axes) for axes in parts) * x.dtype.itemsize

    weights = sum(jax.tree.leaves(jax.tree.map(held, policy.axes(), shapes, is_leaf=is_names)))
    e = c.experts
    sparse = sum(run.layers for run in runs(c) if run.sparse)
    idle = sparse * (e.count - e.per_token) * 3 * c.width * e.hidden if e else 0
    seen = attended(c, length) * c.layers * length
    table = policy.vocab_size * c.width
    products = total - idle - (0 if c.tied_head else table)
    forward = round(2 * products + 4 * c.heads * c.head_size * seen)
    cache = 2 * c.layers * c.kv_heads * c.head_size * length * jnp.dtype(c.compute_dtype).itemsize
    name, reason = served_by(platform, length, c.head_size, c.compute_dtype, c.attention_cap)
    attention = f"{name} ({reason})" if reason else name
    return Sizes(total, total - idle, weights, weights, 2 * weights, cache, forward, 3 * forward, attention)


def attended(config: DecoderConfig, length: int) -> float:
    """The share of a row's pairs of tokens of which one looks at the other, in the mean over the layers."""
    different, kind_of = kinds(config)
    return sum(_mean_seen(length, different[kind][0]) for kind in kind_of) / config.layers / length


def _mean_seen(length: int, window: int) -> float:
    """Mean over the positions of a row of how many tokens each may look at: 1, 2, ... up to the window."""
    near = min(window or length, length)
    return (near * (near + 1) / 2 + (length - near) * near) / length


def table(sizes: Sizes, mesh: MeshConfig, length: int) -> str:
    """The sizes as lines for a person."""
    split = " x ".join(f"{axis} {getattr(mesh, axis)}" for axis in AXES if getattr(mesh, axis) > 1) or "one device"
    held = sizes.weights + sizes.gradient + sizes.moments
    rows = [
        ("parameters", f"{sizes.parameters:,}"),
        ("at work on a token", f"{sizes.active:,}"),
        (f"on each device ({split})", ""),
        ("  weights", readable(sizes.weights)),
        ("  gradient", readable(sizes.gradient)),
        ("  AdamW's moments", readable(sizes.moments)),
        ("  together, in training", readable(held)),
        (f"cache of a row of {length:,} tokens", readable(sizes.cache)),
        ("operations a token, forward", f"{sizes.forward:,}"),
        ("  in training", f"{sizes.training:,}"),
        ("attention over whole rows", sizes.attention),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in rows)


def readable(count: int) -> str:
    """1536 -> 1.50 KiB"""
    size, unit = float(count), 0
    while abs(size) >= 1024 and unit < 4:
        size, unit = size / 1024, unit + 1
    return f"{size:.2f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"
