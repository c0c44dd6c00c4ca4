"""config.json of a Hugging Face decoder, with or without a vision tower, to `DecoderConfig` and
back.
"""

import dataclasses
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig

from agentrl_jax.errors import UserError
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.decoder_architecture import attention_kinds
from agentrl_jax.models.hf.activations import activation_name, read_activation
from agentrl_jax.models.hf.families import FAMILIES, Json, ModelFamily
from agentrl_jax.models.hf.rope_json import rope_to_json
from agentrl_jax.models.hf.vision_families import VISION_FAMILIES, VisionFamily
from agentrl_jax.models.vision.policy import VisionLanguageConfig


def config_from_hf(hf: Any) -> DecoderConfig:
    """The decoder that a `transformers` config describes.

    Raises:
        UserError: its `model_type` is not supported.
    """
    if hf.model_type in VISION_FAMILIES:
        family, text = VISION_FAMILIES[hf.model_type], hf.text_config
        fields = _common_fields(text, hf.tie_word_embeddings) | family.text.from_hf(text)
        return VisionLanguageConfig(**fields | family.from_hf(hf))
    family = FAMILIES.get(hf.model_type)
    if family is None:
        raise UserError(
            f"config.json: the architecture {hf.model_type!r} is not supported, "
            f"only {', '.join([*FAMILIES, *VISION_FAMILIES])}"
        )
    return DecoderConfig(**_common_fields(hf, hf.tie_word_embeddings) | family.from_hf(hf))


def _common_fields(hf: Any, tied_head: bool) -> Json:
    """Fields that mean the same in every family."""
    return {
        "layers": hf.num_hidden_layers,
        "width": hf.hidden_size,
        "hidden": hf.intermediate_size,
        "heads": hf.num_attention_heads,
        "kv_heads": hf.num_key_value_heads,
        "head_size": getattr(hf, "head_dim", None) or hf.hidden_size // hf.num_attention_heads,
        "norm_eps": hf.rms_norm_eps,
        "activation": read_activation(getattr(hf, "hidden_act", None) or hf.hidden_activation),
        "tied_head": tied_head,
        "max_positions": hf.max_position_embeddings,
    }


def config_to_json(config: DecoderConfig, vocab_size: int) -> Json:
    """A config.json of a decoder, by the first family that describes it exactly.

    Raises:
        UserError: no family does.
    """
    families = VISION_FAMILIES if isinstance(config, VisionLanguageConfig) else FAMILIES
    for model_type, family in families.items():
        data = _json_of_family(config, vocab_size, model_type, family)
        try:
            described = config_from_hf(AutoConfig.for_model(**data))
        except (StrictDataclassError, UserError):
            continue  # refused (Llama and Gemma: the width is not a multiple of the heads)
        if _canonical_config(described) == _canonical_config(config):
            return data
    raise UserError(
        f"no family of Hugging Face models ({', '.join(families)}) describes this decoder: {config}"
    )


def _json_of_family(
    config: DecoderConfig, vocab_size: int, model_type: str, family: ModelFamily | VisionFamily
) -> Json:
    if isinstance(family, ModelFamily):
        data = {"model_type": model_type, "architectures": [family.architecture]}
        return data | _decoder_json(config, vocab_size, model_type, family)
    assert isinstance(config, VisionLanguageConfig)
    vision = family.to_hf(config)
    vision["vision_config"]["model_type"] = family.vision_type
    text = _decoder_json(config, vocab_size, family.text_type, family.text)
    return {
        "model_type": model_type,
        "architectures": [family.architecture],
        "tie_word_embeddings": config.tied_head,
        "text_config": {"model_type": family.text_type} | text,
        **vision,
    }


def _decoder_json(
    config: DecoderConfig, vocab_size: int, model_type: str, family: ModelFamily
) -> Json:
    activation = "hidden_activation" if model_type.startswith("gemma") else "hidden_act"
    return {
        "vocab_size": vocab_size,
        "hidden_size": config.width,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tied_head,
        "max_position_embeddings": config.max_positions,
        activation: activation_name(config.activation),
        "rope_parameters": rope_to_json(config.rope),
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        **family.to_hf(config),
    }


def _canonical_config(c: DecoderConfig) -> Any:
    """Equal for configs whose weights compute the same function."""
    default = DecoderConfig()
    if isinstance(c, VisionLanguageConfig):
        c = dataclasses.replace(c, frozen=())
    return attention_kinds(c), dataclasses.replace(
        c,
        rope=default.rope,
        window=0,
        windowed=default.windowed,
        window_rope=None,
        param_dtype="",
        compute_dtype="",
        saved_activations=None,
        query_scale=round(c.query_scale or c.head_size**-0.5, 9),
        experts=c.experts and dataclasses.replace(c.experts, balance=0.0),
    )
