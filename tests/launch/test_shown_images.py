"""Images of messages as files, for a person who plays."""

from pathlib import Path

import pytest

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
