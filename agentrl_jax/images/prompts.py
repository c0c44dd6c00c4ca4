"""`ChatImages`: how the prompts of a model family show images and videos."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from agentrl_jax.config_tree import OMITTED_AT_DEFAULT
from agentrl_jax.errors import UserError
from agentrl_jax.images.cache import CACHE_BYTES, ImageCache, ModelImage
from agentrl_jax.images.loading import ImageReader
from agentrl_jax.images.processor import (
    ImageProcessor,
    gemma3_images,
    qwen2_5_vl_images,
    qwen3_vl_images,
)
from agentrl_jax.messages import Message, VideoPart
from agentrl_jax.text_codec import TextCodec, TokenIds, readonly_ids
from agentrl_jax.trajectories import Call

IMAGE, VIDEO = "<|image_pad|>", "<|video_pad|>"  # of Qwen's tokenizers


@dataclass(frozen=True, eq=False)
class PromptImage:
    """An image, whose tokens stand in a prompt from position `start`."""

    start: int
    image: ModelImage

    def moved(self, distance: int) -> "PromptImage":
        """The image so many tokens later."""
        return PromptImage(self.start + distance, self.image)

    @property
    def end(self) -> int:
        """The position after its last token."""
        return self.start + self.image.num_tokens


@dataclass(frozen=True, eq=False)
class RenderedPrompt:
    """A prompt as token ids, and the images that stand in it."""

    ids: TokenIds
    images: tuple[PromptImage, ...] = ()

    @property
    def text_ids(self) -> TokenIds:
        """The ids of a prompt for a model that is not given images.

        Raises:
            UserError: there are images in it.
        """
        if self.images:
            raise UserError(
                "a prompt with images cannot be used here: only the calls of episodes show images"
            )
        return self.ids

    @property
    def image_spans(self) -> tuple[tuple[int, int], ...]:
        """[start, end) of each image's placeholder tokens."""
        return tuple((image.start, image.end) for image in self.images)


@dataclass(frozen=True)
class ChatVideos:
    """How the prompts of a model family show videos.

    The chat template writes `marker` for a video, in the place of which stands, for each temporal
    patch, `time`, formatted with the mean of its first and last frame's seconds, then `before`,
    `token` as often as it has tokens, and `after`. Without `time` all patches are one span.
    """

    marker: str
    token: str
    time: str = ""
    before: str = ""
    after: str = ""

    def spans(self, video: ModelImage) -> list[ModelImage]:
        """What has a span of tokens each: the video, or its temporal patches."""
        if not self.time:
            return [video]
        return [video.temporal_patch(i) for i in range(video.grid[0])]

    def text(self, spans: Sequence[ModelImage]) -> str:
        """The text in place of a video, in which each span has one token."""
        return "".join(
            self.time.format((span.seconds[0] + span.seconds[-1]) / 2)
            + self.before
            + self.token
            + self.after
            for span in spans
        )


@dataclass(frozen=True)
class ChatImages:
    """A config's images: those of a model family, and where they are read from.

    The chat template writes `marker` for an image, in the place of which stand `before`, the
    placeholder token `token` as often as the image has tokens, and `after`.
    """

    processor: ImageProcessor
    marker: str
    token: str
    before: str = ""
    after: str = ""
    reader: ImageReader = field(default_factory=ImageReader)
    cache_bytes: int = CACHE_BYTES  # of scaled pixels
    # None: videos are refused
    videos: ChatVideos | None = field(default=None, metadata=OMITTED_AT_DEFAULT)


def qwen2_5_vl_chat_images(processor: ImageProcessor | None = None) -> ChatImages:
    """The images of Qwen2-VL's and Qwen2.5-VL's prompts, and videos if the processor has them."""
    return _qwen_chat_images(processor or qwen2_5_vl_images(), ChatVideos(VIDEO, VIDEO))


def qwen3_vl_chat_images(processor: ImageProcessor | None = None) -> ChatImages:
    """The images of Qwen3-VL's prompts, and videos if the processor has them.

    Each temporal patch of a video stands after its time, as "<1.5 seconds>".
    """
    videos = ChatVideos(VIDEO, VIDEO, "<{:.1f} seconds>", "<|vision_start|>", "<|vision_end|>")
    return _qwen_chat_images(processor or qwen3_vl_images(), videos)


def _qwen_chat_images(processor: ImageProcessor, videos: ChatVideos) -> ChatImages:
    has_videos = processor.videos is not None
    return ChatImages(processor, IMAGE, IMAGE, videos=videos if has_videos else None)


def gemma3_chat_images(processor: ImageProcessor | None = None) -> ChatImages:
    """The images of Gemma 3's prompts."""
    return ChatImages(
        processor or gemma3_images(),
        "<start_of_image>",
        "<image_soft_token>",
        "\n\n<start_of_image>",
        "<end_of_image>\n\n",
    )


def refuse_images(calls: Iterable[Call], reader: str) -> None:
    """Raises UserError where a call's prompt shows images, which `reader` is not given."""
    if any(call.images for call in calls):
        raise UserError(
            f"{reader} sees no images: leave it out, or give the agent a context without images "
            "(LastImages(0))"
        )


