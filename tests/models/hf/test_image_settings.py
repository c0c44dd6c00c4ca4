"""The image preprocessing of Hugging Face folders, against Hugging Face's own processors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from agentrl_jax.errors import UserError
from agentrl_jax.images.processor import FixedSize, ImageProcessor, PixelBudget
from agentrl_jax.models.decoder import HFOrigin
from agentrl_jax.models.hf.image_settings import folder_images, image_programs, max_image_patches

PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"
TOKENS = ("<|image_pad|>", "<|video_pad|>")


def origin(model_type: str, name: str = PREPROCESSOR, settings: Any = None) -> HFOrigin:
    files = {} if settings is None else {name: json.dumps(settings).encode()}
    return HFOrigin({"model_type": model_type}, files)


def processor_of(origin: HFOrigin, max_tokens: int = 100_000) -> ImageProcessor:
    images = folder_images(origin, max_tokens, TOKENS)
    assert images is not None
    return images.processor


# As the published folders have them.
QWEN2_5 = {
    "min_pixels": 3136,
    "max_pixels": 12845056,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
}
QWEN3 = {
    "size": {"longest_edge": 16777216, "shortest_edge": 65536},
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "processor_class": "Qwen3VLProcessor",
    "image_processor_type": "Qwen2VLImageProcessorFast",
}
GEMMA3 = {
    "do_convert_rgb": None,
    "do_normalize": True,
    "do_pan_and_scan": None,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_processor_type": "Gemma3ImageProcessor",
    "image_seq_length": 256,
    "image_std": [0.5, 0.5, 0.5],
    "resample": 2,
    "rescale_factor": 0.00392156862745098,
    "size": {"height": 896, "width": 896},
}


def saved(processor: Any, folder: Path) -> HFOrigin:
    processor.save_pretrained(folder)
    return origin("", PREPROCESSOR, json.loads((folder / PREPROCESSOR).read_text()))


@pytest.mark.parametrize(
    ("model_type", "reference"),
    [
        (
            "qwen2_5_vl",
            Qwen2VLImageProcessorPil(
                size={"shortest_edge": 28 * 28, "longest_edge": 28 * 28 * 9}, patch_size=14
            ),
        ),
        (
            "qwen3_vl",
            Qwen2VLImageProcessorPil(
                size={"shortest_edge": 32 * 32, "longest_edge": 32 * 32 * 7},
                patch_size=16,
                image_mean=[0.5] * 3,
                image_std=[0.25] * 3,
            ),
        ),
        ("gemma3", Gemma3ImageProcessorPil(size={"height": 112, "width": 112})),
    ],
)
def test_patches_are_those_of_the_saved_processor(model_type: str, reference: Any, tmp_path: Path):
    files = saved(reference, tmp_path).files
    processor = processor_of(HFOrigin({"model_type": model_type}, files))
    for seed, (height, width) in enumerate(((50, 90), (33, 20))):
        pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
        want = reference(Image.fromarray(pixels), return_tensors="np")["pixel_values"]
        ours = processor.patches([processor.scale(pixels)])
        if model_type == "gemma3":  # [1, 3, height, width]: its first row of patches
            want = want[0, :, :14].reshape(3, 14, -1, 14).transpose(2, 0, 1, 3)
            ours = ours.reshape(2, 2, 4, 4, -1)[0, :, 0].reshape(8, -1)  # squares of 4 x 4
            want = want.reshape(8, -1)
        np.testing.assert_allclose(ours, want, atol=1e-6)


def test_the_settings_of_published_folders_are_read():
    qwen2_5, qwen3 = processor_of(origin("qwen2_5_vl", PREPROCESSOR, QWEN2_5)), None
    assert qwen2_5.size == PixelBudget(3136, 12845056) and qwen2_5.patch_size == 14
    nested = {"image_processor": QWEN3, "processor_class": "Qwen3VLProcessor"}
    for name, settings in ((PREPROCESSOR, QWEN3), (PROCESSOR, nested)):
        qwen3 = processor_of(origin("qwen3_vl", name, settings))
        assert qwen3.size == PixelBudget(65536, 16777216) and qwen3.std == (0.5, 0.5, 0.5)
    gemma = processor_of(origin("gemma3", PREPROCESSOR, GEMMA3))
    assert gemma.size == FixedSize(896) and gemma.resample == "bilinear"
    assert max_image_patches(gemma) == 64 * 64 and image_programs(gemma) == (64 * 64,)


def test_the_video_settings_of_folders_are_read():
    sizes = {"size": {"longest_edge": 25165824, "shortest_edge": 4096}}
    for name, settings in (
        ("video_preprocessor_config.json", {**QWEN3, **sizes}),
        (PROCESSOR, {"image_processor": QWEN3, "video_processor": {**QWEN3, **sizes}}),
    ):
        images = folder_images(origin("qwen3_vl", name, settings), 100_000, TOKENS)
        assert images is not None and images.videos is not None
        videos = images.processor.videos
        assert videos is not None and videos.size == PixelBudget(4096, 25165824, True)
    default = processor_of(origin("qwen2_5_vl", PREPROCESSOR, QWEN2_5), 64).videos
    assert default is not None and default.size == PixelBudget(64 * 28**2, 64 * 28**2)
    limited = processor_of(origin("qwen3_vl"), 100)
    assert limited.videos is not None and limited.videos.size == PixelBudget(
        128 * 32**2, 2 * 100 * 32**2, True
    )
    assert max_image_patches(limited) == 400
    for without in (("gemma3", TOKENS), ("qwen3_vl", TOKENS[:1])):
        images = folder_images(origin(without[0]), 256, without[1])
        assert images is not None and images.videos is None is images.processor.videos


def test_a_folder_without_settings_has_those_of_its_family():
    assert processor_of(origin("qwen3_vl")).patch_size == 16
    assert folder_images(origin("qwen3"), 9, TOKENS) is None


def test_images_have_at_most_the_tokens_that_are_allowed():
    processor = processor_of(origin("qwen3_vl", PREPROCESSOR, QWEN3), 100)
    assert isinstance(processor.size, PixelBudget)
    assert processor.size.max_pixels == 100 * 32 * 32 and max_image_patches(processor) == 400
    assert image_programs(processor) == (100, 400)
    assert processor.num_tokens(processor.grid(4000, 3000)) <= 100
    with pytest.raises(UserError, match="at least 64 tokens, and 63 are allowed"):
        folder_images(origin("qwen3_vl", PREPROCESSOR, QWEN3), 63, TOKENS)
    with pytest.raises(UserError, match="has 256 tokens, and 255 are allowed"):
        folder_images(origin("gemma3", PREPROCESSOR, GEMMA3), 255, TOKENS)


@pytest.mark.parametrize(
    ("model_type", "settings", "message"),
    [
        ("gemma3", {"do_pan_and_scan": True}, "do_pan_and_scan=True is not supported"),
        ("qwen3_vl", {"do_resize": False}, "do_resize=False is not supported"),
        ("qwen3_vl", {"rescale_factor": 1.0}, "rescale_factor=1.0 is not 1/255"),
        ("qwen3_vl", {"resample": 1}, "cannot be read"),
        ("qwen3_vl", {"size": [3]}, "cannot be read"),
        ("gemma3", {"size": {"height": 9, "width": 8}}, "are not square"),
        ("qwen3_vl", {"patch_size": "large"}, "cannot be read"),
        ("qwen3_vl", [1], "holds no JSON object"),
    ],
)
def test_other_settings_are_refused(model_type: str, settings: Any, message: str):
    with pytest.raises(UserError, match=message):
        folder_images(origin(model_type, PREPROCESSOR, settings), 10_000, TOKENS)
