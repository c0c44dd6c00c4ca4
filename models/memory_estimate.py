"""The cost of a decoder, without allocating anything: parameters, bytes per device, FLOPs per
token.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from agentrl_jax.distributed.sharding import (
    MESH_AXES,
    MeshConfig,
    is_logical_axes,
    num_shards,
    partition_spec,
)
from agentrl_jax.errors import UserError
from agentrl_jax.models.attention_kernels import kernel_for
from agentrl_jax.models.decoder import Decoder
from agentrl_jax.models.decoder_architecture import (
    DecoderArchitecture,
    attention_kinds,
    layer_stacks,
)
from agentrl_jax.models.vision.cost import ImageCost, estimate_image
from agentrl_jax.models.vision.policy import VisionLanguageModel
from agentrl_jax.sampling_weights import narrow_matrices


@dataclass(frozen=True)
class MemoryEstimate:
    """The cost of one decoder on one mesh. Bytes are per device, without activations and the
    runtime's own memory.
    """

    parameters: int
    active_parameters: int  # parameters that one token uses
    weight_bytes: int
    gradient_bytes: int
    moment_bytes: int  # AdamW's two, in the weights' dtype
    # of an engine's copy, its matrices in the compute dtype; only `expert` and `tensor` split it
    engine_bytes: int
    # keys and values of one row of full length; each device of an engine holds whole rows
    cache_bytes: int
    forward_flops: int  # floating-point operations per token, averaged over a row of full length
    training_flops: int  # forward and backward, without recomputation
    attention_kernel: str  # the kernel of rows of that length
    image: ImageCost | None = None  # of a decoder that sees; FLOPs per token are without its tower


def estimate_memory(
    policy: Decoder, mesh: MeshConfig, length: int, platform: str, image_pixels: int = 1024
) -> MemoryEstimate:
    """The cost of `policy` for rows of `length` tokens; the devices of `mesh` need not exist.

    forward = 2 x (active parameters without the embedding's lookup) + 4 x heads x head_size x
    tokens attended to, per layer.

    Args:
        mesh: its sizes must not contain -1.
        platform: `cpu`, `tpu`, `cuda` or `rocm`.
        image_pixels: a side of the image whose cost is estimated, if the policy sees.

    Raises:
        UserError: an axis of the mesh can split no weight.
    """
    c = policy.config
    devices = AbstractMesh(
        mesh.ici_sizes(),
        MESH_AXES,
        axis_types=(AxisType.Auto,) * len(MESH_AXES),
    )
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    _check_splits(policy, devices, shapes)
    total = sum(math.prod(x.shape) for x in jax.tree.leaves(shapes))

    def bytes_per_device(names: Any, x: Any, devices: AbstractMesh = devices) -> int:
        parts = [
            axes if isinstance(axes, tuple) else (axes,)
            for axes in partition_spec(devices, names, x.shape)
            if axes
        ]
        shards = math.prod(num_shards(devices, axes) for axes in parts)
        return math.prod(x.shape) // shards * x.dtype.itemsize

    sizes = jax.tree.map(bytes_per_device, policy.axes(), shapes, is_leaf=is_logical_axes)
    weights = sum(jax.tree.leaves(sizes))
    narrow = jax.eval_shape(lambda x: narrow_matrices(x, jnp.dtype(c.compute_dtype)), shapes)
    engine_mesh = devices.update(axis_sizes=(1, 1, mesh.expert, mesh.tensor))
    engine_sizes = jax.tree.map(
        lambda names, x: bytes_per_device(names, x, engine_mesh),
        policy.axes(),
        narrow,
        is_leaf=is_logical_axes,
    )
    engine = sum(jax.tree.leaves(engine_sizes))
    e = c.experts
    sparse = sum(stack.layers for stack in layer_stacks(c) if stack.sparse)
    idle = sparse * (e.count - e.per_token) * 3 * c.width * e.hidden if e else 0
    visible = visible_pair_fraction(c, length) * c.layers * length
    table = policy.vocab_size * c.width
    image = (
        estimate_image(policy, image_pixels) if isinstance(policy, VisionLanguageModel) else None
    )
    active = total - idle - (image.parameters if image else 0)
    products = active - (0 if c.tied_head else table)
    forward = round(2 * products + 4 * c.heads * c.head_size * visible)
    cache = 2 * c.layers * c.kv_heads * c.head_size * length * jnp.dtype(c.compute_dtype).itemsize
    name, reason = kernel_for(platform, length, c.head_size, c.compute_dtype, c.attention_cap)
    attention = f"{name} ({reason})" if reason else name
    return MemoryEstimate(
        total,
        active,
        weights,
        weights,
        2 * weights,
        engine,
        cache,
        forward,
        3 * forward,
        attention,
        image,
    )


def visible_pair_fraction(config: DecoderArchitecture, length: int) -> float:
    """The fraction of a row's pairs of tokens of which one attends to the other, averaged over the
    layers.
    """
    kinds, kind_of_layer = attention_kinds(config)
    visible = sum(_mean_visible_tokens(length, kinds[kind][0]) for kind in kind_of_layer)
    return visible / config.layers / length


def _mean_visible_tokens(length: int, window: int) -> float:
    """Mean over the positions of a row of how many tokens each may attend to: 1, 2, ... up to the
    window.
    """
    near = min(window or length, length)
    return (near * (near + 1) / 2 + (length - near) * near) / length


def format_table(estimate: MemoryEstimate, mesh: MeshConfig, length: int) -> str:
    """The estimate as lines of text."""
    sizes = dict(zip(MESH_AXES, mesh.ici_sizes()))
    split = " x ".join(f"{axis} {n}" for axis, n in sizes.items() if n > 1) or "one device"
    training_bytes = estimate.weight_bytes + estimate.gradient_bytes + estimate.moment_bytes
    rows = [
        ("parameters", f"{estimate.parameters:,}"),
        ("active per token", f"{estimate.active_parameters:,}"),
        (f"on each device ({split})", ""),
        ("  weights", format_bytes(estimate.weight_bytes)),
        ("  gradient", format_bytes(estimate.gradient_bytes)),
        ("  AdamW's moments", format_bytes(estimate.moment_bytes)),
        ("  together, in training", format_bytes(training_bytes)),
        ("  of an engine: weights", format_bytes(estimate.engine_bytes)),
        (f"cache of a row of {length:,} tokens", format_bytes(estimate.cache_bytes)),
        ("FLOPs per token, forward", f"{estimate.forward_flops:,}"),
        ("  in training", f"{estimate.training_flops:,}"),
        ("attention over whole rows", estimate.attention_kernel),
    ]
    if image := estimate.image:
        rows += [
            ("vision tower: parameters", f"{image.parameters:,}"),
            (f"an image of {image.pixels} x {image.pixels}: tokens", f"{image.tokens:,}"),
            ("  FLOPs, forward", f"{image.forward_flops:,}"),
        ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in rows)


def format_bytes(count: int) -> str:
    """1536 -> 1.50 KiB"""
    size, unit = float(count), 0
    while abs(size) >= 1024 and unit < 4:
        size, unit = size / 1024, unit + 1
    return f"{size:.2f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"


def _check_splits(policy: Decoder, devices: AbstractMesh, shapes: Any) -> None:
    """Raises UserError where an axis but `data` has several devices and splits no weight."""
    specs = jax.tree.map(
        lambda names, x: partition_spec(devices, names, x.shape),
        policy.axes(),
        shapes,
        is_leaf=is_logical_axes,
    )
    used = {
        name
        for spec in jax.tree.leaves(specs, is_leaf=lambda x: isinstance(x, PartitionSpec))
        for axes in spec
        for name in (axes if isinstance(axes, tuple) else (axes,))
    }
    for name in MESH_AXES:
        if name != "data" and devices.shape[name] > 1 and name not in used:
            raise UserError(
                f"{name}={devices.shape[name]} splits none of the model's weights: no size that "
                f"{name} splits is a multiple of {devices.shape[name]}"
            )
