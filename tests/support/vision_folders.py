"""Configs of small models that see, and documents with images for them, without torch."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from agentrl_jax.image_format import Grid, ImageFormat, ImagePatches, ImageSpan
from agentrl_jax.policy import PolicyInputs

IMAGE, VIDEO = 45, 46  # placeholder tokens
NO_TOKENS: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
TEXT: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 48,
    "max_position_embeddings": 512,
    **NO_TOKENS,
}
TOWER: dict[str, Any] = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_heads": 2,
    "out_hidden_size": 32,
    "patch_size": 4,
}
QWEN_TOKENS = {"image_token_id": IMAGE, "video_token_id": VIDEO}

VISION_CASES: dict[str, dict[str, Any]] = {
    "qwen2.5-vl": {
        "model_type": "qwen2_5_vl",
        "text_config": TEXT
        | {
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "mrope_section": [1, 1, 2],
            }
        },
        "vision_config": TOWER | {"depth": 3, "fullatt_block_indexes": [1], "window_size": 16},
        **QWEN_TOKENS,
    },
    "qwen3-vl": {
        "model_type": "qwen3_vl",
        "text_config": TEXT
        | {
            "head_dim": 16,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "mrope_section": [4, 2, 2],
                "mrope_interleaved": True,
            },
        },
        "vision_config": TOWER
        | {"depth": 4, "deepstack_visual_indexes": [0, 2], "num_position_embeddings": 25},
        "tie_word_embeddings": True,
        **QWEN_TOKENS,
    },
    "gemma3": {
        "model_type": "gemma3",
        "text_config": TEXT
        | {
            "model_type": "gemma3_text",
            "head_dim": 16,
            "query_pre_attn_scalar": 8,
            "sliding_window": 12,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": 24,
            "intermediate_size": 40,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 4,
            "vision_use_head": False,
        },
        "mm_tokens_per_image": 16,
        "image_token_index": IMAGE,
    },
}


@dataclasses.dataclass(frozen=True, eq=False)
class Document:
    """Tokens with images, in the order of their placeholders; a video has its seconds."""

    tokens: np.ndarray  # int32 [T]
    images: list[ImagePatches]
    spans: list[ImageSpan]
    is_video: list[bool]  # of each image

    @property
    def image_index(self) -> np.ndarray:
        """Which token of the document's images each token is, -1: none."""
        seen = (self.tokens == IMAGE) | (self.tokens == VIDEO)
        return np.where(seen, np.cumsum(seen) - 1, -1).astype(np.int32)


def random_image(form: ImageFormat, grid: Grid, rng: np.random.Generator) -> ImagePatches:
    shape = int(np.prod(grid)), form.patch_numbers
    return ImagePatches(rng.normal(size=shape).astype(np.float32), grid)


def make_document(
    form: ImageFormat, grids: Sequence[Grid], seed: int, frames_apart: bool = False
) -> Document:
    """Text around an image for each grid; grids of several frames are videos.

    Args:
        frames_apart: a video's frames have text between them (Qwen3-VL).
    """
    rng = np.random.default_rng(seed)
    tokens: list[int] = []
    spans, images = [], []

    def write() -> None:
        tokens.extend(rng.integers(0, IMAGE, rng.integers(1, 6)).tolist())

    for grid in grids:
        images.append(random_image(form, grid, rng))
        frames, token = grid[0], VIDEO if grid[0] > 1 else IMAGE
        parts = [(1, *grid[1:])] * frames if frames_apart else [grid]
        for part in parts:
            write()
            spans.append(ImageSpan(len(tokens), part, 1.5 if frames > 1 else 1.0))
            tokens.extend([token] * form.count_tokens(part))
    write()
    return Document(np.asarray(tokens, np.int32), images, spans, [grid[0] > 1 for grid in grids])


def packed_inputs(
    form: ImageFormat, rows: Sequence[Sequence[Document | int]], patches: int
) -> PolicyInputs:
    """Rows of documents one after the other, or of so much padding, with their images beside
    them.
    """
    length = sum(x if isinstance(x, int) else len(x.tokens) for x in rows[0])
    shape = len(rows), length
    tokens, positions, segments = (np.zeros(shape, np.int32) for _ in range(3))
    rope, until = np.zeros((3, *shape), np.int32), np.zeros(shape, np.int32)
    index = np.full(shape, -1, np.int32)
    for row, parts in enumerate(rows):
        column = seen = 0
        for segment, part in enumerate(parts):
            if isinstance(part, int):
                column += part
                continue
            at = row, slice(column, column + len(part.tokens))
            layout = form.layout(len(part.tokens), part.spans)
            tokens[at], segments[at] = part.tokens, segment + 1
            positions[at] = np.arange(len(part.tokens))
            index[at] = np.where(part.image_index >= 0, part.image_index + seen, -1)
            seen += int(part.image_index.max(initial=-1)) + 1
            if layout.rope_positions is not None:
                rope[(slice(None), *at)] = layout.rope_positions
            if layout.visible_until is not None:
                until[at] = layout.visible_until
            column = at[1].stop
        assert column == length
    images = [[x for p in parts if isinstance(p, Document) for x in p.images] for parts in rows]
    return PolicyInputs(
        tokens=tokens,
        positions=positions,
        segment_ids=segments,
        images=form.pack(images, patches),
        image_index=index,
        rope_positions=rope if form.multi_axis_rope else None,
        visible_until=until if form.bidirectional else None,
    )


def case_documents(form: ImageFormat, case: str) -> list[Document]:
    """Two documents with images of odd sizes and, for Qwen, a video."""
    if case == "gemma3":
        side = form.fixed_side
        return [
            make_document(form, [(1, side, side)] * 2, 1),
            make_document(form, [(1, side, side)], 2),
        ]
    apart = case == "qwen3-vl"
    return [
        make_document(form, [(1, 6, 10), (1, 2, 2), (1, 14, 4)], 1, apart),
        make_document(form, [(3, 4, 6), (1, 10, 2)], 2, apart),
    ]


def pixels_of(form: ImageFormat, image: ImagePatches) -> np.ndarray:
    """The [channels, height, width] of an image whose patches have one frame."""
    side, merge, patch = form.fixed_side, form.merge_size, form.patch_size
    squares = side // merge
    x = image.patches.reshape(squares, squares, merge, merge, form.channels, patch, patch)
    return x.transpose(4, 0, 2, 5, 1, 3, 6).reshape(form.channels, side * patch, side * patch)
