"""Image parts to pixels and back; what a message holds is untrusted input."""

import base64
import binascii
import contextlib
import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.messages import ImagePart

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")  # decoded by Pillow itself, no other program
MAX_BYTES = 32 * 2**20  # of an encoded image
MAX_PIXELS = 40_000_000  # of a decoded one; a screen of 8K has 33 million


class ImageError(UserError):
    """An image that cannot be shown to a model; the message says what is wrong with it."""


def pillow() -> Any:
    """The module `PIL.Image`.

    Raises:
        UserError: Pillow is not installed.
    """
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError as error:
        raise UserError("images need Pillow: pip install 'agentrl_jax[vision]'") from error
    return PIL.Image


@dataclass(frozen=True)
class ImageReader:
    """Reads the images of messages.

    A `data:` URL is always read, a file only inside `folder`; nothing is fetched from a network.
    """

    folder: str = ""  # whose files a message may name, by path or `file:` URL; empty: none

    def encoded(self, part: ImagePart) -> bytes:
        """The bytes of the encoded image.

        Raises:
            ImageError: not a base64 `data:` URL, a file outside the folder, or too large.
        """
        url = part.url
        encoded = _data_url_bytes(url) if url.startswith("data:") else self._file_bytes(url)
        if len(encoded) > MAX_BYTES:
            raise ImageError(
                f"an image of {len(encoded) / 2**20:.1f} MiB is refused: "
                f"at most {MAX_BYTES / 2**20:.0f} MiB are read"
            )
        return encoded

    def pixels(self, part: ImagePart) -> np.ndarray:
        """The image as RGB, uint8 [height, width, 3]; see `decode`."""
        return decode(self.encoded(part))

    def _file_bytes(self, url: str) -> bytes:
        if "://" in url and not url.startswith("file://"):
            raise ImageError(
                f"the image {url:.80} is not inside the message: nothing is downloaded, "
                "send it as a data: URL"
            )
        if not self.folder:
            raise ImageError(
                f"the image {url:.80} is a file: send it as a data: URL, or name the folder whose "
                "files messages may show (ImageReader.folder)"
            )
        try:
            folder = Path(self.folder).resolve()
            path = (folder / url.removeprefix("file://")).resolve()
            if not path.is_relative_to(folder):
                raise ImageError(f"the image {url:.80} is outside of the folder {self.folder}")
            with open(path, "rb") as file:
                return file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise ImageError(f"cannot read the image {url!r:.80} ({reason})") from error


def _data_url_bytes(url: str) -> bytes:
    header, comma, data = url.partition(",")
    if not comma or not header.endswith(";base64"):
        raise ImageError(f"the image URL {header:.80} is not of the form data:image/png;base64,...")
    if len(data) > MAX_BYTES * 4 // 3 + 4:
        raise ImageError(
            f"an image of {len(data) * 3 / 4 / 2**20:.1f} MiB is refused: "
            f"at most {MAX_BYTES / 2**20:.0f} MiB are read"
        )
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ImageError(f"the data of an image URL are not base64 ({error})") from error


def decode(encoded: bytes) -> np.ndarray:
    """The pixels of an encoded image as RGB, uint8 [height, width, 3].

    The first frame of an animation, turned as its EXIF data say; transparency is laid on white, and
    grayscale, palettes and CMYK are converted, as Hugging Face's processors do.

    Raises:
        ImageError: no image of `FORMATS`, a damaged one, or more than `MAX_PIXELS`.
    """
    import PIL.ImageOps

    with opened(encoded) as image:
        image.load()
        return rgb(PIL.ImageOps.exif_transpose(image))


