"""Small policies that see, of each family's kind, without folders."""

import dataclasses

import numpy as np

from agentrl_jax.image_format import Grid
from agentrl_jax.models.layers import silu
from agentrl_jax.models.rope import Rope
from agentrl_jax.models.vision.config import VisionConfig
from agentrl_jax.models.vision.policy import VisionLanguageConfig, VisionLanguageModel

VOCAB = 48
DECODER = VisionLanguageConfig(
    layers=3, width=16, hidden=24, heads=4, kv_heads=2, head_size=8, image_token_id=45,
    video_token_id=46,
)  # fmt: skip
SMALL = VisionConfig(layers=3, width=16, hidden=24, heads=2, patch_size=2, position_side=5)
QWEN2_5 = dataclasses.replace(
    DECODER,
    rope=Rope(sections=(2, 1, 1)),
    vision=dataclasses.replace(
        SMALL, rms_norm=True, gated_mlp=True, activation=silu, patch_bias=False, position_side=0,
        window=4, full_layers=(1,),
    ),
)  # fmt: skip
QWEN3 = dataclasses.replace(
    DECODER,
    qk_norm=True,
    rope=Rope(sections=(2, 1, 1), interleaved=True),
    vision=dataclasses.replace(SMALL, deepstack_layers=(0, 1)),
)
GEMMA = dataclasses.replace(
    DECODER,
    norm_offset=True,
    window=6,
    windowed=(True, False),
    bidirectional_images=True,
    vision=dataclasses.replace(
        SMALL, fused_qkv=False, rope_theta=0.0, position_side=6, fixed_side=6, merge_size=3,
        temporal_patch_size=1, final_norm=True, average_pooling=True,
    ),
)  # fmt: skip
CONFIGS = {"qwen2.5": QWEN2_5, "qwen3": QWEN3, "gemma": GEMMA}


def random_params(policy: VisionLanguageModel) -> dict:
    """Every weight drawn, so that each affects the output."""
    import jax

    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    return jax.tree.map(lambda x: jax.numpy.asarray(rng.normal(0.0, 0.3, x.shape), x.dtype), shapes)


def some_grids(policy: VisionLanguageModel, count: int) -> list[Grid]:
    """Sizes of `count` images that the policy takes."""
    side = policy.image_format.fixed_side
    odd: list[Grid] = [(1, 6, 4), (1, 2, 10), (1, 8, 8), (1, 2, 2), (1, 4, 6)]
    return [(1, side, side) if side else odd[i % len(odd)] for i in range(count)]
