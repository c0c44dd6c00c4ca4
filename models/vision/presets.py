"""Shapes of published models that see, to be trained from scratch or measured without weights."""

import dataclasses

from agentrl_jax.models.layers import silu
from agentrl_jax.models.presets import gemma3_4b
from agentrl_jax.models.rope import Rope
from agentrl_jax.models.vision.config import VisionConfig
from agentrl_jax.models.vision.policy import VisionLanguageConfig

Preset = tuple[VisionLanguageConfig, int]  # and the size of the vocabulary


def _qwen2_5(layers: int, width: int, hidden: int, heads: int, kv_heads: int) -> Preset:
    vision = VisionConfig(
        layers=32,
        width=1280,
        hidden=3420,
        heads=16,
        patch_size=14,
        rms_norm=True,
        gated_mlp=True,
        activation=silu,
        patch_bias=False,
        position_side=0,
        window=8,
        full_layers=(7, 15, 23, 31),
    )
    config = VisionLanguageConfig(
        layers=layers,
        width=width,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_size=128,
        rope=Rope(1e6, sections=(16, 24, 24)),
        qkv_bias=True,
        tied_head=width == 2048,
        max_positions=128_000,
        vision=vision,
        image_token_id=151_655,
        video_token_id=151_656,
        positions_per_second=2.0,
    )
    return config, 151_936 if width == 2048 else 152_064


def qwen2_5_vl_3b() -> Preset:
    """Qwen/Qwen2.5-VL-3B-Instruct: 3,754,622,976 parameters."""
    return _qwen2_5(36, 2048, 11_008, 16, 2)


def qwen2_5_vl_7b() -> Preset:
    """Qwen/Qwen2.5-VL-7B-Instruct: 8,292,166,656 parameters."""
    return _qwen2_5(28, 3584, 18_944, 28, 4)


def _qwen3(layers: int, width: int, hidden: int, heads: int, vision: VisionConfig) -> Preset:
    config = VisionLanguageConfig(
        layers=layers,
        width=width,
        hidden=hidden,
        heads=heads,
        kv_heads=8,
        head_size=128,
        rope=Rope(5e6, sections=(24, 20, 20), interleaved=True),
        qk_norm=True,
        tied_head=width < 4096,
        max_positions=262_144,
        vision=dataclasses.replace(vision, heads=16, patch_size=16, position_side=48),
        image_token_id=151_655,
        video_token_id=151_656,
    )
    return config, 151_936


def qwen3_vl_2b() -> Preset:
    """Qwen/Qwen3-VL-2B-Instruct: 2,127,532,032 parameters."""
    vision = VisionConfig(layers=24, width=1024, hidden=4096, deepstack_layers=(5, 11, 17))
    return _qwen3(28, 2048, 6144, 16, vision)


def qwen3_vl_4b() -> Preset:
    """Qwen/Qwen3-VL-4B-Instruct: 4,437,815,808 parameters."""
    vision = VisionConfig(layers=24, width=1024, hidden=4096, deepstack_layers=(5, 11, 17))
    return _qwen3(36, 2560, 9728, 32, vision)


def qwen3_vl_8b() -> Preset:
    """Qwen/Qwen3-VL-8B-Instruct: 8,767,123,696 parameters."""
    vision = VisionConfig(layers=27, width=1152, hidden=4304, deepstack_layers=(8, 16, 24))
    return _qwen3(36, 4096, 12_288, 32, vision)


def gemma3_4b_vision() -> Preset:
    """google/gemma-3-4b with its tower: 4,300,079,472 parameters."""
    decoder, vocab_size = gemma3_4b()
    vision = VisionConfig(
        layers=27,
        width=1152,
        hidden=4304,
        heads=16,
        patch_size=14,
        temporal_patch_size=1,
        merge_size=4,
        fused_qkv=False,
        rope_theta=0.0,
        position_side=64,
        fixed_side=64,
        final_norm=True,
        average_pooling=True,
    )
    fields = {field.name: getattr(decoder, field.name) for field in dataclasses.fields(decoder)}
    config = VisionLanguageConfig(
        **fields, vision=vision, image_token_id=262_144, bidirectional_images=True
    )
    return config, vocab_size
