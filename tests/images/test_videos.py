"""Videos of messages: their frames, and prompts with the ids of Hugging Face's processors."""

import dataclasses
import io
import itertools
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.chat_families import FAMILIES
from support.fixtures import make_call
from support.vision_families import HIGH, LOW, VISION_FAMILIES
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize
from transformers.video_utils import VideoMetadata

from agentrl_jax.errors import UserError
from agentrl_jax.images import videos
from agentrl_jax.images.cache import ImageCache
from agentrl_jax.images.loading import ImageError, ImageReader, data_url, image_part
from agentrl_jax.images.processor import qwen2_5_vl_images
from agentrl_jax.images.prompts import qwen3_vl_chat_images
from agentrl_jax.images.videos import MAX_FRAMES, read_video, video_part
from agentrl_jax.messages import ImagePart, Message, TextPart, VideoPart, assistant, user
from agentrl_jax.renderer import ChatRenderer

QWEN = ("Qwen2.5-VL", "Qwen3-VL")
RENDERERS = {name: VISION_FAMILIES[name].renderer() for name in VISION_FAMILIES}
PROCESSORS = {name: VISION_FAMILIES[name].processor() for name in QWEN}


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def clip(frames: int, height: int = 40, width: int = 50, fps: float = 2.0, seed: int = 0):
    pixels = noise(frames, height, width, 3, seed=seed)
    return video_part(list(pixels), [i / fps for i in range(frames)])


def animation(kind: str, frames: Iterable[np.ndarray], **options: Any) -> bytes:
    file = io.BytesIO()
    first, *others = [Image.fromarray(frame) for frame in frames]
    first.save(file, kind, save_all=True, append_images=others, **options)
    return file.getvalue()


@given(
    frames=st.lists(st.integers(0, 2), min_size=2, max_size=6),
    gray=st.booleans(),
    steps=st.lists(st.floats(0.01, 200), min_size=6, max_size=6),
)
@settings(max_examples=40, deadline=None)
def test_frames_and_times_come_back(frames: list[int], gray: bool, steps: list[float]):
    """Also frames that are equal to the one before, in part or all."""
    shapes = noise(3, 9, 7) if gray else noise(3, 9, 7, 3)
    shapes[1, :4] = shapes[0, :4]
    pixels = [shapes[i] for i in frames]
    seconds = np.cumsum(steps)[: len(frames)].tolist()
    part = video_part(pixels, seconds)
    video = read_video(ImageReader(), part)
    expected = [np.repeat(x[:, :, None], 3, axis=2) if gray else x for x in pixels]
    assert np.array_equal(np.stack(video.frames), np.stack(expected))
    assert video.seconds == tuple(seconds)
    assert VideoPart.from_dict(part.to_dict()) == part
    assert Message.from_dict(Message("user", (part,)).to_dict()).content == (part,)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_a_file_has_its_own_times(kind: str):
    frames = [np.full((8, 8, 3), i * 40, np.uint8) for i in range(4)]
    url = data_url(animation(kind, frames, duration=[200, 300, 100, 400]), kind.lower())
    video = read_video(ImageReader(), VideoPart(url))
    np.testing.assert_allclose(video.seconds, (0, 0.2, 0.5, 0.6))
    assert np.abs(np.stack(video.frames).astype(int) - np.stack(frames)).max() < 4
    still = read_video(ImageReader(), VideoPart(data_url(animation("GIF", frames), "gif")))
    np.testing.assert_allclose(still.seconds, (0, 0.1, 0.2, 0.3))  # it has none


def truncated() -> bytes:
    encoded = animation("PNG", noise(4, 20, 20, 3), duration=100)
    return encoded[: len(encoded) // 2]


def empty_animation() -> bytes:
    """A PNG file whose animation says that it has no frames."""
    encoded = animation("PNG", noise(2, 20, 20, 3), duration=100)
    start = encoded.index(b"acTL")
    chunk = b"acTL" + struct.pack(">II", 0, 0)
    check = struct.pack(">I", zlib.crc32(chunk))
    return encoded[:start] + chunk + check + encoded[start + len(chunk) + 4 :]


def many_frames(kind: str) -> bytes:
    frames = [np.full((2, 2, 3), i % 250, np.uint8) for i in range(MAX_FRAMES + 40)]
    return animation(kind, frames, duration=20)


@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        (lambda: b"", "is empty"),
        (lambda: animation("PNG", noise(1, 9, 9, 3)), "at least 2 frames, not 1"),
        (truncated, "is damaged"),
        (empty_animation, "damaged|at least 2 frames"),
        (lambda: many_frames("GIF"), "769 frames is refused: at most 768"),
        (lambda: many_frames("PNG"), "808 frames is refused: at most 768"),
    ],
)
def test_what_is_no_video_is_named(encoded: Any, message: str):
    with pytest.raises(ImageError, match=message):
        read_video(ImageReader(), VideoPart(data_url(encoded())))


