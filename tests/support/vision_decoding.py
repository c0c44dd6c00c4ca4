"""Decoding of documents with images over a cache, as an engine does it."""

from typing import Any

import jax
import numpy as np
from support.vision_folders import Document

from agentrl_jax.models.vision.policy import VisionLanguageModel
from agentrl_jax.policy import PolicyInputs

POSITIONS = 256  # of the cache


def continue_greedily(
    policy: VisionLanguageModel, params: Any, document: Document, count: int, patches: int = 256
) -> tuple[np.ndarray, np.ndarray]:
    """The logits of the document's tokens, and its likeliest continuation of `count` tokens.

    The prompt is prefilled in two chunks, each with whole images.
    """
    form, unstacked = policy.image_format, policy.unstack(params)
    length = len(document.tokens)
    layout = form.layout(length, document.spans)
    packed = form.pack([document.images], patches)
    features = np.asarray(jax.jit(policy.encode_images)(unstacked, packed))[0]
    embeddings = features[np.maximum(document.image_index, 0)]

    @jax.jit
    def step(cache: Any, inputs: PolicyInputs) -> Any:
        output = policy.apply(unstacked, inputs, cache)
        return output.cache, policy.logits(unstacked, output.hidden)[0]

    cache, logits = policy.init_cache(1, POSITIONS), []
    cut = document.spans[-1].start
    for start, stop in ((0, cut), (cut, length)):
        columns = slice(start, stop)
        rope, until = layout.rope_positions, layout.visible_until
        inputs = PolicyInputs(
            tokens=document.tokens[None, columns],
            positions=np.arange(start, stop, dtype=np.int32)[None],
            segment_ids=np.ones((1, stop - start), np.int32),
            embeddings=embeddings[None, columns],
            embedding_mask=document.image_index[None, columns] >= 0,
            rope_positions=None if rope is None else rope[:, None, columns],
            visible_until=None if until is None else until[None, columns],
        )
        cache, part = step(cache, inputs)
        logits.append(np.asarray(part))
    written, last = [], logits[-1][-1]
    for column in range(length, length + count):
        written.append(int(last.argmax()))
        rope = np.full((3, 1, 1), column + layout.rope_delta, np.int32)
        inputs = PolicyInputs(
            tokens=np.array([[written[-1]]], np.int32),
            positions=np.array([[column]], np.int32),
            segment_ids=np.ones((1, 1), np.int32),
            rope_positions=rope if form.multi_axis_rope else None,
        )
        cache, part = step(cache, inputs)
        last = np.asarray(part)[-1]
    return np.concatenate(logits), np.array(written, np.int32)
