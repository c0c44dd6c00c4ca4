"""`ImageFolder`: images of messages as files, for a person who plays in a terminal."""

import base64
import binascii
import tempfile
from dataclasses import dataclass
from pathlib import Path

from agentrl_jax.messages import ImagePart, Message

_ENDINGS = {"data:image/png": "png", "data:image/jpeg": "jpg", "data:image/webp": "webp"}


@dataclass
class ImageFolder:
    """Writes images into a folder, numbered in the order in which they are shown.

    Args:
        folder: that is made where it is missing; empty: a temporary one, made with the first image.
    """

    folder: str = ""
    count: int = 0

    def text_of(self, message: Message) -> str:
        """A message's text, with a line for each image that names its file, or its URL."""
        if isinstance(message.content, str):
            return message.content
        text = ""
        for part in message.content:
            if isinstance(part, ImagePart):
                gap = "" if not text or text[-1].isspace() else " "
                text += f"{gap}[image: {self._place(part)}]\n"
            else:
                text += part.text
        return text

    def _place(self, part: ImagePart) -> str:
        """Where an image is, after it was written; only a `data:` URL's is."""
        kind, separator, data = part.url.partition(";base64,")
        if not separator or kind not in _ENDINGS:
            return part.url[:200]
        try:
            pixels = base64.b64decode(data, validate=True)
        except binascii.Error:
            return "not readable"
        self.folder = self.folder or tempfile.mkdtemp(prefix="agentrl-play-")
        path = Path(self.folder) / f"{self.count:03d}.{_ENDINGS[kind]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pixels)
        self.count += 1
        return str(path)
