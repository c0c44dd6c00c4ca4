"""Small policies that see, of the kinds of Qwen2.5-VL, Qwen3-VL and Gemma 3, and their images."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import scipy.special

from agentrl_jax.image_format import ImagePatches
from agentrl_jax.images.cache import ImageCache, ModelImage
from agentrl_jax.images.loading import image_part
from agentrl_jax.images.processor import FixedSize, ImageProcessor, PixelBudget
from agentrl_jax.images.prompts import PromptImage
from agentrl_jax.images.videos import video_part
from agentrl_jax.models.rope import Rope
from agentrl_jax.models.vision.config import VisionConfig
from agentrl_jax.models.vision.policy import VisionLanguageConfig, VisionLanguageModel
from agentrl_jax.policy import PolicyInputs
from agentrl_jax.trajectories import Call

VOCAB_SIZE, PLACEHOLDER = 40, 39
SIZES: dict[str, Any] = {"layers": 2, "width": 16, "hidden": 32, "heads": 2, "kv_heads": 1}
TOWER: dict[str, Any] = {"layers": 2, "width": 16, "hidden": 24, "heads": 2, "patch_size": 4}


def vision_config(kind: str, **fields: Any) -> VisionLanguageConfig:
    """A small config of a kind: "Qwen2.5-VL", "Qwen3-VL" or "Gemma 3"."""
    c: dict[str, Any] = {**SIZES, "head_size": 16, "image_token_id": PLACEHOLDER, **fields}
    if kind == "Gemma 3":
        tower = VisionConfig(
            **TOWER, temporal_patch_size=1, fixed_side=4, position_side=4, rope_theta=0.0,
            average_pooling=True, final_norm=True, fused_qkv=False,
        )  # fmt: skip
        return VisionLanguageConfig(vision=tower, bidirectional_images=True, **c)
    if kind == "Qwen2.5-VL":
        tower = VisionConfig(
            **TOWER, window=4, full_layers=(1,), rms_norm=True, gated_mlp=True, position_side=0
        )
        return VisionLanguageConfig(vision=tower, rope=Rope(sections=(2, 3, 3)), **c)
    tower = VisionConfig(**TOWER, deepstack_layers=(0,), position_side=6)
    rope = Rope(sections=(4, 2, 2), interleaved=True)
    return VisionLanguageConfig(vision=tower, rope=rope, **c)


KINDS = ("Qwen2.5-VL", "Qwen3-VL", "Gemma 3")


@functools.cache
def policy_and_params(kind: str, frozen: tuple[str, ...] = ()) -> tuple[Any, Any]:
    """A small policy of a kind, with its first weights, which no test may donate."""
    policy = vision_config(kind, frozen=frozen).build(VOCAB_SIZE)
    return policy, policy.init(jax.random.key(0))


def processor_of(policy: VisionLanguageModel) -> ImageProcessor:
    """The preprocessing that a small policy's tower needs."""
    f = policy.image_format
    side = f.fixed_side * f.patch_size
    size = FixedSize(side) if side else PixelBudget(8 * 8, 32 * 32)
    images = ImageProcessor(size, f.patch_size, f.merge_size, f.temporal_patch_size)
    videos = dataclasses.replace(images, size=PixelBudget(8 * 8, 16 * 16))
    return dataclasses.replace(images, videos=None if side else videos)


def picture(height: int, width: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def model_image(policy: VisionLanguageModel, height: int, width: int, seed: int) -> ModelImage:
    return ImageCache(processor_of(policy)).get(image_part(picture(height, width, seed)))


def model_video(
    policy: VisionLanguageModel, frames: int, height: int, width: int, seed: int, fps: float = 1.0
) -> list[ModelImage]:
    """A video of random frames, or, as in Qwen3-VL's prompts, its temporal patches."""
    pixels = [picture(height, width, 100 * seed + i) for i in range(frames)]
    part = video_part(pixels, [i / fps for i in range(frames)])
    video = ImageCache(processor_of(policy)).get(part)
    if policy.config.rope.interleaved:
        return [video.temporal_patch(i) for i in range(video.grid[0])]
    return [video]


def prompt_of(parts: Sequence[int | ModelImage], seed: int = 0) -> tuple[np.ndarray, list[Any]]:
    """The ids and images of a prompt: a number stands for so many random tokens."""
    rng, ids, images = np.random.default_rng(seed), [], []
    for part in parts:
        if isinstance(part, ModelImage):
            images.append(PromptImage(len(ids), part))
            ids += [PLACEHOLDER] * part.num_tokens
        else:
            ids += rng.integers(0, PLACEHOLDER, part).tolist()
    return np.asarray(ids, np.int32), images


def reference_logp(
    policy: VisionLanguageModel, params: Any, call: Call, images: Sequence[PromptImage]
) -> np.ndarray:
    """The log-probs of a call's action in one forward pass, the tower included."""
    f, ids, count = policy.image_format, call.ids, len(call.ids)
    # Few lengths of rows and of patches: each is a compilation.
    padding = (0, -count % 32)
    layout = f.layout(count, [x.image.span(x.start) for x in images])
    index = np.full((1, count), -1, np.int32)
    first = 0
    for x in images:
        index[0, x.start : x.end] = first + np.arange(x.image.num_tokens)
        first += x.image.num_tokens
    patches = [ImagePatches(x.image.patches(), x.image.grid) for x in images]
    length = sum(x.image.num_patches for x in images)
    rope, last = layout.rope_positions, layout.visible_until
    inputs = PolicyInputs(
        tokens=np.pad(ids, padding)[None],
        positions=np.pad(np.arange(count, dtype=np.int32), padding)[None],
        segment_ids=np.pad(np.ones(count, np.int32), padding)[None],
        images=f.pack([patches], max(64, length + -length % 64)),
        image_index=np.pad(index, ((0, 0), padding), constant_values=-1),
        rope_positions=None if rope is None else np.pad(rope, ((0, 0), padding))[:, None],
        visible_until=None if last is None else np.pad(last, padding)[None],
    )
    logits = np.asarray(_logits(policy, params, inputs), np.float64) / call.sampling.temperature
    logp = scipy.special.log_softmax(logits, axis=-1)
    positions = np.arange(len(call.prompt), count)
    return logp[positions - 1, ids[positions]]


@functools.partial(jax.jit, static_argnums=0)
def _logits(policy: VisionLanguageModel, params: Any, inputs: PolicyInputs) -> jax.Array:
    return policy.logits(params, policy.apply(params, inputs).hidden)[0]
