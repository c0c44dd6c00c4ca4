"""Files whose digest is kept: any change of them is named, until they are written anew."""

from pathlib import Path

import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.storage import config_json, jsonl, run_folder, trajectory_log
from agentrl_jax.storage.digests import (
    DIGESTS_FILE,
    digested_write,
    file_damage,
    forget_digest,
)
from agentrl_jax.storage.files import remove_unfinished
from agentrl_jax.timeouts import Timeouts


def write(path: Path, text: str) -> None:
    with digested_write(path) as unfinished:
        unfinished.write_text(text)


def test_a_changed_file_is_named_until_it_is_written_anew(tmp_path: Path):
    table, other = tmp_path / "table.json", tmp_path / "other.json"
    write(table, "5")
    write(other, "6")
    assert file_damage(table) is file_damage(other) is None
    table.write_text("4")
    assert file_damage(table) == "table.json differs from what was written"
    table.write_text("")
    assert file_damage(table) == "table.json has 0 bytes instead of 1"
    table.unlink()
    assert file_damage(table) == "table.json is missing" and file_damage(other) is None
    write(table, "7")
    assert file_damage(table) is None
    (tmp_path / DIGESTS_FILE).write_text("{")
    assert file_damage(table) == "digests.json beside it is damaged"


def test_a_write_that_was_cut_short_is_not_held_against_an_older_digest(tmp_path: Path):
    path = tmp_path / "table.json"
    write(path, "old")
    with pytest.raises(ZeroDivisionError), digested_write(path) as unfinished:
        unfinished.write_text("new")
        raise ZeroDivisionError
    assert path.read_text() == "old" and file_damage(path) is None
    path.write_text("new")  # as if killed between the file and its digest
    assert file_damage(path) is None
    forget_digest(path)  # has none


def test_a_changed_config_is_refused_with_its_remedy(tmp_path: Path):
    config_json.bind_run_dir(tmp_path, Timeouts())
    path = tmp_path / config_json.CONFIG_FILE
    path.write_text(path.read_text().replace("600", "601"))
    for read in (
        lambda: config_json.load_config(tmp_path),
        lambda: config_json.bind_run_dir(tmp_path, Timeouts()),
    ):
        with pytest.raises(UserError, match=r"config\.json is damaged .*delete its entry in dig"):
            read()
    forget_digest(path)
    config_json.load_config(tmp_path)


def test_a_changed_summary_or_evaluation_is_damaged(tmp_path: Path):
    run_folder.write_summary(tmp_path, {"table": []})
    assert run_folder.read_summary(tmp_path) == {"table": []}
    (tmp_path / run_folder.SUMMARY_FILE).write_text('{"table": [1]}')
    with pytest.raises(ValueError, match="bytes instead of"):
        run_folder.read_summary(tmp_path)
    part, path = tmp_path / "part", tmp_path / "evaluations.jsonl"
    part.write_text(jsonl.record_line({"group": 0}, "") + jsonl.record_line({"group": 1}, ""))
    jsonl.merge([part], path, lambda line: line["group"])
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:1]))
    with pytest.raises(UserError, match=r"evaluations\.jsonl is damaged .*bytes instead of"):
        trajectory_log.read(path)


def test_what_killed_processes_left_is_removed(tmp_path: Path):
    (tmp_path / "tokenizer.71.unfinished").mkdir()
    for name in ("tokenizer.71.unfinished/a.json", "table.json.71.unfinished", "table.json"):
        (tmp_path / name).write_text("1")
    remove_unfinished(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["table.json"]
