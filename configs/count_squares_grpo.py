"""GRPO (arXiv 2402.03300) of a policy that sees: how many squares of a color are in a picture?

The picture has 3 x 3 cells, each of them a token of the prompt. The policy has a tower of
Qwen3-VL's kind (deepstack, positions of three axes) and 0.2 million weights in all, tower and
projector trained. `:smoke` takes a few steps.

Hardware: 2 CPU cores; time and score: docs/vision.md

    agentrl-train --config=configs/count_squares_grpo.py[:smoke]
"""

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.configs.small import pick
from agentrl_jax.images.processor import ImageProcessor, PixelBudget
from agentrl_jax.images.prompts import qwen3_vl_chat_images
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.image_rows import ImageRows
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.rope import Rope
from agentrl_jax.models.vision.config import VisionConfig
from agentrl_jax.models.vision.policy import VisionLanguageConfig
from agentrl_jax.models.vision.tokenizer import VisionByteTokenizer
from agentrl_jax.renderer import ChatFormat
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.config import (
    AgentConfig,
    DemonstrationConfig,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
)
from agentrl_jax.training.sources import Demonstrations, Rollouts

CELLS, CELL_PIXELS = 3, 8
PATCHES = (2 * CELLS) ** 2  # of a picture: four per cell
MAX_LENGTH = 96  # tokens of an episode
SIDE = CELLS * CELL_PIXELS
# A picture keeps its size: patches of 4 pixels, of which 2 x 2 are a cell.
PROCESSOR = ImageProcessor(PixelBudget(SIDE**2, SIDE**2), 4, 2, 2)


def get_config(variant: str = "method") -> Experiment:
    sft_steps, rl_steps, demonstrations = pick(
        variant, "count_squares_grpo", method=(150, 60, 3000), smoke=(3, 2, 64)
    )
    images = ImageRows(PROCESSOR, PATCHES)
    imitate = BehaviorCloningConfig(
        optimizer=AdamWConfig(3e-3, warmup_steps=10, final_fraction=0.1),
        bin_length=MAX_LENGTH,
        microbatch=32,
        images=images,
    )
    method = grpo(
        optimizer=AdamWConfig(1e-3, warmup_steps=3),
        bin_length=MAX_LENGTH,
        microbatch=32,
        images=images,
    )
    rollouts = Rollouts(tasks=16, strategy=IndependentEpisodes(8))
    return Experiment(
        name="count-squares-grpo",
        environment=EnvironmentConfig(
            "agentrl_jax.envs:agentrl/CountSquares-v0",
            {"cells": CELLS, "cell_pixels": CELL_PIXELS},
            workers=0,
        ),
        agent=AgentConfig(ChatFormat(images=qwen3_vl_chat_images(PROCESSOR)), budget=4),
        tokenizer=VisionByteTokenizer(),
        policy=VisionLanguageConfig(
            layers=2,
            width=64,
            hidden=128,
            heads=4,
            kv_heads=2,
            head_size=16,
            rope=Rope(sections=(4, 2, 2), interleaved=True),
            vision=VisionConfig(
                layers=2, width=48, hidden=96, patch_size=4, position_side=6, deepstack_layers=(0,)
            ),
        ),
        demonstrations=DemonstrationConfig("mixture", episodes=demonstrations),
        phases={
            "sft": Phase("SFT", Demonstrations(batch=32), imitate, sft_steps),
            "rl": Phase("GRPO", rollouts, method, rl_steps),
        },
        evaluation=EvaluationConfig(episodes=256, players=("random", "expert")),
        engine=EngineConfig(
            rows=128,
            positions=MAX_LENGTH,
            prefill_chunk=16,
            min_decode_steps=4,
            batching_delay=0.1,
            image_patches=(PATCHES,),
        ),
    )
