"""Which browser BrowserGym's environments start, and where MiniWoB++'s pages are."""

import functools
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from agentrl_jax.envs.adapters.packages import import_package
from agentrl_jax.errors import UserError

EXTRA = "browsergym"


def use_browser(program: str) -> None:
    """Make Playwright start a program in this process, in place of the Chromium that it downloads.

    BrowserGym starts two browsers, of which only one takes a path, so the program is linked where
    Playwright looks for its own. Call it before the first browser starts.

    Args:
        program: a path of Chromium; empty: Playwright's own.

    Raises:
        UserError: the package is missing, or there is no such program.
    """
    if program:
        if not os.access(program, os.X_OK):
            raise UserError(
                f"browser={program!r} is no program: apt-get install chromium installs one as "
                "/usr/bin/chromium"
            )
        os.environ["PLAYWRIGHT_BROWSERS_PATH"] = _folder_of_browsers(program)


@functools.lru_cache
def _folder_of_browsers(program: str) -> str:
    """A folder as `playwright install` makes it, with a link to a program."""
    driver = Path(import_package("playwright", EXTRA).__path__[0]) / "driver" / "package"
    browsers = json.loads((driver / "browsers.json").read_text())["browsers"]
    (revision,) = (x["revision"] for x in browsers if x["name"] == "chromium")
    folder = Path(tempfile.mkdtemp(prefix="agentrl-browsers-"))
    link = folder / f"chromium-{revision}" / "chrome-linux" / "chrome"
    link.parent.mkdir(parents=True)
    link.symlink_to(program)
    return str(folder)


def task_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a task, with the address of MiniWoB++'s pages where its package holds them."""
    if (
        name.startswith("miniwob.")
        and "base_url" not in options
        and "MINIWOB_URL" not in os.environ
    ):
        pages = Path(import_package("miniwob", EXTRA).__path__[0]) / "html" / "miniwob"
        return {**options, "base_url": f"{pages.as_uri()}/"}
    return options
