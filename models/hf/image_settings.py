"""The image preprocessing of a Hugging Face folder, as the images of its model's prompts."""

import dataclasses
import json
from collections.abc import Callable, Collection, Sequence

from agentrl_jax.errors import UserError
from agentrl_jax.images.processor import (
    FixedSize,
    ImageProcessor,
    PixelBudget,
    gemma3_images,
    qwen2_5_vl_images,
    qwen2_5_vl_videos,
    qwen3_vl_images,
    qwen3_vl_videos,
)
from agentrl_jax.images.prompts import (
    VIDEO,
    ChatImages,
    gemma3_chat_images,
    qwen2_5_vl_chat_images,
    qwen3_vl_chat_images,
)
from agentrl_jax.models.decoder import HFOrigin
from agentrl_jax.models.hf.families import Json

# Of each `model_type`: the images of its prompts, and the preprocessing where the folder has none.
FAMILY_IMAGES: dict[str, tuple[Callable[..., ChatImages], ImageProcessor]] = {
    "qwen2_5_vl": (qwen2_5_vl_chat_images, qwen2_5_vl_images(videos=qwen2_5_vl_videos())),
    "qwen3_vl": (qwen3_vl_chat_images, qwen3_vl_images(videos=qwen3_vl_videos())),
    "gemma3": (gemma3_chat_images, gemma3_images()),
}
# The files that may hold the preprocessing, and the field in which it is.
IMAGE_FILES = (("preprocessor_config.json", ""), ("processor_config.json", "image_processor"))
VIDEO_FILES = (("video_preprocessor_config.json", ""), ("processor_config.json", "video_processor"))
RESAMPLING = {2: "bilinear", 3: "bicubic"}  # PIL's numbers
# What every `ImageProcessor` does, or never does.
FIXED_SETTINGS: Json = {
    "do_resize": True,
    "do_rescale": True,
    "do_normalize": True,
    "do_pan_and_scan": False,
}


def folder_images(
    origin: HFOrigin, max_tokens: int, added_tokens: Collection[str]
) -> ChatImages | None:
    """The images of a folder's model, and videos where it takes them, by its
    preprocessor_config.json, video_preprocessor_config.json or processor_config.json; None: it sees
    none.

    Args:
        origin: of the policy.
        max_tokens: of an image, and of a temporal patch of a video: larger ones are scaled to fewer
            pixels than the folder allows.
        added_tokens: of the folder's tokenizer; without that of videos none are taken.

    Raises:
        UserError: the preprocessing is another than `ImageProcessor`'s, or no image fits.
    """
    family = FAMILY_IMAGES.get(str(origin.config.get("model_type")))
    if family is None:
        return None
    chat_images, default = family
    processor = _limited(_with_settings(default, _settings(origin, IMAGE_FILES)), max_tokens)
    videos = default.videos if VIDEO in added_tokens else None
    if videos is not None:
        videos = _with_settings(videos, _settings(origin, VIDEO_FILES))
        videos = _limited_videos(videos, max_tokens)
    return chat_images(dataclasses.replace(processor, videos=videos))


def _settings(origin: HFOrigin, files: Sequence[tuple[str, str]]) -> Json:
    for name, field in files:
        try:
            data = json.loads(origin.files.get(name, b"{}"))
        except ValueError as error:
            raise UserError(f"{name} is not JSON ({error})") from error
        if isinstance(data, dict) and field:
            data = data.get(field) or {}
        if not isinstance(data, dict):
            raise UserError(f"{name} holds no JSON object with image preprocessing")
        if data:
            return data
    return {}


