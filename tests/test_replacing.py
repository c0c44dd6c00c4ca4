"""Files that are whole or not there."""

from pathlib import Path

import pytest

from agentrl_jax.replacing import replacing


def test_the_old_file_stands_until_the_block_ends(tmp_path: Path):
    path = tmp_path / "table.json"
    path.write_text("old")
    with replacing(path) as unfinished:
        unfinished.write_text("new")
        assert path.read_text() == "old" and unfinished.parent == tmp_path
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_a_block_that_raises_changes_nothing_and_leaves_nothing(tmp_path: Path):
    path = tmp_path / "table.json"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(path) as unfinished:
        unfinished.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "folder" / "table.json") as unfinished:
        unfinished.write_text("whole")
