"""Atomic writes: readers see the old file or the new one."""

from pathlib import Path

import pytest

from agentrl_jax.storage.files import atomic_write


def test_the_old_file_remains_until_the_block_ends(tmp_path: Path):
    path = tmp_path / "table.json"
    path.write_text("old")
    with atomic_write(path) as unfinished:
        unfinished.write_text("new")
        assert path.read_text() == "old" and unfinished.parent == tmp_path
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_a_block_that_raises_leaves_the_old_file_and_no_temporary_one(tmp_path: Path):
    path = tmp_path / "table.json"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_write(path) as unfinished:
        unfinished.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    with (
        pytest.raises(FileNotFoundError),
        atomic_write(tmp_path / "folder" / "table.json") as unfinished,
    ):
        unfinished.write_text("new")
