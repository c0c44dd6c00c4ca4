"""Hugging Face folders of every family, made from a config and random numbers, without torch."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 48,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
ORIGINAL_ROPE = {"rope_theta": 1e4, "original_max_position_embeddings": 16}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    **ORIGINAL_ROPE,
}
YARN_ROPE = {"rope_type": "yarn", "factor": 16.0, **ORIGINAL_ROPE}
LINEAR_ROPE = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}
MOE_FIELDS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
GEMMA_FIELDS = {"query_pre_attn_scalar": 8, "sliding_window": 6}

# Fields of a config.json in addition to SIZES, by a name of ours.
CONFIG_CASES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "head_dim": 8},
    "llama with biases and llama3 rope": {
        "model_type": "llama",
        "attention_bias": True,
        "mlp_bias": True,
        "rope_parameters": LLAMA3_ROPE,
    },
    "llama, old rope fields": {
        "model_type": "llama",
        "rope_theta": 500.0,
        "rope_scaling": {"type": "linear", "factor": 3.0},
    },
    "smollm": {
        "model_type": "llama",
        "tie_word_embeddings": True,
        "hidden_size": 48,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
    },
    "mistral": {"model_type": "mistral", "sliding_window": 6, "head_dim": None},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen2 with windows and yarn": {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 6,
        "max_window_layers": 2,
        "rope_parameters": YARN_ROPE,
    },
    "qwen3": {"model_type": "qwen3"},
    "qwen3 with biases": {
        "model_type": "qwen3",
        "attention_bias": True,
        "tie_word_embeddings": True,
    },
    "qwen3 experts": {"model_type": "qwen3_moe", "norm_topk_prob": True, **MOE_FIELDS},
    "qwen3 experts and dense layers": {
        "model_type": "qwen3_moe",
        "mlp_only_layers": [1],
        **MOE_FIELDS,
    },
    "gemma2": {
        "model_type": "gemma2",
        **GEMMA_FIELDS,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 4.0,
    },
    "gemma3": {
        "model_type": "gemma3_text",
        **GEMMA_FIELDS,
        "layer_types": [
            "sliding_attention",
            "sliding_attention",
            "full_attention",
            "sliding_attention",
        ],
        "rope_parameters": {
            "full_attention": LINEAR_ROPE,
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    },
}


def config_json(case: str) -> dict[str, Any]:
    return SIZES | {"tie_word_embeddings": False} | CONFIG_CASES[case]


def random_weights(shapes: dict[str, list[int]]) -> dict[str, np.ndarray]:
    """Random tensors, each from a generator seeded by its name; no norm is the identity."""
    tensors = {}
    for name, shape in shapes.items():
        random = np.random.default_rng(zlib.crc32(name.encode()))
        tensors[name] = random.normal(0.8 if "norm" in name else 0.0, 0.2, shape).astype(np.float32)
    return tensors


def write_folder(folder: Path, config: dict[str, Any], shapes: dict[str, list[int]]) -> Path:
    """config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(random_weights(shapes), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def random_prompts() -> np.ndarray:
    """Token rows [2, 20]."""
    return np.random.default_rng(7).integers(0, SIZES["vocab_size"], (2, 20), np.int32)
