"""`ImageStore`: the images and videos of a trajectory log, each stored once, in a folder beside it.

In the log the URL of an image is the SHA-256 of its bytes:

    {"type": "image_url", "image_url": {"url": "stored:image/png;sha256=9f86d0..."}}

and the bytes are the file `images/9f86d0...` beside the log's files. What is no base64 `data:` URL
stays as it is; where it begins with "stored:", "stored:url," stands before it.
"""

import base64
import functools
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.storage.files import atomic_write

FOLDER = "images"
CACHED_IMAGES = 64  # whose URLs a store keeps, so that trajectories of a group share them
PRUNE_AGE = 60.0  # seconds: younger files are left, for their lines may not be written yet
_DATA_URL = re.compile(r"data:([\w.+/-]*);base64,([A-Za-z0-9+/]*={0,2})")
_STORED_URL = re.compile(r"stored:([\w.+/-]*);sha256=([0-9a-f]{64})")
_STORED_NAME = re.compile(rb";sha256=([0-9a-f]{64})")
_LITERAL = "stored:url,"


class ImageStore:
    """Stores images, and restores the URLs that they had."""

    def __init__(self, folder: Path) -> None:
        """`folder` holds the images; it is made with the first."""
        self._folder = folder
        self._known: set[str] = set()  # hashes that this store has written or seen
        self._data_url = functools.lru_cache(CACHED_IMAGES)(self._read)

    def store(self, data: Mapping[str, Any]) -> None:
        """Store the images of a trajectory's JSON data, whose URLs are changed in place."""
        _map_urls(data, self._store_url)

    def restore(self, data: Mapping[str, Any]) -> None:
        """The inverse of `store`.

        Raises:
            UserError: an image is missing or damaged.
        """
        _map_urls(data, self._restore_url)

    def restore_available(self, data: Mapping[str, Any]) -> None:
        """As `restore`; the URLs of images that are missing or damaged stay as they are."""

        def restore_url(url: str) -> str:
            try:
                return self._restore_url(url)
            except UserError:
                return url

        _map_urls(data, restore_url)

    @property
    def num_bytes(self) -> int:
        """Of all images."""
        return sum(size for _, size, _ in self._files())

    def prune(self, paths: Iterable[Path]) -> None:
        """Delete the images that none of these files of the log names."""
        named = set()
        for path in paths:
            with open(path, "rb") as file:
                named.update(hash.decode() for line in file for hash in _STORED_NAME.findall(line))
        for path, _, modified in self._files():
            if path.name not in named and time.time() - modified > PRUNE_AGE:
                path.unlink(missing_ok=True)
                self._known.discard(path.name)

    def _files(self) -> Iterator[tuple[Path, int, float]]:
        if not self._folder.is_dir():
            return
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if re.fullmatch("[0-9a-f]{64}", entry.name):
                    status = entry.stat()
                    yield Path(entry.path), status.st_size, status.st_mtime

    def _store_url(self, url: str) -> str:
        match = _DATA_URL.fullmatch(url)
        if match is None:
            return _LITERAL + url if url.startswith("stored:") else url
        kind, text = match.groups()
        try:
            encoded = base64.b64decode(text, validate=True)
        except ValueError:
            return url
        if base64.b64encode(encoded).decode() != text:
            return url  # the bytes would not give this text back
        name = hashlib.sha256(encoded).hexdigest()
        if name not in self._known:
            self._write(name, encoded)
        return f"stored:{kind};sha256={name}"

    def _write(self, name: str, encoded: bytes) -> None:
        path = self._folder / name
        self._folder.mkdir(parents=True, exist_ok=True)
        if path.exists():
            os.utime(path)  # so that no other process prunes it now
        else:
            with atomic_write(path) as unfinished:
                unfinished.write_bytes(encoded)
        self._known.add(name)

    def _restore_url(self, url: str) -> str:
        if url.startswith(_LITERAL):
            return url.removeprefix(_LITERAL)
        match = _STORED_URL.fullmatch(url)
        return self._data_url(*match.groups()) if match else url

    def _read(self, kind: str, name: str) -> str:
        path = self._folder / name
        try:
            encoded = path.read_bytes()
        except OSError as error:
            raise UserError(
                f"the image {path} of the trajectory log cannot be read ({error.strerror}): "
                f"restore the folder {self._folder} from a copy"
            ) from error
        if hashlib.sha256(encoded).hexdigest() != name:
            raise UserError(f"the image {path} is damaged: restore it from a copy")
        return f"data:{kind};base64,{base64.b64encode(encoded).decode()}"


def _map_urls(data: Mapping[str, Any], change: Callable[[str], str]) -> None:
    """Change the URLs of all images of a trajectory's messages and calls in place."""
    for part in _image_parts(data):
        source = part[part["type"]]
        source["url"] = change(source["url"])


def _image_parts(data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    messages = list(data["opening"])
    for turn in data["turns"]:
        messages += [turn["action"], *turn["observation"], *turn.get("notes", ())]
        for call in turn["calls"]:
            yield from call.get("images", ())
    for message in messages:
        if isinstance(message["content"], list):
            yield from (part for part in message["content"] if part["type"] != "text")
