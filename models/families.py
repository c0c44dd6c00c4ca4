"""Families of decoders on the Hugging Face hub: what a config.json means as a `DecoderConfig`, and back."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig

from agentrl_jax.errors import UserError
from agentrl_jax.models.decoder import DecoderConfig, kinds, runs
from agentrl_jax.models.experts import ExpertsConfig
from agentrl_jax.models.layers import gelu, gelu_exact, silu
from agentrl_jax.models.rope import LinearRope, Llama3Rope, Rope, YarnRope
from agentrl_jax.models.weights import Layout

Json = dict[str, Any]
ACTIVATIONS = {"silu": silu, "swish": silu, "gelu_pytorch_tanh": gelu, "gelu": gelu_exact}
SLIDING, FULL = "sliding_attention", "full_attention"


def rope_of(p: Json) -> Rope:
    """The rope that a `rope_parameters` entry describes. Raises UserError on a kind that is not supported."""
    kind, theta = p.get("rope_type", "default"), float(p["rope_theta"])
    if p.get("partial_rotary_factor", 1.0) != 1.0:
        raise UserError("config.json: rotating only a part of each head (partial_rotary_factor) is not supported")
    if kind == "default":
        return Rope(theta)
    needed = {"linear": ("factor",), "llama3": ("factor", "low_freq_factor", "high_freq_factor"), "yarn": ("factor",)}
    for name in (*needed.get(kind, ()), *(("original_max_position_embeddings",) if kind in ("llama3", "yarn") else ())):
        if not p.get(name):
            raise UserError(f"config.json: a rope of type {kind!r} needs a {name}")
    if kind == "linear":
        return LinearRope(theta, float(p["factor"]))
    if kind == "llama3":
        factor, low, high = (float(p[name]) for name in ("factor", "low_freq_factor", "high_freq_factor"))
        return Llama3Rope(theta, factor, low, high, int(p["original_max_position_embeddings"]))
    if kind == "yarn":
        if p.get("mscale") or p.get("mscale_all_dim"):
            raise UserError("config.json: yarn with mscale (DeepSeek's) is not supported")
        fast, slow = float(p.get("beta_fast") or 32), float(p.get("beta_slow") or 1)
        attention, original = float(p.get("attention_factor") or 0), int(p["original_max_position_embeddings"])
        return YarnRope(theta, float(p["factor"]), original, fast, slow, attention, bool(p.get("truncate", True)))
    raise UserError(f"config.json: rope of type {kind!r} is not supported, only default, linear, llama3 and yarn")


def rope_json(rope: Rope) -> Json:
    """The inverse of `rope_of`."""
    p: Json = {"rope_type": "default", "rope_theta": rope.theta}
    if isinstance(rope, LinearRope):
        p |= {"rope_type": "linear", "factor": rope.factor}
    if isinstance(rope, Llama3Rope):
        p |= {"rope_type": "llama3", "factor": rope.factor, "low_freq_factor": rope.low, "high_freq_factor": rope.high}
        p |= {"original_max_position_embeddings": rope.original}
    if isinstance(rope, YarnRope):
        p |= {"rope_type": "yarn", "factor": rope.factor, "beta_fast": rope.fast, "beta_slow": rope.slow, "truncate": rope.truncate}
        p |= {"original_max_position_embeddings": rope.original} | ({"attention_factor": rope.attention} if rope.attention else {})
    return p


def _common(hf: Any) -> Json:
    """Fields that mean the same in every family."""
    activation = getattr(hf, "hidden_act", None) or hf.hidden_activation
    if activation not in ACTIVATIONS:
        raise UserError(f"config.json: the activation {activation!r} is not supported, only {', '.join(ACTIVATIONS)}")
    return {
        "layers": hf.num_hidden_layers, "width": hf.hidden_size, "hidden": hf.intermediate_size, "heads": hf.num_attention_heads,
        "kv_heads": hf.num_key_value_heads, "head_size": getattr(hf, "head_dim", None) or hf.hidden_size // hf.num_attention_heads,
        "norm_eps": hf.rms_norm_eps, "activation": ACTIVATIONS[activation], "tied_head": hf.tie_word_embeddings,
        "max_positions": hf.max_position_embeddings,
    }  # fmt: skip


def _windows(hf: Any) -> Json:
    """Windowed layers, of families that list the type of each layer."""
    return {"window": hf.sliding_window or 0, "windowed": tuple(kind == SLIDING for kind in hf.layer_types)}


def _llama(hf: Any) -> Json:
    return {"rope": rope_of(hf.rope_parameters), "qkv_bias": hf.attention_bias, "out_bias": hf.attention_bias, "mlp_bias": hf.mlp_bias}


def _mistral(hf: Any) -> Json:
    return {"rope": rope_of(hf.rope_parameters), "window": hf.sliding_window or 0}


def _qwen2(hf: Any) -> Json:
    return {"rope": rope_of(hf.rope_parameters), "qkv_bias": True, **_windows(hf)}


def _qwen3(hf: Any) -> Json:
    bias = {"qkv_bias": hf.attention_bias, "out_bias": hf.attention_bias}
    return {"rope": rope_of(hf.rope_parameters), "qk_norm": True, **bias, **_windows(hf)}


def _qwen3_moe(hf: Any) -> Json:
    dense = tuple(i for i in range(hf.num_hidden_layers) if i in hf.mlp_only_layers or (i + 1) % hf.decoder_sparse_step)
    experts = ExpertsConfig(hf.num_experts, hf.num_experts_per_tok, hf.moe_intermediate_size, hf.norm_topk_prob, dense=dense)
    bias = {"qkv_bias": hf.attention_bias, "out_bias": hf.attention_bias}
    return {"rope": rope_of(hf.rope_parameters), "qk_norm": True, "window": hf.sliding_window or 0, "experts": experts, **bias}


def _gemma(hf: Any) -> Json:
    if hf.use_bidirectional_attention:
        raise UserError("config.json: bidirectional attention is not supported by this decoder")
    return {
        "norm_offset": True, "post_norms": True, "embedding_scale": True, "query_scale": hf.query_pre_attn_scalar**-0.5,
        "attention_cap": hf.attn_logit_softcapping or 0.0, "logit_cap": hf.final_logit_softcapping or 0.0,
        "qkv_bias": hf.attention_bias, "out_bias": hf.attention_bias, **_windows(hf),
    }  # fmt: skip


def _gemma2(hf: Any) -> Json:
    return {"rope": rope_of(hf.rope_parameters), **_gemma(hf)}


def _gemma3(hf: Any) -> Json:
    ropes = hf.rope_parameters
    uncapped = {"attention_cap": 0.0}  # `transformers` has the field attn_logit_softcapping, and applies it in Gemma 2 alone
    return {"rope": rope_of(ropes[FULL]), "window_rope": rope_of(ropes[SLIDING]), "qk_norm": True, **_gemma(hf), **uncapped}


@dataclass(frozen=True)
class Family:
    """One `model_type`: which config it is, and the fields its config.json adds to the common ones."""

    architecture: str
    read: Callable[[Any], Json]
    write: Callable[[DecoderConfig], Json]


def _json_windows(c: DecoderConfig) -> Json:
    types = [SLIDING if c.window and c.windowed[i % len(c.windowed)] else FULL for i in range(c.layers)]
    return {"sliding_window": c.window or None, "layer_types": types}


def _json_qwen2(c: DecoderConfig) -> Json:
    return {"use_sliding_window": c.window > 0, "max_window_layers": 0, **_json_windows(c)}


def _json_qwen3(c: DecoderConfig) -> Json:
    return {"attention_bias": c.qkv_bias, **_json_qwen2(c)}


def _json_experts(c: DecoderConfig) -> Json:
    e = c.experts or ExpertsConfig()
    window = {"use_sliding_window": c.window > 0, "sliding_window": c.window or None, "attention_bias": c.qkv_bias}
    return window | {
        "num_experts": e.count, "num_experts_per_tok": e.per_token, "moe_intermediate_size": e.hidden, "norm_topk_prob": e.renormalise,
        "mlp_only_layers": list(e.dense), "decoder_sparse_step": 1, "router_aux_loss_coef": e.balance,
    }  # fmt: skip


def _json_gemma(c: DecoderConfig) -> Json:
    return {
        "query_pre_attn_scalar": round((c.query_scale or c.head_size**-0.5) ** -2), "attn_logit_softcapping": c.attention_cap or None,
        "final_logit_softcapping": c.logit_cap or None, "attention_bias": c.qkv_bias, **_json_windows(c),
    }  # fmt: skip


def _json_gemma3(c: DecoderConfig) -> Json:
    return _json_gemma(c) | {"rope_parameters": {FULL: rope_json(c.rope), SLIDING: rope_json(c.window_rope or c.rope)}}


FAMILIES = {
    "llama": Family("LlamaForCausalLM", _llama, lambda c: {"attention_bias": c.qkv_bias, "mlp_bias": c.mlp_bias}),
    "mistral": Family("MistralForCausalLM", _mistral, lambda c: {"sliding_window": c.window or None}),
    "qwen2": Family("Qwen2ForCausalLM", _qwen2, _json_qwen2),
    "qwen3": Family("Qwen3ForCausalLM", _qwen3, _json_qwen3),
    "qwen3_moe": Family("Qwen3MoeForCausalLM", _qwen3_moe, _json_experts),
    "gemma2": Family("Gemma2ForCausalLM", _gemma2, _json_gemma),
    "gemma3_text": Family("Gemma3ForCausalLM", _gemma3, _json_gemma3),
}


def config_of(hf: Any) -> DecoderConfig:
    """The decoder that a `transformers` config describes. Raises UserError where no family does."""
    family = FAMILIES.get(hf.model_type)
    if family is None:
        raise UserError(f"config.json: the architecture {hf.model_type!r} is not supported, only {', '.join(FAMILIES)}")
    return DecoderConfig(**_common(hf) | family.read(hf))


def json_of(config: DecoderConfig, vocab_size: int) -> Json:
    """A config.json for a decoder: of the first family that describes it exactly.

    Raises:
        UserError: none does.
    """
    names: dict[Any, str] = {function: name for name, function in reversed(ACTIVATIONS.items())}
    for model_type, family in FAMILIES.items():
        data = {
            "model_type": model_type, "architectures": [family.architecture], "vocab_size": vocab_size, "hidden_size": config.width,
            "intermediate_size": config.hidden, "num_hidden_layers": config.layers, "num_attention_heads": config.heads,
            "num_key_value_heads": config.kv_heads, "head_dim": config.head_size, "rms_norm_eps": config.norm_eps,
            "tie_word_embeddings": config.tied_head, "max_position_embeddings": config.max_positions,
            "hidden_activation" if model_type.startswith("gemma") else "hidden_act": names[config.activation],
            "rope_parameters": rope_json(config.rope), "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
            **family.write(config),
        }  # fmt: skip
        try:
            described = config_of(AutoConfig.for_model(**data))
        except StrictDataclassError:  # that family refuses it (Llama and Gemma: a width that is no multiple of the heads)
            continue
        if _meaning(described) == _meaning(config):
            return data
    raise UserError(f"no family of Hugging Face models ({', '.join(FAMILIES)}) describes this decoder: {config}")


def _meaning(c: DecoderConfig) -> Any:
    """What a config says about the function that its weights compute, however it says it."""
    neutral = DecoderConfig()
    return kinds(c), dataclasses.replace(
        c, rope=neutral.rope, window=0, windowed=neutral.windowed, window_rope=None, param_dtype="", compute_dtype="", kept=None,
        query_scale=round(c.query_scale or c.head_size**-0.5, 9), experts=c.experts and dataclasses.replace(c.experts, balance=0.0),
    )  # fmt: skip


ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "o_proj"}
MLP = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
IGNORED = ("rotary_emb.inv_freq", "lm_head.weight")  # old files hold the first, some with tied heads the second


def layouts(config: DecoderConfig) -> Any:
    """Where each weight lies in a Hugging Face folder: a tree like the stacked parameters."""
    tree: Json = {"embedding": Layout("model.embed_tokens.weight"), "final_norm": {"scale": Layout("model.norm.weight")}}
    if not config.tied_head:
        tree["head"] = Layout("lm_head.weight")
    for run in runs(config):
        tree[run.name] = _layer(config, run.sparse, run.start)
    return tree


def _layer(c: DecoderConfig, sparse: bool, start: int) -> Json:
    def at(name: str, inner: int = 0, flat: bool = False, stack: int = 1) -> Layout:
        return Layout(f"model.layers.{{0}}.{name}", inner, stack, start, flat)

    def norm(name: str) -> Json:
        return {"scale": at(f"{name}.weight")}

    attention: Json = {ours: at(f"self_attn.{theirs}.weight", 2 if ours == "out" else 1) for ours, theirs in ATTENTION.items()}
    biased = [name for name in ATTENTION if (c.out_bias if name == "out" else c.qkv_bias)]
    attention |= {f"{name}_bias": at(f"self_attn.{ATTENTION[name]}.bias", flat=True) for name in biased}
    if c.qk_norm:
        attention |= {"query_norm": norm("self_attn.q_norm"), "key_norm": norm("self_attn.k_norm")}
    if sparse:
        mlp = {ours: at(f"mlp.experts.{{1}}.{theirs}.weight", 1, stack=2) for ours, theirs in MLP.items()}
        mlp["router"] = at("mlp.gate.weight", 1)
    else:
        mlp = {ours: at(f"mlp.{theirs}.weight", 1) for ours, theirs in MLP.items()}
        mlp |= {f"{ours}_bias": at(f"mlp.{theirs}.bias") for ours, theirs in MLP.items() if c.mlp_bias}
    layer: Json = {"attention": attention, "mlp": mlp, "attention_norm": norm("input_layernorm")}
    if not c.post_norms:
        return layer | {"mlp_norm": norm("post_attention_layernorm")}
    return layer | {
        "attention_post_norm": norm("post_attention_layernorm"), "mlp_norm": norm("pre_feedforward_layernorm"),
        "mlp_post_norm": norm("post_feedforward_layernorm"),
    }  # fmt: skip
