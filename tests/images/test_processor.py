"""Patches: equal, bit by bit, to those of Hugging Face's processors that use Pillow and NumPy."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from agentrl_jax.images.cache import ImageCache
from agentrl_jax.images.loading import ImageError, ImageReader, encode_png, image_part, rgb
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

HALF = [0.5, 0.5, 0.5]


def budget(low: int, high: int) -> dict[str, int]:
    return {"shortest_edge": low, "longest_edge": high}


# Ours, and Hugging Face's with the same settings.
PROCESSORS: dict[str, tuple[ImageProcessor, Any]] = {
    "Qwen2.5-VL": (qwen2_5_vl_images(), Qwen2VLImageProcessorPil()),
    "Qwen2.5-VL, small": (
        qwen2_5_vl_images(28 * 28, 28 * 28 * 9),
        Qwen2VLImageProcessorPil(size=budget(28 * 28, 28 * 28 * 9)),
    ),
    "Qwen3-VL": (
        qwen3_vl_images(64 * 64, 256 * 256),
        Qwen2VLImageProcessorPil(
            size=budget(64 * 64, 256 * 256), patch_size=16, image_mean=HALF, image_std=HALF
        ),
    ),
    "patches of 4 pixels": (
        ImageProcessor(PixelBudget(64, 4096), 4, 2, 2),
        Qwen2VLImageProcessorPil(
            size=budget(64, 4096), patch_size=4, image_mean=HALF, image_std=HALF
        ),
    ),
}


def random_pixels(height: int, width: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def patches_of(processor: ImageProcessor, pixels: np.ndarray) -> np.ndarray:
    return processor.patches([processor.scale(pixels)])


@pytest.mark.parametrize("name", PROCESSORS)
@given(height=st.integers(1, 150), width=st.integers(1, 150), seed=st.integers(0, 9))
@settings(deadline=None, max_examples=25)
def test_patches_equal_those_of_hugging_face(name: str, height: int, width: int, seed: int):
    processor, reference = PROCESSORS[name]
    pixels = random_pixels(height, width, seed)
    expected = reference(Image.fromarray(pixels))
    patches, grid = patches_of(processor, pixels), processor.grid(height, width)
    assert patches.dtype == np.float32
    assert np.array_equal(patches, np.asarray(expected["pixel_values"]))
    assert [list(grid)] == np.asarray(expected["image_grid_thw"]).tolist()
    assert processor.num_tokens(grid) == len(patches) // 4 and patches.shape[1] == (
        processor.patch_width
    )


@pytest.mark.parametrize("mode", ["RGBA", "L", "P", "CMYK", "LA", "I;16", "1"])
def test_other_kinds_of_pixels_are_converted_as_hugging_face_does(mode: str):
    processor, reference = PROCESSORS["Qwen2.5-VL"]
    pixels = random_pixels(40, 60, 3)
    image = (
        Image.fromarray(pixels[..., 0].astype(np.uint16) * 200)
        if mode == "I;16"
        else Image.fromarray(pixels).convert(mode)
    )
    expected = np.asarray(reference(image)["pixel_values"])
    assert image.mode == mode and np.array_equal(patches_of(processor, rgb(image)), expected)


@pytest.mark.parametrize("shape", [(896, 896), (50, 300), (1000, 31)])
def test_gemmas_patches_are_cut_from_hugging_faces_pixels(shape: tuple[int, int]):
    """A patch is 14 x 14 pixels of each channel; 4 x 4 of them are a token, row by row."""
    pixels = random_pixels(*shape, 5)
    reference = Gemma3ImageProcessorPil(size={"height": 896, "width": 896})
    expected = np.asarray(reference(Image.fromarray(pixels))["pixel_values"])[0]
    processor = gemma3_images()
    patches = patches_of(processor, pixels)
    assert processor.grid(*shape) == (1, 64, 64) and processor.num_tokens((1, 64, 64)) == 256
    for row, column in ((0, 0), (0, 1), (1, 0), (63, 62)):
        window = expected[:, 14 * row : 14 * row + 14, 14 * column : 14 * column + 14]
        token = 16 * (row // 4) + column // 4
        assert np.array_equal(patches[16 * token + 4 * (row % 4) + column % 4], window.ravel())


def test_golden_patches():
    """An image whose pixel values are 9 y + x, with patches of one pixel: the order of patches."""
    pixels = np.repeat((9 * np.arange(4)[:, None] + np.arange(4))[..., None], 3, -1)
    processor = ImageProcessor(PixelBudget(16, 16), 1, 2, 2, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    patches = patches_of(processor, pixels.astype(np.uint8))
    assert np.rint(255 * patches[:, 0]).tolist() == [
        *(0, 1, 9, 10), *(2, 3, 11, 12), *(18, 19, 27, 28), *(20, 21, 29, 30)
    ]  # fmt: skip
    assert (patches == patches[:, :1]).all() and patches.shape == (16, 6)


@given(frames=st.integers(1, 5), height=st.integers(8, 60), width=st.integers(8, 60))
@settings(deadline=None, max_examples=20)
def test_a_video_shows_each_frame_as_the_image_processor_does(frames: int, height: int, width: int):
    processor, reference = PROCESSORS["Qwen2.5-VL, small"]
    video = [random_pixels(height, width, i) for i in range(frames)]
    patches = processor.patches([processor.scale(frame, frames) for frame in video])
    grid = processor.grid(height, width, frames)
    assert grid[0] == -(-frames // 2) and len(patches) == np.prod(grid)
    of_frames = patches.reshape(grid[0], -1, 3, 2, 14 * 14)
    for i in range(2 * grid[0]):
        frame = Image.fromarray(video[min(i, frames - 1)])
        expected = np.asarray(reference(frame)["pixel_values"]).reshape(-1, 3, 2, 14 * 14)
        assert np.array_equal(of_frames[i // 2, :, :, i % 2], expected[:, :, 0])


@pytest.mark.parametrize(
    ("frames", "height", "width", "expected"),
    [
        # transformers 5.23: smart_resize of video_processing_qwen3_vl with the factor 32
        (8, 480, 640, (256, 352)),
        (3, 100, 900, (96, 896)),
        (64, 720, 1280, (64, 128)),
        (2, 20, 20, (256, 256)),
    ],
)
def test_the_budget_of_a_whole_video(
    frames: int, height: int, width: int, expected: tuple[int, int]
):
    size = qwen3_vl_videos().size
    assert size.of(height, width, 32, frames) == expected


def test_the_budget_of_each_frame_does_not_depend_on_their_number():
    size = qwen2_5_vl_videos().size
    assert size.of(480, 640, 28, 1) == size.of(480, 640, 28, 100)


@given(height=st.integers(1, 3000), width=st.integers(1, 3000))
@settings(max_examples=200)
def test_an_image_stays_within_its_pixel_budget(height: int, width: int):
    size = PixelBudget(56 * 56, 28 * 28 * 100)
    if max(height, width) > 200 * min(height, width):
        with pytest.raises(ImageError, match="more than 200 times"):
            size.of(height, width, 28)
        return
    rows, columns = size.of(height, width, 28)
    assert rows % 28 == columns % 28 == 0
    assert rows * columns >= 56 * 56
    if max(height, width) < 50 * min(height, width):  # a side has one block at least
        assert rows * columns <= 28 * 28 * 100


@pytest.mark.parametrize("bounds", [(0, 5), (9, 5)])
def test_a_wrong_budget_is_refused(bounds: tuple[int, int]):
    with pytest.raises(ImageError, match="0 < min_pixels <= max_pixels"):
        PixelBudget(*bounds)


def test_the_cache_shares_equal_images_and_forgets_the_longest_unused():
    processor = ImageProcessor(FixedSize(8), 4, 2)
    cache = ImageCache(processor, max_bytes=2 * 8 * 8 * 3)
    parts = [image_part(random_pixels(9, 9, seed)) for seed in range(3)]
    first = cache.get(parts[0])
    assert cache.get(image_part(random_pixels(9, 9, 0))) is first
    assert np.array_equal(first.patches(), patches_of(processor, random_pixels(9, 9, 0)))
    second = cache.get(parts[1])
    cache.get(parts[0])
    cache.get(parts[2])  # forgets the second
    assert cache.num_bytes == 2 * 8 * 8 * 3 and cache.get(parts[0]) is first
    assert cache.get(parts[1]) is not second and first.num_tokens == 1 and first.num_patches == 4
    assert first.digest != ImageCache(ImageProcessor(FixedSize(16), 4, 2)).get(parts[0]).digest


def test_an_image_larger_than_the_cache_is_still_shown():
    cache = ImageCache(ImageProcessor(FixedSize(64), 4, 2), max_bytes=10)
    for seed in (1, 2):  # the newest stays
        assert cache.get(image_part(random_pixels(9, 9, seed))).frames.shape == (1, 64, 64, 3)
        assert cache.num_bytes == 64 * 64 * 3


def test_pixels_of_a_message_are_those_that_were_sent():
    pixels = random_pixels(30, 20, 7)
    assert np.array_equal(ImageReader().pixels(image_part(pixels)), pixels)
    assert encode_png(pixels) == encode_png(pixels)