@pytest.mark.parametrize("kind", ["GIF", "PNG"])
def test_large_frames_are_refused(kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(videos, "MAX_VIDEO_PIXELS", 4 * 20 * 30)
    frames = noise(6, 20, 30, 3)
    read_video(ImageReader(), VideoPart(data_url(animation(kind, frames[:4], duration=100))))
    with pytest.raises(
        ImageError, match=r"[56] frames of 30 x 20 pixels is refused: at most 2,400"
    ):
        read_video(ImageReader(), VideoPart(data_url(animation(kind, frames, duration=100))))
    with pytest.raises(ImageError, match="6 frames of 30 x 20 pixels is refused"):
        video_part(list(frames), range(6))
    part = clip(4, 20, 30)
    with pytest.raises(ImageError, match="4 frames of 64 x 32 pixels is refused"):
        RENDERERS["Qwen3-VL"].render([Message("user", (part,))])  # after it is scaled


def test_other_parts_are_refused():
    url = clip(3).url
    for seconds, message in (
        ((0.0, 1.0), "3 frames has 2 times"),
        ((0.0, 1.0, 1.0), "each later"),
        ((0.0, 1.0, float("nan")), "each later"),
        ((-1.0, 1.0, 2.0), "from 0 on"),
        ((0.0, 1.0, 10**400), "are not numbers"),
        ((0.0, [], "a"), "are not numbers"),
    ):
        data = {"url": url, "seconds": seconds}
        part = VideoPart.from_dict({"type": "video_url", "video_url": data})
        assert isinstance(part, VideoPart)
        with pytest.raises(ImageError, match=message):
            read_video(ImageReader(), part)
    with pytest.raises(ImageError, match="a video of the type video/mp4 needs a decoder"):
        read_video(ImageReader(), VideoPart("data:video/mp4;base64,AAAA"))
    with pytest.raises(ImageError, match="is not inside the message"):
        read_video(ImageReader(), VideoPart("https://example.com/cat.mp4"))
    with pytest.raises(ImageError, match="one size, not 8 x 9, 9 x 9"):
        video_part([noise(9, 8, 3), noise(9, 9, 3)], [0, 1])
    for count in (0, 1):
        with pytest.raises(ImageError, match=f"at least 2 frames, not {count}"):
            video_part([noise(9, 8, 3)] * count, range(count))
    cache = ImageCache(qwen2_5_vl_images())
    with pytest.raises(ImageError, match="a video cannot be shown here"):
        cache.get(clip(2))
    first_patch = RENDERERS["Qwen3-VL"].render([Message("user", (clip(4),))]).images[1].image.part
    assert isinstance(first_patch, VideoPart) and first_patch.temporal_patch == 1
    for index in (1, 2, "a"):
        part: Any = dataclasses.replace(first_patch, temporal_patch=index)
        with pytest.raises(ImageError, match="has none at"):
            RENDERERS["Qwen3-VL"].render([Message("user", (part,))])


def reference_grid(name: str, frames: int, height: int, width: int) -> np.ndarray:
    """The grid of Hugging Face's video processor: smart_resize of Qwen2-VL for each frame; in
    Qwen3-VL, where the frames here are even and larger than a square, the budget is all frames'.
    """
    size = 14 if name == "Qwen2.5-VL" else 16
    budget: Any = (LOW, HIGH) if size == 14 else (4 * LOW / frames, 4 * HIGH / frames)
    height, width = smart_resize(height, width, 2 * size, *budget)
    return np.array([[-(-frames // 2), height // size, width // size]])


def reference_ids(name: str, messages: Sequence[Message]) -> list[int]:
    """The ids of Hugging Face's processor, which is given the sizes of images and videos."""
    processor, reader = PROCESSORS[name], ImageReader()
    kinds = {TextPart: "text", ImagePart: "image", VideoPart: "video"}
    replacements: dict[str, list[str]] = {"image": [], "video": []}
    data: list[Any] = []
    for message in messages:
        if isinstance(message.content, str):
            data.append({"role": message.role, "content": message.content})
            continue
        data.append({"role": message.role, "content": []})
        for part in message.content:
            text = {"text": part.text} if isinstance(part, TextPart) else {}
            data[-1]["content"].append({"type": kinds[type(part)], **text})
            if isinstance(part, VideoPart):
                video = read_video(reader, part)
                count, shape = len(video.frames), video.frames[0].shape[:2]
                metadata = VideoMetadata(count, 2.0, frames_indices=list(range(count)))
                inputs = {
                    "video_grid_thw": reference_grid(name, count, *shape),
                    "video_metadata": [metadata],
                }
                replacements["video"].append(processor.replace_video_token(inputs, 0))
            elif isinstance(part, ImagePart):
                image = Image.fromarray(reader.pixels(part))
                grid = processor.image_processor([image])["image_grid_thw"]
                replacements["image"].append(
                    processor.replace_image_token({"image_grid_thw": np.asarray(grid)}, 0)
                )
    text = processor.tokenizer.apply_chat_template(data, tokenize=False, add_generation_prompt=True)
    (text,), _ = processor.get_text_with_replacements(
        [text], replacements["image"], replacements["video"]
    )
    return processor.tokenizer(text, add_special_tokens=False)["input_ids"]


sides = st.integers(33, 90)
pictures = st.builds(lambda h, w: image_part(noise(h, w, 3)), sides, sides)
clips = st.builds(clip, st.integers(1, 4).map(lambda n: 2 * n), sides, sides)
words = st.text("ab <|>_.\n", max_size=8)
contents = st.lists(st.one_of(pictures, clips, words.map(TextPart)), min_size=1, max_size=4).map(
    tuple
)


@pytest.mark.parametrize("name", QWEN)
@given(turns=st.lists(st.tuples(contents, words), min_size=1, max_size=3))
@settings(max_examples=25, deadline=None)
def test_prompts_have_the_ids_of_hugging_face(name: str, turns: list):
    """Whole prompts, and prompts that turns extend."""
    renderer = RENDERERS[name]
    history = [Message("user", turns[0][0])]
    prompt = renderer.render(history)
    ids, images = prompt.ids, list(prompt.images)
    for (_, answer), (content, _) in itertools.pairwise(turns):
        assert ids.tolist() == reference_ids(name, history)
        call = make_call(ids, renderer.action_ids(assistant(answer)))
        history.append(renderer.parse(call.action))
        new = [Message("user", content)]
        added = renderer.continuation_ids(call, history, new)
        assert added is not None
        images += [
            image.moved(call.length) for image in renderer.image_prompter.prompt_images(added, new)
        ]
        history += new
        ids = np.concatenate([call.ids, added])
    expected = renderer.render(history)
    assert ids.tolist() == expected.ids.tolist() == reference_ids(name, history)
    assert [(x.start, x.image.part) for x in images] == [
        (x.start, x.image.part) for x in expected.images
    ]
    placeholders = [renderer.codec.added_tokens.ids[f"<|{x}_pad|>"] for x in ("image", "video")]
    inside = np.zeros(len(ids), bool)
    for (start, end), image in zip(expected.image_spans, expected.images):
        assert end - start == image.image.num_tokens and not inside[start:end].any()
        inside[start:end] = True
    assert np.array_equal(np.isin(ids, placeholders), inside)
    call = make_call(ids, renderer.action_ids(assistant("x")))
    call = dataclasses.replace(
        call, image_spans=expected.image_spans, images=tuple(x.image.part for x in expected.images)
    )
    recorded = renderer.image_prompter.recorded_images(call)
    assert [x.image.digest for x in recorded] == [x.image.digest for x in expected.images]


@pytest.mark.parametrize("frames", [4, 5])
def test_the_times_of_temporal_patches(frames: int):
    """An odd video's last frame counts twice, as `_calculate_timestamps` does."""
    fps = 3.0
    part = clip(frames, fps=fps)
    text = RENDERERS["Qwen3-VL"].codec.decode(
        tuple(RENDERERS["Qwen3-VL"].render([Message("user", (part,))]).ids.tolist())
    )
    expected = PROCESSORS["Qwen3-VL"]._calculate_timestamps(list(range(frames)), fps, 2)
    assert text.count(" seconds>") == len(expected) == -(-frames // 2)
    assert all(f"<{time:.1f} seconds><|vision_start|>" in text for time in expected)
    (image,) = RENDERERS["Qwen2.5-VL"].render([Message("user", (part,))]).images
    metadata = VideoMetadata(frames, fps, frames_indices=list(range(frames)))
    span = image.image.span(7)
    np.testing.assert_allclose(span.seconds_per_patch, 2 / metadata.sampled_fps)
    assert span.start == 7 and span.grid[0] == -(-frames // 2)


def test_a_format_may_replace_the_tokens_around_a_video():
    family = VISION_FAMILIES["Qwen3-VL"]
    assert family.images.videos is not None
    start, end = "<|vision_start|>", "<|vision_end|>"
    chat_videos = dataclasses.replace(family.images.videos, marker=f"{start}<|video_pad|>{end}")
    images = dataclasses.replace(family.images, videos=chat_videos)
    renderer = ChatRenderer(family.chat.tokenizer(), images=images)
    messages = [Message("user", (clip(4), TextPart("a"), image_part(noise(40, 40, 3)), clip(6)))]
    default, prompt = RENDERERS["Qwen3-VL"].render(messages), renderer.render(messages)
    expected = renderer.codec.decode(tuple(default.ids.tolist()))
    expected = expected.replace(f"{start}<0", "<0").replace(f"{end}{end}", end)
    assert renderer.codec.decode(tuple(prompt.ids.tolist())) == expected
    assert len(prompt.images) == len(default.images) == 6


@pytest.mark.parametrize("name", QWEN)
def test_patches_are_those_of_scaled_frames(name: str):
    part = clip(5)
    spans = RENDERERS[name].render([Message("user", (part,))]).images
    processor = VISION_FAMILIES[name].images.processor.videos
    assert processor is not None
    frames = [processor.scale(x, 5) for x in read_video(ImageReader(), part).frames]
    patches = np.concatenate([x.image.patches() for x in spans])
    assert len(spans) == (1 if name == "Qwen2.5-VL" else 3)
    assert np.array_equal(patches, processor.patches(frames))


def test_other_times_are_another_video():
    cache = ImageCache(VISION_FAMILIES["Qwen2.5-VL"].images.processor)
    part = clip(4)
    first, slower = cache.get(part), cache.get(VideoPart(part.url, seconds=(0, 1, 2, 3)))
    assert first.digest != slower.digest and cache.get(part) is first
    patches = [first.temporal_patch(i) for i in range(2)]
    assert len({first.digest, *(patch.digest for patch in patches)}) == 3
    assert cache.num_bytes == first.frames.nbytes + slower.frames.nbytes


def test_renderers_without_videos_refuse_them():
    plain = VISION_FAMILIES["Qwen3-VL"].chat.tokenizer()
    for renderer, message in (
        (RENDERERS["Gemma 3"], "does not show videos: send the frames as images"),
        (ChatRenderer(plain, images=qwen3_vl_chat_images()), "set `videos` of its ImageProcessor"),
        (ChatRenderer(plain), "does not show images"),
    ):
        with pytest.raises(UserError, match=message):
            renderer.render([Message("user", (clip(2),))])
    tokenizer = FAMILIES["Qwen2.5"].tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}{% endfor %}"
    renderer = ChatRenderer(tokenizer, images=VISION_FAMILIES["Qwen3-VL"].images)
    with pytest.raises(UserError, match="the chat template shows 0 of 1 videos"):
        renderer.render([Message("user", (clip(2),))])


@pytest.mark.parametrize("name", QWEN)
def test_no_text_stands_for_a_video(name: str):
    renderer = RENDERERS[name]
    token = "<|video_pad|>"
    for message in (user(token), assistant(token).replace(raw_text=token)):
        prompt = renderer.render([user("x"), message, user("y")])
        assert not prompt.images
        assert renderer.codec.added_tokens.ids[token] not in prompt.ids.tolist()
