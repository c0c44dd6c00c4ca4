"""`ImageFolder`: images and videos of messages as files, for a person who plays in a terminal."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from agentrl_jax.images.loading import ImageError, ImageReader
from agentrl_jax.messages import ImagePart, Message, VideoPart

_ENDINGS = {
    "data:image/png": "png",
    "data:image/jpeg": "jpg",
    "data:image/webp": "webp",
    "data:image/gif": "gif",
}


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
                kind = "video" if isinstance(part, VideoPart) else "image"
                text += f"{gap}[{kind}: {self._place(part)}]\n"
            else:
                text += part.text
        return text

    def _place(self, part: ImagePart) -> str:
        """Where an image is, after it was written; only a `data:` URL's is."""
        ending = _ENDINGS.get(part.url.partition(";")[0])
        if ending is None:
            return part.url[:200]
        try:
            encoded = ImageReader().encoded(part)
        except ImageError:
            return "not readable"
        self.folder = self.folder or tempfile.mkdtemp(prefix="agentrl-play-")
        path = Path(self.folder) / f"{self.count:03d}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded)
        self.count += 1
        return str(path)
