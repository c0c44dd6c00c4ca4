"""Video parts to frames and back; what a message holds is untrusted input."""

import io
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.images.loading import (
    FORMATS,
    ImageError,
    ImageReader,
    data_url,
    opened,
    pillow_image,
    rgb,
)
from agentrl_jax.messages import VideoPart

MAX_FRAMES = 768  # as in the video processors of Qwen2.5-VL and Qwen3-VL
MAX_VIDEO_PIXELS = 100_000_000  # of all frames: 300 MB
DEFAULT_SECONDS = 0.1  # of a frame whose file gives it none, as browsers show it
LONGEST_SECONDS = 60.0  # that a frame's duration in a PNG file may have


@dataclass(frozen=True, eq=False)
class VideoFrames:
    """The frames of a video and when each is shown."""

    frames: tuple[np.ndarray, ...]  # uint8 [height, width, 3], all of one size
    seconds: tuple[float, ...]


def read_video(reader: ImageReader, part: VideoPart) -> VideoFrames:
    """The frames of a part.

    Raises:
        ImageError: no animation of a known format, a damaged one, one frame, more than `MAX_FRAMES`
            or `MAX_VIDEO_PIXELS`, or other times than a time for each frame, in order.
    """
    if match := re.match(r"data:(video/[\w.+-]+)", part.url):
        raise ImageError(
            f"a video of the type {match[1]} needs a decoder, which is not here: send an animated "
            "PNG, GIF or WebP (data:image/png;base64,...)"
        )
    encoded = reader.encoded(part)
    with opened(encoded) as image:
        num_frames, (width, height) = _count_frames(image), image.size
        first = int(getattr(image, "default_image", False))  # a PNG's, which is no frame
        check_video_size(num_frames - first, height, width)
        frames, seconds, time = list[np.ndarray](), list[float](), 0.0
        for i in range(first, num_frames):
            image.seek(i)
            image.load()
            frames.append(rgb(image))
            seconds.append(time)
            time += image.info.get("duration", 0) / 1000 or DEFAULT_SECONDS
    return VideoFrames(tuple(frames), _checked_seconds(part.seconds or seconds, len(frames)))


def _count_frames(image: Any) -> int:
    """The frames of a Pillow image; those of a GIF are counted until they are too many."""
    if image.format == "GIF":
        too_many = min(MAX_FRAMES, MAX_VIDEO_PIXELS // (image.width * image.height)) + 1
        try:
            image.seek(too_many - 1)
        except EOFError:
            return image.n_frames
        return too_many
    return getattr(image, "n_frames", 1)


def check_video_size(frames: int, height: int, width: int) -> None:
    """Raises ImageError where a video of this size is not shown."""
    if frames < 2:
        formats = ", ".join(f for f in FORMATS if f in ("PNG", "GIF", "WEBP"))
        raise ImageError(
            f"a video needs at least 2 frames, not {frames}: send an animation ({formats}), or a "
            "single frame as an image"
        )
    if frames > MAX_FRAMES:
        raise ImageError(
            f"a video of {frames:,} frames is refused: at most {MAX_FRAMES} are read, send fewer "
            "frames a second"
        )
    if frames * height * width > MAX_VIDEO_PIXELS:
        raise ImageError(
            f"a video of {frames} frames of {width} x {height} pixels is refused: at most "
            f"{MAX_VIDEO_PIXELS:,} pixels are decoded, send fewer or smaller frames"
        )


def _checked_seconds(seconds: Sequence[float], frames: int) -> tuple[float, ...]:
    if len(seconds) != frames:
        raise ImageError(f"a video of {frames} frames has {len(seconds)} times, not one for each")
    try:
        times = tuple(map(float, seconds))
    except (TypeError, ValueError, OverflowError) as error:
        raise ImageError(f"the times of a video's frames are not numbers ({error})") from error
    in_order = all(a < b for a, b in itertools.pairwise(times))
    if not np.isfinite(times).all() or times[0] < 0 or not in_order:
        raise ImageError("the times of a video's frames must be seconds from 0 on, each later")
    return times


def video_part(frames: Sequence[np.ndarray], seconds: Sequence[float]) -> VideoPart:
    """Frames as the part of a message: an animated PNG, without loss.

    Args:
        frames: uint8 [height, width] or [height, width, 3], all of one size.
        seconds: when each is shown.

    Raises:
        ImageError: frames of several sizes, fewer than two, or too many; or see `encode_png`.
    """
    if len({frame.shape for frame in frames}) > 1:
        sizes = sorted({f"{frame.shape[1]} x {frame.shape[0]}" for frame in frames})
        raise ImageError(f"the frames of a video have one size, not {', '.join(sizes)}")
    check_video_size(len(frames), *(frames[0].shape[:2] if frames else (0, 0)))
    times = _checked_seconds(seconds, len(frames))
    durations = [min(b - a, LONGEST_SECONDS) for a, b in itertools.pairwise(times)]
    images: list[Any] = [pillow_image(frame) for frame in frames]
    file = io.BytesIO()
    images[0].save(
        file,
        "PNG",
        save_all=True,
        append_images=images[1:],
        duration=[max(round(1000 * x), 1) for x in (*durations, durations[-1])],  # ms
        # Frames that blend alike would be merged where they are equal.
        blend=[i % 2 for i in range(len(images))],
        compress_level=6,
    )
    return VideoPart(data_url(file.getvalue()), seconds=times)
