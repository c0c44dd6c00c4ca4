"""Randomly drawn configs of every family, and torch models of them with random weights, for tests
of parity.
"""

import zlib
from typing import Any

import numpy as np
import torch
from torch_models import EAGER
from transformers import AutoConfig, AutoModelForCausalLM

Json = dict[str, Any]
SLIDING, FULL = "sliding_attention", "full_attention"
LONGEST = 256  # positions


def draw(family: str, number: int) -> Json:
    """The fields of a config.json, determined by the family and the number."""
    rng = np.random.default_rng([zlib.crc32(family.encode()), number])
    config: Json = _sizes(rng, family) | FAMILIES[family](rng) | {"model_type": family}
    if "layer_types" in config:
        config["layer_types"] = config["layer_types"][: config["num_hidden_layers"]]
    return config


def make_model(config: Json, dtype: torch.dtype = torch.float32) -> Any:
    """A model of that config; no norm is the identity, and every weight affects the logits."""
    net = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(**config), dtype=torch.float32, **EAGER
    )
    generator = torch.Generator().manual_seed(zlib.crc32(repr(sorted(config.items())).encode()))
    with torch.no_grad():
        for name, weight in net.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if "norm" in name:
                weight.copy_(
                    (0.0 if config["model_type"].startswith("gemma") else 0.9) + 0.3 * noise
                )  # Gemma stores scale - 1
            elif weight.ndim == 1:
                weight.copy_(0.3 * noise)
            else:
                weight.copy_(1.5 * weight.shape[-1] ** -0.5 * noise)
    return net.to(dtype).eval()


def _pick(rng: np.random.Generator, *options: Any) -> Any:
    return options[rng.integers(len(options))]


def _between(rng: np.random.Generator, low: int, high: int) -> int:
    return int(rng.integers(low, high + 1))


def _sizes(rng: np.random.Generator, family: str) -> Json:
    layers, heads, head_dim = (
        _between(rng, 1, 7),
        _pick(rng, 1, 2, 3, 4, 6, 8),
        2 * _between(rng, 2, 12),
    )
    kv_heads = _pick(rng, 1, heads, *(n for n in range(1, heads + 1) if heads % n == 0))
    width = heads * _between(rng, 1 + 15 // heads, 64 // heads)
    if family.startswith("qwen3"):
        width = _between(
            rng, 15, 64
        )  # the others need a multiple of the heads, whatever their size
    elif family in ("llama", "mistral") and rng.random() < 0.3:
        head_dim, width = None, 2 * heads * _between(rng, 1 + 8 // heads, 1 + 32 // heads)
    return {
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_size": width,
        "intermediate_size": _between(rng, 8, 80),
        "vocab_size": 2 * _between(rng, 15, 60) + 1,
        "rms_norm_eps": float(10 ** rng.uniform(-7, -3)),
        "tie_word_embeddings": bool(rng.random() < 0.5),
        "max_position_embeddings": LONGEST,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }


def _rope(rng: np.random.Generator) -> Json:
    plain = {"rope_theta": float(10 ** rng.uniform(1, 6.5))}
    factor, original = (
        float(rng.uniform(1.0, 16.0)),
        {"original_max_position_embeddings": 2 ** _between(rng, 3, 7)},
    )
    kind = _pick(rng, "default", "linear", "llama3", "yarn")
    if kind == "linear":
        plain |= {"factor": factor}
    if kind == "llama3":
        low = float(rng.uniform(0.5, 2.0))
        plain |= {
            "factor": factor,
            "low_freq_factor": low,
            "high_freq_factor": low + float(rng.uniform(0.5, 4.0)),
            **original,
        }
    if kind == "yarn":
        plain |= {"factor": factor, **original}
        if rng.random() < 0.5:
            plain |= {
                "beta_fast": float(rng.uniform(8, 40)),
                "beta_slow": float(rng.uniform(0.5, 4)),
            }
        if rng.random() < 0.3:
            plain |= {"attention_factor": float(rng.uniform(0.5, 1.5))}
    return {"rope_type": kind, **plain}


def _one_rope(rng: np.random.Generator) -> Json:
    rope = _rope(rng)
    return {
        "rope_parameters": rope
        | ({"truncate": False} if rope["rope_type"] == "yarn" and rng.random() < 0.3 else {})
    }


def _types(rng: np.random.Generator, layers: int = 7) -> list[str]:
    return [_pick(rng, SLIDING, FULL) for _ in range(layers)]


def _llama(rng: np.random.Generator) -> Json:
    return _one_rope(rng) | {
        "attention_bias": bool(rng.random() < 0.5),
        "mlp_bias": bool(rng.random() < 0.5),
    }


def _mistral(rng: np.random.Generator) -> Json:
    window = _pick(
        rng, None, _between(rng, 2, 25), _between(rng, 3, 12)
    )  # from 2: with a window of 1, torch's cache keeps all positions
    return _one_rope(rng) | {"sliding_window": window}


def _qwen2(rng: np.random.Generator) -> Json:
    window = {
        "use_sliding_window": bool(rng.random() < 0.7),
        "sliding_window": _between(rng, 2, 25),
    }
    if window["use_sliding_window"]:
        window |= _pick(
            rng, {"layer_types": _types(rng)}, {"max_window_layers": _between(rng, 0, 7)}
        )
    return _one_rope(rng) | window


def _qwen3(rng: np.random.Generator) -> Json:
    return _qwen2(rng) | {"attention_bias": bool(rng.random() < 0.5)}


def _qwen3_moe(rng: np.random.Generator) -> Json:
    count = _between(rng, 1, 9)
    return _one_rope(rng) | {
        "attention_bias": bool(rng.random() < 0.5),
        "use_sliding_window": bool(rng.random() < 0.5),
        "sliding_window": _between(rng, 2, 25),
        "num_experts": count,
        "num_experts_per_tok": _between(rng, 1, min(count, 4)),
        "moe_intermediate_size": _between(rng, 4, 40),
        "norm_topk_prob": bool(rng.random() < 0.5),
        "decoder_sparse_step": _pick(rng, 1, 1, 2, 3),
        "mlp_only_layers": [i for i in range(7) if rng.random() < 0.2],
    }


def _gemma2(rng: np.random.Generator) -> Json:
    return _one_rope(rng) | {
        "attention_bias": bool(rng.random() < 0.3),
        "query_pre_attn_scalar": _between(rng, 2, 64),
        "sliding_window": _between(rng, 2, 25),
        "attn_logit_softcapping": _pick(rng, None, float(rng.uniform(1, 50))),
        "layer_types": _types(rng),
        "final_logit_softcapping": _pick(rng, None, float(rng.uniform(2, 30))),
    }


def _gemma3(rng: np.random.Generator) -> Json:
    return _gemma2(rng) | {"rope_parameters": {FULL: _rope(rng), SLIDING: _rope(rng)}}


FAMILIES = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
}
