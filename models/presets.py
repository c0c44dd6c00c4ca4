"""Shapes of published models, to be trained from scratch or measured without their weights."""

from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.layers import gelu
from agentrl_jax.models.moe import ExpertsConfig
from agentrl_jax.models.rope import LinearRope, Llama3Rope, Rope

Preset = tuple[DecoderConfig, int]  # and the size of the vocabulary


def _qwen3(layers: int, width: int, hidden: int, heads: int, tied_head: bool) -> Preset:
    config = DecoderConfig(
        layers=layers,
        width=width,
        hidden=hidden,
        heads=heads,
        kv_heads=8,
        head_size=128,
        rope=Rope(1e6),
        qk_norm=True,
        tied_head=tied_head,
        max_positions=40_960,
    )
    return config, 151_936


def qwen3_0_6b() -> Preset:
    """Qwen/Qwen3-0.6B: 596,049,920 parameters."""
    return _qwen3(28, 1024, 3072, 16, True)


def qwen3_1_7b() -> Preset:
    """Qwen/Qwen3-1.7B: 1,720,574,976 parameters."""
    return _qwen3(28, 2048, 6144, 16, True)


def qwen3_4b() -> Preset:
    """Qwen/Qwen3-4B: 4,022,468,096 parameters."""
    return _qwen3(36, 2560, 9728, 32, True)


def qwen3_8b() -> Preset:
    """Qwen/Qwen3-8B: 8,190,735,360 parameters."""
    return _qwen3(36, 4096, 12_288, 32, False)


def qwen3_32b() -> Preset:
    """Qwen/Qwen3-32B: 32,762,123,264 parameters."""
    config = DecoderConfig(
        layers=64,
        width=5120,
        hidden=25_600,
        heads=64,
        kv_heads=8,
        head_size=128,
        rope=Rope(1e6),
        qk_norm=True,
        tied_head=False,
        max_positions=40_960,
    )
    return config, 151_936


def qwen3_30b_a3b() -> Preset:
    """Qwen/Qwen3-30B-A3B: 30,532,122,624 parameters, about 3.3 billion of them active per token."""
    config = DecoderConfig(
        layers=48,
        width=2048,
        hidden=6144,
        heads=32,
        kv_heads=4,
        head_size=128,
        rope=Rope(1e6),
        qk_norm=True,
        tied_head=False,
        max_positions=40_960,
        experts=ExpertsConfig(count=128, per_token=8, hidden=768),
    )
    return config, 151_936


def qwen2_5_0_5b() -> Preset:
    """Qwen/Qwen2.5-0.5B: 494,032,768 parameters."""
    config = DecoderConfig(
        layers=24,
        width=896,
        hidden=4864,
        heads=14,
        kv_heads=2,
        head_size=64,
        rope=Rope(1e6),
        qkv_bias=True,
        max_positions=32_768,
    )
    return config, 151_936


def llama3_2_1b() -> Preset:
    """meta-llama/Llama-3.2-1B: 1,235,814,400 parameters."""
    config = DecoderConfig(
        layers=16,
        width=2048,
        hidden=8192,
        heads=32,
        kv_heads=8,
        head_size=64,
        rope=Llama3Rope(5e5, factor=32.0),
        norm_eps=1e-5,
        max_positions=131_072,
    )
    return config, 128_256


def llama3_1_8b() -> Preset:
    """meta-llama/Llama-3.1-8B: 8,030,261,248 parameters."""
    config = DecoderConfig(
        layers=32,
        width=4096,
        hidden=14_336,
        heads=32,
        kv_heads=8,
        head_size=128,
        rope=Llama3Rope(5e5),
        norm_eps=1e-5,
        tied_head=False,
        max_positions=131_072,
    )
    return config, 128_256


def smollm2_135m() -> Preset:
    """HuggingFaceTB/SmolLM2-135M: 134,515,008 parameters."""
    config = DecoderConfig(
        layers=30,
        width=576,
        hidden=1536,
        heads=9,
        kv_heads=3,
        head_size=64,
        rope=Rope(1e5),
        norm_eps=1e-5,
        max_positions=8192,
    )
    return config, 49_152


def mistral_7b() -> Preset:
    """mistralai/Mistral-7B-v0.1: 7,241,732,096 parameters."""
    config = DecoderConfig(
        layers=32,
        width=4096,
        hidden=14_336,
        heads=32,
        kv_heads=8,
        head_size=128,
        norm_eps=1e-5,
        window=4096,
        tied_head=False,
        max_positions=32_768,
    )
    return config, 32_000


def gemma2_2b() -> Preset:
    """google/gemma-2-2b: 2,614,341,888 parameters."""
    config = DecoderConfig(
        layers=26,
        width=2304,
        hidden=9216,
        heads=8,
        kv_heads=4,
        head_size=256,
        norm_offset=True,
        post_norms=True,
        activation=gelu,
        embedding_scale=True,
        query_scale=256**-0.5,
        attention_cap=50.0,
        logit_cap=30.0,
        window=4096,
        windowed=(True, False),
        max_positions=8192,
    )
    return config, 256_000


def gemma3_1b() -> Preset:
    """google/gemma-3-1b: 999,885,952 parameters."""
    config = DecoderConfig(
        layers=26,
        width=1152,
        hidden=6912,
        heads=4,
        kv_heads=1,
        head_size=256,
        rope=Rope(1e6),
        window_rope=Rope(1e4),
        norm_offset=True,
        post_norms=True,
        qk_norm=True,
        activation=gelu,
        embedding_scale=True,
        query_scale=256**-0.5,
        window=512,
        windowed=(True, True, True, True, True, False),
        max_positions=32_768,
    )
    return config, 262_144


def gemma3_4b() -> Preset:
    """The language model of google/gemma-3-4b: 3,880,263,168 parameters with all 262,208 rows of
    its embedding.
    """
    config = DecoderConfig(
        layers=34,
        width=2560,
        hidden=10_240,
        heads=8,
        kv_heads=4,
        head_size=256,
        rope=LinearRope(1e6, factor=8.0),
        window_rope=Rope(1e4),
        norm_offset=True,
        post_norms=True,
        qk_norm=True,
        activation=gelu,
        embedding_scale=True,
        query_scale=256**-0.5,
        window=1024,
        windowed=(True, True, True, True, True, False),
        max_positions=131_072,
    )
    return config, 262_208
