"""Families of decoders on the Hugging Face hub: the config.json fields of each `model_type`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.hf.rope_json import rope_from_json, rope_to_json
from agentrl_jax.models.moe import ExpertsConfig

Json = dict[str, Any]
SLIDING_ATTENTION, FULL_ATTENTION = "sliding_attention", "full_attention"


@dataclass(frozen=True)
class ModelFamily:
    """One `model_type`: its decoder config, and the fields that its config.json adds to the common
    ones.
    """

    architecture: str
    from_hf: Callable[[Any], Json]
    to_hf: Callable[[DecoderConfig], Json]


def _window_fields(hf: Any) -> Json:
    """Windowed layers, of families that list the type of each layer."""
    return {
        "window": hf.sliding_window or 0,
        "windowed": tuple(kind == SLIDING_ATTENTION for kind in hf.layer_types),
    }


def _llama(hf: Any) -> Json:
    return {
        "rope": rope_from_json(hf.rope_parameters),
        "qkv_bias": hf.attention_bias,
        "out_bias": hf.attention_bias,
        "mlp_bias": hf.mlp_bias,
    }


def _mistral(hf: Any) -> Json:
    return {"rope": rope_from_json(hf.rope_parameters), "window": hf.sliding_window or 0}


def qwen2_fields(hf: Any) -> Json:
    """The fields of Qwen 2's decoder."""
    return {"rope": rope_from_json(hf.rope_parameters), "qkv_bias": True, **_window_fields(hf)}


def _qwen3(hf: Any) -> Json:
    bias = {"qkv_bias": hf.attention_bias, "out_bias": hf.attention_bias}
    return {
        "rope": rope_from_json(hf.rope_parameters),
        "qk_norm": True,
        **bias,
        **_window_fields(hf),
    }


def _qwen3_moe(hf: Any) -> Json:
    dense = tuple(
        i
        for i in range(hf.num_hidden_layers)
        if i in hf.mlp_only_layers or (i + 1) % hf.decoder_sparse_step
    )
    experts = ExpertsConfig(
        hf.num_experts,
        hf.num_experts_per_tok,
        hf.moe_intermediate_size,
        hf.norm_topk_prob,
        dense_layers=dense,
    )
    bias = {"qkv_bias": hf.attention_bias, "out_bias": hf.attention_bias}
    return {
        "rope": rope_from_json(hf.rope_parameters),
        "qk_norm": True,
        "window": hf.sliding_window or 0,
        "experts": experts,
        **bias,
    }


def _gemma(hf: Any) -> Json:
    if hf.use_bidirectional_attention:
        raise UserError("config.json: bidirectional attention is not supported by this decoder")
    return {
        "norm_offset": True,
        "post_norms": True,
        "embedding_scale": True,
        "query_scale": hf.query_pre_attn_scalar**-0.5,
        "attention_cap": hf.attn_logit_softcapping or 0.0,
        "logit_cap": hf.final_logit_softcapping or 0.0,
        "qkv_bias": hf.attention_bias,
        "out_bias": hf.attention_bias,
        **_window_fields(hf),
    }


def _gemma2(hf: Any) -> Json:
    return {"rope": rope_from_json(hf.rope_parameters), **_gemma(hf)}


def _gemma3(hf: Any) -> Json:
    ropes = hf.rope_parameters
    # `transformers` has the field attn_logit_softcapping, and applies it in Gemma 2 alone
    uncapped = {"attention_cap": 0.0}
    return {
        "rope": rope_from_json(ropes[FULL_ATTENTION]),
        "window_rope": rope_from_json(ropes[SLIDING_ATTENTION]),
        "qk_norm": True,
        **_gemma(hf),
        **uncapped,
    }


def _window_json(c: DecoderConfig) -> Json:
    types = [
        SLIDING_ATTENTION if c.window and c.windowed[i % len(c.windowed)] else FULL_ATTENTION
        for i in range(c.layers)
    ]
    return {"sliding_window": c.window or None, "layer_types": types}


def qwen2_json(c: DecoderConfig) -> Json:
    """The inverse of `qwen2_fields`."""
    return {"use_sliding_window": c.window > 0, "max_window_layers": 0, **_window_json(c)}


def _json_qwen3(c: DecoderConfig) -> Json:
    return {"attention_bias": c.qkv_bias, **qwen2_json(c)}


def _json_experts(c: DecoderConfig) -> Json:
    e = c.experts or ExpertsConfig()
    window = {
        "use_sliding_window": c.window > 0,
        "sliding_window": c.window or None,
        "attention_bias": c.qkv_bias,
    }
    return window | {
        "num_experts": e.count,
        "num_experts_per_tok": e.per_token,
        "moe_intermediate_size": e.hidden,
        "norm_topk_prob": e.renormalize,
        "mlp_only_layers": list(e.dense_layers),
        "decoder_sparse_step": 1,
        "router_aux_loss_coef": e.balance,
    }


def _json_gemma(c: DecoderConfig) -> Json:
    return {
        "query_pre_attn_scalar": round((c.query_scale or c.head_size**-0.5) ** -2),
        "attn_logit_softcapping": c.attention_cap or None,
        "final_logit_softcapping": c.logit_cap or None,
        "attention_bias": c.qkv_bias,
        **_window_json(c),
    }


def _json_gemma3(c: DecoderConfig) -> Json:
    return _json_gemma(c) | {
        "rope_parameters": {
            FULL_ATTENTION: rope_to_json(c.rope),
            SLIDING_ATTENTION: rope_to_json(c.window_rope or c.rope),
        }
    }


FAMILIES = {
    "llama": ModelFamily(
        "LlamaForCausalLM", _llama, lambda c: {"attention_bias": c.qkv_bias, "mlp_bias": c.mlp_bias}
    ),
    "mistral": ModelFamily(
        "MistralForCausalLM", _mistral, lambda c: {"sliding_window": c.window or None}
    ),
    "qwen2": ModelFamily("Qwen2ForCausalLM", qwen2_fields, qwen2_json),
    "qwen3": ModelFamily("Qwen3ForCausalLM", _qwen3, _json_qwen3),
    "qwen3_moe": ModelFamily("Qwen3MoeForCausalLM", _qwen3_moe, _json_experts),
    "gemma2": ModelFamily("Gemma2ForCausalLM", _gemma2, _json_gemma),
    "gemma3_text": ModelFamily("Gemma3ForCausalLM", _gemma3, _json_gemma3),
}
