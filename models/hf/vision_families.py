"""Families of decoders that see: the config.json fields of each `model_type`."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.models.hf.activations import activation_name, read_activation
from agentrl_jax.models.hf.families import FAMILIES, Json, ModelFamily, qwen2_fields, qwen2_json
from agentrl_jax.models.hf.rope_json import rope_from_json
from agentrl_jax.models.rope import Rope
from agentrl_jax.models.vision.config import VisionConfig
from agentrl_jax.models.vision.policy import VisionLanguageConfig


@dataclass(frozen=True)
class VisionFamily:
    """One `model_type` with a `text_config` and a `vision_config`."""

    architecture: str
    text_type: str  # the `model_type` of its `text_config`
    vision_type: str
    text: ModelFamily
    from_hf: Callable[[Any], Json]  # fields of `VisionLanguageConfig` that its decoder has not
    to_hf: Callable[[VisionLanguageConfig], Json]


def _side(size: Any) -> int:
    """Of a square, which a config may give as one number or as two."""
    sides = {size} if isinstance(size, int) else set(size)
    if len(sides) != 1:
        raise UserError(f"config.json: patches and images must be square, not {size}")
    return sides.pop()


def _frames(size: Any) -> int:
    return size if isinstance(size, int) else size[0]


def _mrope(p: Json, default: tuple[int, ...], interleaved: bool) -> Rope:
    sections = tuple(p.get("mrope_section") or default)
    return dataclasses.replace(rope_from_json(p), sections=sections, interleaved=interleaved)


def _qwen_fields(hf: Any) -> Json:
    if hf.vision_config.out_hidden_size != hf.text_config.hidden_size:
        raise UserError(
            f"config.json: the tower's out_hidden_size ({hf.vision_config.out_hidden_size}) must "
            f"be the decoder's hidden_size ({hf.text_config.hidden_size})"
        )
    return {"image_token_id": hf.image_token_id, "video_token_id": hf.video_token_id}


def _qwen_tower(v: Any) -> Json:
    return {
        "layers": v.depth,
        "width": v.hidden_size,
        "hidden": v.intermediate_size,
        "heads": v.num_heads,
        "patch_size": _side(v.patch_size),
        "temporal_patch_size": _frames(v.temporal_patch_size),
        "channels": v.in_channels,
        "merge_size": v.spatial_merge_size,
        "activation": read_activation(v.hidden_act),
        "rope_theta": float(v.rope_parameters["rope_theta"]),
    }


def _qwen_json(c: VisionLanguageConfig) -> Json:
    v = c.vision
    vision = {
        "depth": v.layers,
        "hidden_size": v.width,
        "intermediate_size": v.hidden,
        "num_heads": v.heads,
        "patch_size": v.patch_size,
        "temporal_patch_size": v.temporal_patch_size,
        "in_channels": v.channels,
        "spatial_merge_size": v.merge_size,
        "hidden_act": activation_name(v.activation),
        "rope_parameters": {"rope_type": "axial", "rope_theta": v.rope_theta},
        "out_hidden_size": c.width,
    }
    tokens = {"image_token_id": c.image_token_id, "video_token_id": c.video_token_id}
    return tokens | {"vision_config": vision}


def _qwen2_5_text(hf: Any) -> Json:
    rope = _mrope(hf.rope_parameters, (16, 24, 24), False)
    return qwen2_fields(hf) | {"rope": rope}


def _qwen2_5(hf: Any) -> Json:
    v = hf.vision_config
    vision = VisionConfig(
        **_qwen_tower(v),
        rms_norm=True,
        gated_mlp=True,
        patch_bias=False,
        position_side=0,
        window=v.window_size // v.spatial_merge_size // v.patch_size * v.spatial_merge_size,
        full_layers=tuple(v.fullatt_block_indexes),
    )
    return _qwen_fields(hf) | {"vision": vision, "positions_per_second": float(v.tokens_per_second)}


def _json_qwen2_5(c: VisionLanguageConfig) -> Json:
    data, v = _qwen_json(c), c.vision
    data["vision_config"] |= {
        "window_size": v.window * v.patch_size,
        "fullatt_block_indexes": list(v.full_layers),
        "tokens_per_second": round(c.positions_per_second),
    }
    return data


def _qwen3_text(hf: Any) -> Json:
    rope = _mrope(hf.rope_parameters, (24, 20, 20), True)
    bias = {"qkv_bias": hf.attention_bias, "out_bias": hf.attention_bias}
    return {"rope": rope, "qk_norm": True, **bias}


def _qwen3(hf: Any) -> Json:
    v = hf.vision_config
    vision = VisionConfig(
        **_qwen_tower(v),
        position_side=math.isqrt(v.num_position_embeddings),
        deepstack_layers=tuple(v.deepstack_visual_indexes),
    )
    return _qwen_fields(hf) | {"vision": vision}


def _json_qwen3(c: VisionLanguageConfig) -> Json:
    data = _qwen_json(c)
    data["vision_config"] |= {
        "num_position_embeddings": c.vision.position_side**2,
        "deepstack_visual_indexes": list(c.vision.deepstack_layers),
    }
    return data


def _gemma3(hf: Any) -> Json:
    v = hf.vision_config
    if v.model_type != "siglip_vision_model" or v.vision_use_head:
        raise UserError(
            "config.json: the vision tower must be a siglip_vision_model with "
            f"vision_use_head false, not {v.model_type!r} with {v.vision_use_head!r}"
        )
    if hf.mm_tokens_per_image < 1:
        raise UserError(
            f"config.json: mm_tokens_per_image must be at least 1, not {hf.mm_tokens_per_image}"
        )
    side = _side(v.image_size) // _side(v.patch_size)
    vision = VisionConfig(
        layers=v.num_hidden_layers,
        width=v.hidden_size,
        hidden=v.intermediate_size,
        heads=v.num_attention_heads,
        patch_size=_side(v.patch_size),
        temporal_patch_size=1,
        channels=v.num_channels,
        merge_size=side // math.isqrt(hf.mm_tokens_per_image),
        norm_eps=v.layer_norm_eps,
        activation=read_activation(v.hidden_act),
        fused_qkv=False,
        rope_theta=0.0,
        position_side=side,
        fixed_side=side,
        final_norm=True,
        average_pooling=True,
    )
    return {
        "vision": vision,
        "image_token_id": hf.image_token_id,
        "bidirectional_images": True,
    }


def _json_gemma3(c: VisionLanguageConfig) -> Json:
    v = c.vision
    vision = {
        "num_hidden_layers": v.layers,
        "hidden_size": v.width,
        "intermediate_size": v.hidden,
        "num_attention_heads": v.heads,
        "patch_size": v.patch_size,
        "image_size": v.fixed_side * v.patch_size,
        "num_channels": v.channels,
        "layer_norm_eps": v.norm_eps,
        "hidden_act": activation_name(v.activation),
        "vision_use_head": False,
    }
    return {
        "vision_config": vision,
        "mm_tokens_per_image": (v.fixed_side // v.merge_size) ** 2,
        "image_token_index": c.image_token_id,
    }


VISION_FAMILIES = {
    "qwen2_5_vl": VisionFamily(
        "Qwen2_5_VLForConditionalGeneration",
        "qwen2_5_vl_text",
        "qwen2_5_vl_vision",
        ModelFamily("", _qwen2_5_text, qwen2_json),
        _qwen2_5,
        _json_qwen2_5,
    ),
    "qwen3_vl": VisionFamily(
        "Qwen3VLForConditionalGeneration",
        "qwen3_vl_text",
        "qwen3_vl_vision",
        ModelFamily("", _qwen3_text, lambda c: {"attention_bias": c.qkv_bias}),
        _qwen3,
        _json_qwen3,
    ),
    "gemma3": VisionFamily(
        "Gemma3ForConditionalGeneration",
        "gemma3_text",
        "siglip_vision_model",
        FAMILIES["gemma3_text"],
        _gemma3,
        _json_gemma3,
    ),
}
