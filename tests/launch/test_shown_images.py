"""Images of messages as files, for a person who plays."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from agentrl_jax.images.videos import video_part
from agentrl_jax.launch.shown_images import ImageFolder
from agentrl_jax.messages import ImagePart, Message, TextPart, user

DOT = "data:image/png;base64,iVBORw0KGgo="


def test_images_become_numbered_files(tmp_path: Path):
    folder = ImageFolder(str(tmp_path / "new"))
    message = Message("user", (ImagePart(DOT), TextPart("a"), ImagePart(DOT), TextPart("b")))
    first, second = (tmp_path / "new" / f"00{i}.png" for i in range(2))
    assert folder.text_of(message) == f"[image: {first}]\na [image: {second}]\nb"
    assert first.read_bytes() == second.read_bytes() == b"\x89PNG\r\n\x1a\n"
    assert folder.text_of(user("plain")) == "plain" and len(list(first.parent.iterdir())) == 2


def test_a_video_becomes_an_animated_file(tmp_path: Path):
    video = video_part(list(np.zeros((3, 4, 4, 3), np.uint8)), range(3))
    text = ImageFolder(str(tmp_path)).text_of(Message("user", (video,)))
    assert text == f"[video: {tmp_path / '000.png'}]\n"
    with Image.open(tmp_path / "000.png") as image:
        assert getattr(image, "n_frames", 1) == 3


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://example.com/cat.png", "https://example.com/cat.png"),
        ("data:text/html;base64,AAAA", "data:text/html;base64,AAAA"),
        ("data:image/png;base64,!!", "not readable"),
    ],
)
def test_other_urls_are_named_and_not_written(tmp_path: Path, url: str, text: str):
    folder = ImageFolder(str(tmp_path))
    assert folder.text_of(Message("user", (ImagePart(url),))) == f"[image: {text}]\n"
    assert not list(tmp_path.iterdir())
