"""Images in the arrays of a prefill program."""

import numpy as np

from agentrl_jax.image_format import ImageFormat
from agentrl_jax.inference.image_encoder import ImageEncoder
from agentrl_jax.inference.programs import ChunkImages
from agentrl_jax.inference.request import Request
from agentrl_jax.policy import Params


def empty_images(image_format: ImageFormat, rows: int, chunk: int) -> ChunkImages:
    """The arrays of a program whose rows are all empty."""
    f, shape = image_format, (rows, chunk)
    return ChunkImages(
        embeddings=np.zeros((*shape, f.feature_width), np.float32),
        embedding_mask=np.zeros(shape, bool),
        rope_positions=np.zeros((rows, 3, chunk), np.int32) if f.multi_axis_rope else None,
        visible_until=np.zeros(shape, np.int32) if f.bidirectional else None,
    )


def place_images(
    encoder: ImageEncoder,
    params: Params,
    images: ChunkImages,
    row: int,
    start: int,
    count: int,
    request: Request,
) -> None:
    """Fill in a row: `count` tokens of a request from position `start` on."""
    columns = np.arange(start, start + count)
    if images.rope_positions is not None:
        images.rope_positions[row, :, :count] = request.rope_positions(columns)
    if images.visible_until is not None:
        images.visible_until[row, :count] = request.visible_until(columns)
    for image in request.images:
        first, last = max(image.start, start), min(image.end, start + count)
        if first < last:
            features = encoder.features(params, image.image)
            target = row, slice(first - start, last - start)
            images.embeddings[target] = features[first - image.start : last - image.start]
            images.embedding_mask[target] = True