def _with_settings(default: ImageProcessor, settings: Json) -> ImageProcessor:
    s = {name: value for name, value in settings.items() if value is not None}
    for name, value in FIXED_SETTINGS.items():
        if s.get(name, value) != value:
            raise UserError(f"the image preprocessing {name}={s[name]} is not supported")
    if abs(s.get("rescale_factor", 1 / 255) - 1 / 255) > 1e-9:
        raise UserError(
            f"the image preprocessing rescale_factor={s['rescale_factor']} is not 1/255"
        )
    try:
        resample = RESAMPLING[s["resample"]] if "resample" in s else default.resample
        return dataclasses.replace(
            default,
            size=_size(default, s),
            patch_size=int(s.get("patch_size", default.patch_size)),
            merge_size=int(s.get("merge_size", default.merge_size)),
            frames_per_patch=int(s.get("temporal_patch_size", default.frames_per_patch)),
            mean=tuple(map(float, s.get("image_mean", default.mean))),
            std=tuple(map(float, s.get("image_std", default.std))),
            resample=resample,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"the folder's image preprocessing cannot be read ({error!r})") from error


def _size(default: ImageProcessor, settings: Json) -> FixedSize | PixelBudget:
    size = settings.get("size", {})
    if isinstance(default.size, FixedSize):
        height, width = (int(size.get(name, default.size.pixels)) for name in ("height", "width"))
        if height != width:
            raise ValueError(f"images of {width} x {height} pixels are not square")
        return FixedSize(height)
    assert isinstance(default.size, PixelBudget)
    low = settings.get("min_pixels", size.get("shortest_edge", default.size.min_pixels))
    high = settings.get("max_pixels", size.get("longest_edge", default.size.max_pixels))
    return PixelBudget(int(low), int(high), default.size.of_whole_video)


def _limited(processor: ImageProcessor, max_tokens: int) -> ImageProcessor:
    """The processor, of whose images none has more tokens."""
    if isinstance(size := processor.size, PixelBudget):
        high = _most_pixels(processor, size, max_tokens)
        if high < size.min_pixels:
            token_pixels = (processor.patch_size * processor.merge_size) ** 2
            raise UserError(
                f"an image has at least {-(-size.min_pixels // token_pixels)} tokens, and "
                f"{max_tokens} are allowed: raise --positions"
            )
        return dataclasses.replace(processor, size=dataclasses.replace(size, max_pixels=high))
    tokens = max_image_patches(processor) // processor.merge_size**2
    if tokens > max_tokens:
        raise UserError(
            f"an image has {tokens} tokens, and {max_tokens} are allowed: raise --positions"
        )
    return processor


def _limited_videos(videos: ImageProcessor, max_tokens: int) -> ImageProcessor:
    """The processor, of whose temporal patches none has more tokens."""
    size = videos.size
    assert isinstance(size, PixelBudget)
    high = _most_pixels(videos, size, max_tokens)
    low = min(size.min_pixels, high)
    return dataclasses.replace(
        videos, size=dataclasses.replace(size, min_pixels=low, max_pixels=high)
    )


def _most_pixels(processor: ImageProcessor, budget: PixelBudget, max_tokens: int) -> int:
    """The budget's pixels, or fewer: those of so many tokens of an image or temporal patch."""
    pixels = max_tokens * (processor.patch_size * processor.merge_size) ** 2
    if budget.of_whole_video:
        pixels *= processor.frames_per_patch
    return min(budget.max_pixels, pixels)


def max_image_patches(processor: ImageProcessor) -> int:
    """The most patches of an image, or of a temporal patch of a video."""
    size, factor = processor.size, processor.patch_size * processor.merge_size
    if isinstance(size, PixelBudget):
        pixels = size.max_pixels // (processor.frames_per_patch if size.of_whole_video else 1)
        most = pixels // factor**2 * processor.merge_size**2
        return max(most, max_image_patches(processor.videos) if processor.videos else 0)
    height, width = size.of(1, 1, factor)
    return height * width // processor.patch_size**2


def image_programs(processor: ImageProcessor) -> tuple[int, ...]:
    """The numbers of patches of an engine's programs (`EngineConfig.image_patches`): one for all
    images, and where they have different sizes one for those of a quarter of the most patches.
    """
    most, of_token = max_image_patches(processor), processor.merge_size**2
    if isinstance(processor.size, FixedSize) or most < 4 * of_token:
        return (most,)
    return most // 4 // of_token * of_token, most
