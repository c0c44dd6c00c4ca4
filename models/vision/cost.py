"""The cost of an image, without allocating anything."""

import math
from dataclasses import dataclass

import jax

from agentrl_jax.image_format import Grid, ImageFormat
from agentrl_jax.models.vision.config import VisionConfig
from agentrl_jax.models.vision.policy import VISION, VisionLanguageModel


@dataclass(frozen=True)
class ImageCost:
    """A tower's size, and what it computes for one square image."""

    parameters: int  # of the tower and its projectors
    pixels: int  # a side of the image
    tokens: int
    forward_flops: int


def square_side(image_format: ImageFormat, pixels: int) -> int:
    """Patches a side of the square image that is nearest to so many pixels a side."""
    f = image_format
    square = f.patch_size * f.merge_size
    return f.fixed_side or max(1, round(pixels / square)) * f.merge_size


def estimate_image(policy: VisionLanguageModel, pixels: int) -> ImageCost:
    """The cost of a square image of `pixels` a side, rounded to whole tokens, or of the only size
    that the tower takes.
    """
    f = policy.image_format
    side = square_side(f, pixels)
    grid = (1, side, side)
    shapes = jax.eval_shape(policy.init, jax.random.key(0))[VISION]
    return ImageCost(
        sum(math.prod(x.shape) for x in jax.tree.leaves(shapes)),
        side * f.patch_size,
        f.count_tokens(grid),
        image_flops(policy.config.vision, policy.config.width, grid),
    )


def image_flops(config: VisionConfig, width: int, grid: Grid) -> int:
    """Floating-point operations of a forward pass over an image.

    2 x patches x (weights of a layer) + 4 x width x patches attended to, per layer, the patches'
    embedding, and the projectors: 2 x tokens x weights.

    Args:
        config: the tower.
        width: the decoder's.
        grid: the image's patches.
    """
    c, patches = config, math.prod(grid)
    numbers = c.channels * c.temporal_patch_size * c.patch_size**2
    layer = 4 * c.width**2 + (3 if c.gated_mlp else 2) * c.width * c.hidden
    weights = numbers * c.width + c.layers * layer
    attended = sum(_attended_pairs(c, layer, grid) for layer in range(c.layers))
    merged = c.width * c.merge_size**2
    projector = c.width * width if c.average_pooling else merged * (merged + width)
    tokens = patches // c.merge_size**2
    projectors = tokens * projector * (1 + len(c.deepstack_layers))
    return 2 * (patches * weights + projectors) + 4 * c.width * attended


def _attended_pairs(c: VisionConfig, layer: int, grid: Grid) -> int:
    """Pairs of patches of which one attends to the other, in a layer."""
    frames, rows, columns = grid
    if not c.window or layer in c.full_layers:
        return frames * (rows * columns) ** 2
    heights, widths = (
        [min(c.window, size - start) for start in range(0, size, c.window)]
        for size in (rows, columns)
    )
    return frames * sum((h * w) ** 2 for h in heights for w in widths)
