"""Images of messages: what is shown is what was sent, and hostile ones get a clear message."""

import base64
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from agentrl_jax.images.loading import (
    MAX_PIXELS,
    ImageError,
    ImageReader,
    crop,
    data_url,
    decode,
    encode_png,
    image_part,
)
from agentrl_jax.messages import ImagePart

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (5, 7, 3), np.uint8)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png_of_size(width: int, height: int) -> bytes:
    """A PNG file that claims a size and has hardly any data."""

    def chunk(name: bytes, data: bytes) -> bytes:
        check = zlib.crc32(name + data)
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(bytes(100)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + data + chunk(b"IEND", b"")


@given(height=st.integers(1, 9), width=st.integers(1, 9), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_an_array_comes_back_from_a_message(height: int, width: int, seed: int):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    part = image_part(pixels)
    assert np.array_equal(ImageReader().pixels(part), pixels)
    assert part == image_part(pixels.copy()) and part.url.startswith("data:image/png;base64,")


def test_grayscale_becomes_three_equal_channels():
    gray = PIXELS[..., 0]
    assert np.array_equal(decode(encode_png(gray)), np.stack([gray] * 3, -1))


def test_transparency_is_laid_on_white():
    """alpha 0: white; 255: the color; 51 is a fifth of the color and four fifths of white."""
    rgba = np.array([[[10, 20, 30, 0], [10, 20, 30, 255], [10, 60, 110, 51]]], np.uint8)
    assert decode(encode_png(rgba)).tolist() == [[[255] * 3, [10, 20, 30], [206, 216, 226]]]


def test_a_palette_with_a_transparent_color():
    image = Image.new("P", (2, 1))
    image.putpalette([200, 0, 0, 0, 0, 200])
    image.putpixel((1, 0), 1)
    encoded = saved(image, "PNG", transparency=0)
    assert decode(encoded).tolist() == [[[255, 255, 255], [0, 0, 200]]]


def test_cmyk_is_converted():
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))  # red
    red = decode(saved(image, "JPEG", quality=95))[4, 4]
    assert red[0] > 240 and red[1] < 15 and red[2] < 15


def test_the_first_frame_of_an_animation_is_shown():
    frames = [Image.new("RGB", (4, 4), color) for color in ("red", "blue")]
    encoded = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert decode(encoded)[0, 0].tolist() == [255, 0, 0]


def test_an_image_is_turned_as_its_exif_data_say():
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees clockwise
    pixels = np.zeros((2, 3, 3), np.uint8)
    pixels[0, 0] = 255  # becomes the upper right corner
    turned = decode(saved(Image.fromarray(pixels), "PNG", exif=exif))
    assert turned.shape == (3, 2, 3) and turned[0, 1].tolist() == [255] * 3


@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        (b"", "an image is empty"),
        (b"hello", "5 bytes are no image of a known format"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "no image of a known format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no image of a known format"),
        (encode_png(np.tile(PIXELS, (20, 20, 1)))[:500], "is damaged"),
        (png_of_size(0, 5), "is damaged|shows nothing|no image"),
        (png_of_size(9, 9), "is damaged"),
        (png_of_size(7000, 7000), "an image of 7000 x 7000 pixels is refused"),
        (png_of_size(12_000, 12_000), "pixels is refused"),
        (png_of_size(2**31 - 1, 2**31 - 1), "pixels is refused"),
    ],
    ids=range(10),
)
def test_a_hostile_image_gets_a_clear_message(encoded: bytes, message: str):
    with pytest.raises(ImageError, match=message):
        decode(encoded)


@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_damaged_bytes_are_decoded_or_refused(data: Any):
    encoded = bytearray(encode_png(PIXELS))
    for _ in range(data.draw(st.integers(1, 6))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    del encoded[data.draw(st.integers(8, len(encoded))) :]
    try:
        pixels = decode(bytes(encoded))
    except ImageError:
        return
    assert pixels.ndim == 3 and pixels.shape[2] == 3 and pixels.size <= 3 * MAX_PIXELS


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://example.invalid/a.png", "nothing is downloaded"),
        ("ftp://example.invalid/a.png", "nothing is downloaded"),
        ("data:image/png;base64", "is not of the form"),
        ("data:image/png,abc", "is not of the form"),
        ("data:image/png;base64,a*b", "are not base64"),
        ("data:image/png;base64,", "an image is empty"),
        ("data:image/png;base64," + "A" * (45 * 2**20), "33.8 MiB is refused"),
        ("/etc/passwd", "is a file"),
        ("file:///etc/passwd", "is a file"),
        ("", "is a file"),
    ],
    ids=range(10),
)
def test_an_url_that_is_no_image_gets_a_clear_message(url: str, message: str):
    with pytest.raises(ImageError, match=message) as error:
        ImageReader().pixels(ImagePart(url))
    assert len(str(error.value)) < 300


def test_a_file_is_read_only_inside_the_folder(tmp_path: Path):
    (tmp_path / "inside").mkdir()
    for path in (tmp_path / "secret.png", tmp_path / "inside" / "a.png"):
        path.write_bytes(encode_png(PIXELS))
    (tmp_path / "inside" / "link.png").symlink_to(tmp_path / "secret.png")
    reader = ImageReader(str(tmp_path / "inside"))
    for url in ("a.png", f"file://{tmp_path}/inside/a.png", str(tmp_path / "inside" / "a.png")):
        assert np.array_equal(reader.pixels(ImagePart(url)), PIXELS)
    for url in ("../secret.png", "link.png", str(tmp_path / "secret.png")):
        with pytest.raises(ImageError, match="is outside of the folder"):
            reader.pixels(ImagePart(url))
    for url in ("none.png", "a\0.png", ""):
        with pytest.raises(ImageError, match=r"cannot read the image|is outside"):
            reader.pixels(ImagePart(url))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 5, 3), np.uint8),
        np.zeros((5, 5, 3), np.float32),
        np.zeros((5, 5, 2), np.uint8),
        np.zeros(5, np.uint8),
    ],
)
def test_an_array_that_is_no_image_is_refused(array: np.ndarray):
    with pytest.raises(ImageError, match="an image is an array of uint8"):
        image_part(array)


def test_a_crop_has_the_resolution_of_the_original():
    pixels = np.arange(10 * 20 * 3).reshape(10, 20, 3).astype(np.uint8)
    assert np.array_equal(crop(pixels, 0.25, 0.5, 0.75, 1.0), pixels[5:10, 5:15])
    assert crop(pixels, 0.5, 0.5, 0.5001, 0.5001).shape == (1, 1, 3)
    with pytest.raises(ImageError, match="a crop needs"):
        crop(pixels, 0.5, 0, 0.4, 1)
    with pytest.raises(ImageError, match="a crop needs"):
        crop(pixels, float("nan"), 0, 0.4, 1)


def test_a_jpeg_is_read_as_it_is():
    encoded = saved(Image.fromarray(np.full((9, 9, 3), 128, np.uint8)), "JPEG")
    url = data_url(encoded, "jpeg")
    assert base64.b64decode(url.partition(",")[2]) == encoded
    assert ImageReader().pixels(ImagePart(url)).tolist() == [[[128] * 3] * 9] * 9
