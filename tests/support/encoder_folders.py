"""Hugging Face folders of a small RoBERTa or BERT, made from random numbers without torch."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

VOCAB_SIZE, WIDTH, HIDDEN, LAYERS, POSITIONS = 40, 32, 48, 3, 24
CONFIG: dict[str, Any] = {
    "model_type": "roberta",
    "vocab_size": VOCAB_SIZE,
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "max_position_embeddings": POSITIONS,
    "type_vocab_size": 1,
    "pad_token_id": 1,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-5,
}
LM_HEAD_SHAPES = {
    "lm_head.bias": (VOCAB_SIZE,),
    "lm_head.dense.weight": (WIDTH, WIDTH),
    "lm_head.layer_norm.weight": (WIDTH,),
}


def tensor_shapes(pooler: bool = True) -> dict[str, tuple[int, ...]]:
    """Names and shapes as `transformers.RobertaModel` has them."""

    def dense(name: str, inner: int, outer: int) -> dict[str, tuple[int, ...]]:
        return {f"{name}.weight": (outer, inner), f"{name}.bias": (outer,)}

    def norm(name: str) -> dict[str, tuple[int, ...]]:
        return {f"{name}.LayerNorm.weight": (WIDTH,), f"{name}.LayerNorm.bias": (WIDTH,)}

    tables = {"word": VOCAB_SIZE, "position": POSITIONS, "token_type": 1}
    shapes: dict[str, tuple[int, ...]] = {
        f"embeddings.{name}_embeddings.weight": (rows, WIDTH) for name, rows in tables.items()
    }
    shapes |= norm("embeddings")
    for i in range(LAYERS):
        at = f"encoder.layer.{i}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= dense(f"{at}.attention.{name}", WIDTH, WIDTH)
        shapes |= dense(f"{at}.intermediate.dense", WIDTH, HIDDEN) | dense(
            f"{at}.output.dense", HIDDEN, WIDTH
        )
        shapes |= norm(f"{at}.attention.output") | norm(f"{at}.output")
    return shapes | (dense("pooler.dense", WIDTH, WIDTH) if pooler else {})


def random_tensors(pooler: bool = True) -> dict[str, np.ndarray]:
    """Random numbers, each tensor from a generator seeded by its name; no norm is the identity."""
    shapes = {}
    for name, shape in tensor_shapes(pooler).items():
        random = np.random.default_rng(zlib.crc32(name.encode()))
        shapes[name] = random.normal(0.8 if "Norm.weight" in name else 0.0, 0.2, shape).astype(
            np.float32
        )
    return shapes


def write_folder(
    folder: Path, masked_lm: bool = False, pooler: bool = True, **changes: Any
) -> Path:
    """config.json and model.safetensors; those of a MaskedLM have a prefix in their names and an
    additional head.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = CONFIG | changes
    (folder / "config.json").write_text(json.dumps(config))
    prefix = "bert." if config["model_type"] == "bert" else "roberta."
    weights = {
        (prefix if masked_lm else "") + name: x for name, x in random_tensors(pooler).items()
    }
    weights |= (
        {name: np.ones(shape, np.float32) for name, shape in LM_HEAD_SHAPES.items()}
        if masked_lm
        else {}
    )
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def padded_batch() -> tuple[np.ndarray, np.ndarray]:
    """Rows of 9, 5 and 1 tokens padded on the right, and one of 6 padded on the left, with their
    mask.
    """
    lengths = np.array([9, 5, 1, 6])
    mask = np.arange(9)[None] < lengths[:, None]
    mask[3] = mask[3, ::-1]
    tokens = np.random.default_rng(5).integers(2, VOCAB_SIZE, mask.shape, np.int32)
    return np.where(mask, tokens, 1).astype(np.int32), mask
