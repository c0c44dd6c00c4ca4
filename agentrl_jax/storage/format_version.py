"""The versions of the formats in which run folders and dataset folders are written."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrl_jax.errors import UserError

RUN_FORMAT_VERSION = 3
DATASET_FORMAT_VERSION = 1
VERSION_KEY = "format_version"


def check_format_version(
    data: Mapping[str, Any], expected: int, folder: Path, kind: str, remedy: str
) -> None:
    """Refuse a folder of another format.

    Args:
        data: the folder's config or manifest as JSON data.
        expected: the version that this version of the package writes.
        folder: for the message.
        kind: "run folder" or "dataset", for the message.
        remedy: what the user can do, the end of the message.

    Raises:
        UserError: `data` names another version, or none (folders older than format versions).
    """
    version = data.get(VERSION_KEY)
    if version == expected:
        return
    stored = "no format version" if version is None else f"format version {version!r}"
    raise UserError(
        f"the {kind} {folder} has {stored}, and this version of the package reads only "
        f"format version {expected}: {remedy}"
    )