@contextlib.contextmanager
def opened(encoded: bytes) -> Iterator[Any]:
    """The Pillow image of an encoded one; see `decode`.

    What goes wrong while it is read is raised as an `ImageError`.
    """
    image_module = pillow()
    if not encoded:
        raise ImageError("an image is empty")
    try:
        with image_module.open(io.BytesIO(encoded), formats=FORMATS) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise _too_many_pixels(width, height)
            yield image
    except ImageError:
        raise
    except (image_module.DecompressionBombError, image_module.DecompressionBombWarning) as error:
        raise ImageError(
            f"an image of more than {MAX_PIXELS:,} pixels is refused: make it smaller"
        ) from error
    except image_module.UnidentifiedImageError as error:
        formats = ", ".join(FORMATS)
        raise ImageError(f"{len(encoded)} bytes are no image of a known format ({formats})") from (
            error
        )
    except Exception as error:  # decoders raise whatever damaged data lead them to
        raise ImageError(
            f"an image of {len(encoded)} bytes is damaged ({type(error).__name__}: {error!s:.80})"
        ) from error


def _too_many_pixels(width: int, height: int) -> ImageError:
    return ImageError(
        f"an image of {width} x {height} pixels is refused: at most {MAX_PIXELS:,} pixels are "
        "decoded, make it smaller"
    )


def rgb(image: Any) -> np.ndarray:
    """The pixels of a Pillow image; see `decode`."""
    image_module = pillow()
    if "A" in image.getbands() or image.info.get("transparency") is not None:
        image = image.convert("RGBA")
        white = image_module.new("RGBA", image.size, (255, 255, 255, 255))
        image = image_module.alpha_composite(white, image)
    pixels = np.asarray(image.convert("RGB"))
    if 0 in pixels.shape:
        raise ImageError(f"an image of {pixels.shape[1]} x {pixels.shape[0]} pixels shows nothing")
    return pixels


def encode_png(pixels: np.ndarray) -> bytes:
    """Pixels as a PNG file, without loss; equal pixels give equal bytes.

    Args:
        pixels: uint8 [height, width] or [height, width, 3 or 4].

    Raises:
        ImageError: any other array, or one without pixels.
    """
    file = io.BytesIO()
    pillow_image(pixels).save(file, "PNG", compress_level=6)
    return file.getvalue()


def pillow_image(pixels: np.ndarray) -> Any:
    """Pixels as a Pillow image; see `encode_png`."""
    is_image = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))
    if pixels.dtype != np.uint8 or not is_image or 0 in pixels.shape:
        raise ImageError(
            "an image is an array of uint8 [height, width] or [height, width, 3 or 4], "
            f"not {pixels.dtype} {list(pixels.shape)}"
        )
    if pixels.shape[0] * pixels.shape[1] > MAX_PIXELS:
        raise _too_many_pixels(pixels.shape[1], pixels.shape[0])
    return pillow().fromarray(pixels)


def data_url(encoded: bytes, kind: str = "png") -> str:
    """An encoded image as a URL of this MIME subtype."""
    return f"data:image/{kind};base64,{base64.b64encode(encoded).decode('ascii')}"


def image_part(pixels: np.ndarray, detail: str | None = None) -> ImagePart:
    """Pixels as the part of a message; see `encode_png`."""
    return ImagePart(data_url(encode_png(pixels)), detail)


def crop(pixels: np.ndarray, left: float, top: float, right: float, bottom: float) -> np.ndarray:
    """The rectangle of an image whose borders are fractions of its width and height.

    It has the resolution of the original and at least one pixel.

    Raises:
        ImageError: borders outside of [0, 1], or in the wrong order.
    """
    if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
        raise ImageError(
            "a crop needs 0 <= left < right <= 1 and 0 <= top < bottom <= 1, "
            f"not left {left}, top {top}, right {right}, bottom {bottom}"
        )
    rows, columns = (
        slice(int(a * n), max(int(a * n) + 1, int(np.ceil(b * n))))
        for a, b, n in ((top, bottom, len(pixels)), (left, right, pixels.shape[1]))
    )
    return pixels[rows, columns]


def content_hash(encoded: bytes) -> str:
    """The SHA-256 of an encoded image, in hexadecimal digits."""
    return hashlib.sha256(encoded).hexdigest()