class ImagePrompter:
    """Writes the tokens of images into prompts, or refuses images."""

    def __init__(self, chat_images: ChatImages | None, codec: TextCodec) -> None:
        """Of a tokenizer.

        Args:
            chat_images: of the model family; None: images are refused.
            codec: of the tokenizer.

        Raises:
            UserError: the tokenizer lacks one of the format's tokens.
        """
        self._format, self._codec, f = chat_images, codec, chat_images
        # that stand for images and videos: no text spells them
        self.tokens = (f.marker, f.token) if f else ()
        self.tokens += (f.videos.token,) if f and f.videos else ()
        self._cache = ImageCache(f.processor, f.reader, f.cache_bytes) if f else None
        for token in self.tokens:
            if token not in codec.added_tokens.ids:
                raise UserError(
                    f"the tokenizer has no token {token!r}: give the agent the image format of "
                    "its model's family"
                )

    def check(self, messages: Sequence[Message]) -> None:
        """Raises UserError where there are images or videos and no format shows them."""
        parts = [part for message in messages for part in message.images]
        if parts and self._format is None:
            raise UserError(
                "this renderer does not show images: give the agent a chat renderer with the "
                "images of a vision model (ChatFormat(images=...))"
            )
        if self._format is None or self._format.videos is not None:
            return
        if any(isinstance(part, VideoPart) for part in parts):
            raise UserError(
                "this renderer does not show videos: send the frames as images, or, for a model "
                "that takes videos, set `videos` of its ImageProcessor"
            )

    def encode(self, text: str, messages: Sequence[Message]) -> TokenIds:
        """The ids of a chat template's text, in which all that outside texts spell is escaped.

        Args:
            text: holds a marker for each image.
            messages: those whose images it shows.

        Raises:
            UserError: it does not show every image.
            ImageError: an image cannot be shown.
        """
        f, images = self._format, self._images(messages)
        if f is None:
            return self._codec.encode_escaped(text)
        kinds = {f.marker: "images"} | ({f.videos.marker: "videos"} if f.videos else {})
        pieces = re.split(f"({'|'.join(map(re.escape, kinds))})", text)
        for marker, kind in kinds.items():
            num_shown = pieces[1::2].count(marker)
            expected = sum(image.marker == marker for image in images)
            if num_shown != expected:
                raise UserError(
                    f"the chat template shows {num_shown} of {expected} {kind}: "
                    "use the template of a vision model"
                )
        pieces[1::2] = [image.text for image in images]
        ids = self._codec.encode_escaped("".join(pieces))
        if not images:
            return ids
        repeats = np.ones(len(ids), np.int64)
        repeats[self._placeholders(ids)] = [x.num_tokens for image in images for x in image.spans]
        return readonly_ids(np.repeat(ids, repeats).tolist())

    def prompt_images(self, ids: TokenIds, messages: Sequence[Message]) -> tuple[PromptImage, ...]:
        """The images of messages in the ids that `encode` returned for them, and the videos, or
        each of their temporal patches.
        """
        images, first = [x for image in self._images(messages) for x in image.spans], 0
        positions = self._placeholders(ids) if images else ()
        prompt_images: list[PromptImage] = []
        for image in images:
            prompt_images.append(PromptImage(int(positions[first]), image))
            first += image.num_tokens
        return tuple(prompt_images)

    def recorded_images(self, call: Call) -> tuple[PromptImage, ...]:
        """The images of a call's prompt.

        Raises:
            UserError: images are refused, or have other numbers of tokens here.
        """
        if not call.images:
            return ()
        if self._cache is None:
            raise UserError("a prompt with images needs a renderer with the images of its model")
        starts = (start for start, _ in call.image_spans)
        images = tuple(map(PromptImage, starts, map(self._cache.get, call.images)))
        if RenderedPrompt(call.prompt, images).image_spans != call.image_spans:
            raise UserError(
                "the images of a prompt have other numbers of tokens than where it was written: "
                "their preprocessing has changed"
            )
        return images

    def extended_images(
        self, call: Call, bridge: TokenIds, new_messages: Sequence[Message]
    ) -> tuple[PromptImage, ...]:
        """The images of a prompt that extends a call by the ids of these messages."""
        added = self.prompt_images(bridge, new_messages)
        return (*self.recorded_images(call), *(image.moved(call.length) for image in added))

    def _placeholders(self, ids: TokenIds) -> np.ndarray:
        f = self._format
        assert f is not None
        tokens = [f.token, f.videos.token] if f.videos else [f.token]
        return np.flatnonzero(np.isin(ids, [self._codec.added_tokens.ids[x] for x in tokens]))

    def _images(self, messages: Sequence[Message]) -> list["_ShownImage"]:
        parts = [part for message in messages for part in message.images]
        if not parts:
            return []
        assert self._cache is not None and self._format is not None  # else `check` has refused them
        f, images = self._format, list[_ShownImage]()
        for part in parts:
            image = self._cache.get(part)
            if isinstance(part, VideoPart) and f.videos is not None:
                spans = f.videos.spans(image)
                images.append(_ShownImage(f.videos.marker, f.videos.text(spans), spans))
            else:
                images.append(_ShownImage(f.marker, f.before + f.token + f.after, [image]))
        return images


class _ShownImage(NamedTuple):
    """An image or a video in a prompt."""

    marker: str  # in the chat template's text
    text: str  # in the place of the marker, with one token for each span
    spans: list[ModelImage]
