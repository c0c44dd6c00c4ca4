"""Hugging Face folders of a small RoBERTa, made from random numbers without torch."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

VOCAB, WIDTH, HIDDEN, LAYERS, POSITIONS = 40, 32, 48, 3, 24
CONFIG: dict[str, Any] = {
    "model_type": "roberta", "vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "max_position_embeddings": POSITIONS, "type_vocab_size": 1, "pad_token_id": 1, "hidden_act": "gelu",
    "layer_norm_eps": 1e-5,
}  # fmt: skip
HEADS = {"lm_head.bias": (VOCAB,), "lm_head.dense.weight": (WIDTH, WIDTH), "lm_head.layer_norm.weight": (WIDTH,)}


def shapes(pooler: bool = True) -> dict[str, tuple[int, ...]]:
    """Names and shapes as `transformers.RobertaModel` has them."""

    def dense(name: str, inner: int, outer: int) -> dict[str, tuple[int, ...]]:
        return {f"{name}.weight": (outer, inner), f"{name}.bias": (outer,)}

    def norm(name: str) -> dict[str, tuple[int, ...]]:
        return {f"{name}.LayerNorm.weight": (WIDTH,), f"{name}.LayerNorm.bias": (WIDTH,)}

    tables = {"word": VOCAB, "position": POSITIONS, "token_type": 1}
    made: dict[str, tuple[int, ...]] = {f"embeddings.{name}_embeddings.weight": (rows, WIDTH) for name, rows in tables.items()}
    made |= norm("embeddings")
    for i in range(LAYERS):
        at = f"encoder.layer.{i}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            made |= dense(f"{at}.attention.{name}", WIDTH, WIDTH)
        made |= dense(f"{at}.intermediate.dense", WIDTH, HIDDEN) | dense(f"{at}.output.dense", HIDDEN, WIDTH)
        made |= norm(f"{at}.attention.output") | norm(f"{at}.output")
    return made | (dense("pooler.dense", WIDTH, WIDTH) if pooler else {})


def tensors(pooler: bool = True) -> dict[str, np.ndarray]:
    """Random numbers, each tensor from a generator of its own name; nothing is neutral."""
    made = {}
    for name, shape in shapes(pooler).items():
        random = np.random.default_rng(zlib.crc32(name.encode()))
        made[name] = random.normal(0.8 if "Norm.weight" in name else 0.0, 0.2, shape).astype(np.float32)
    return made


def write_folder(folder: Path, masked_lm: bool = False, pooler: bool = True, **changes: Any) -> Path:
    """config.json and model.safetensors; of a MaskedLM, names have a prefix and a head stands beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    held = {("roberta." if masked_lm else "") + name: x for name, x in tensors(pooler).items()}
    held |= {name: np.ones(shape, np.float32) for name, shape in HEADS.items()} if masked_lm else {}
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def batch() -> tuple[np.ndarray, np.ndarray]:
    """Rows of 9, 5 and 1 tokens padded on the right, and one of 6 padded on the left, with their mask."""
    lengths = np.array([9, 5, 1, 6])
    mask = np.arange(9)[None] < lengths[:, None]
    mask[3] = mask[3, ::-1]
    tokens = np.random.default_rng(5).integers(2, VOCAB, mask.shape, np.int32)
    return np.where(mask, tokens, 1).astype(np.int32), mask
