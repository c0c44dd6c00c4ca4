"""No bit of a recorded line changes unnoticed; a line of others needs no checksum."""

import json
from pathlib import Path

import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.storage import jsonl
from agentrl_jax.storage.line_checksum import add_checksum, without_checksum

DATA = {"phase": "rl", "step": 3, "loss": 0.5, "text": "a \u00e9"}


def test_every_changed_bit_of_a_line_is_found():
    line = add_checksum(json.dumps(DATA)).encode()
    assert json.loads(without_checksum(line)) == DATA
    for at in range(len(line)):
        for bit in range(8):
            changed = bytearray(line)
            changed[at] ^= 1 << bit
            with pytest.raises(ValueError):
                json.loads(without_checksum(bytes(changed)))


@pytest.mark.parametrize("line", [b"{}", b"", b"[1]", b'{"crc32": "00000000"}', b'{"a": "b"}\n'])
def test_a_line_without_checksum_is_as_it_was(line: bytes):
    assert without_checksum(line) == line


def test_a_changed_line_of_a_file_is_named(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    lines = [jsonl.record_line({**DATA, "step": step}, "a step") for step in range(3)]
    path.write_text("".join(lines))
    assert [data["step"] for _, data in jsonl.read_lines(path)] == [0, 1, 2]
    path.write_text("".join([lines[0], lines[1].replace("0.5", "0.7"), lines[2]]))
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 2: .*its checksum differs"):
        list(jsonl.read_lines(path))


def test_lines_that_are_filtered_or_merged_keep_their_checksums(tmp_path: Path):
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, steps in zip(paths, ((0, 2), (1, 3))):
        path.write_text("".join(jsonl.record_line({"step": step}, "a step") for step in steps))
    before = paths[0].read_text().splitlines(keepends=True)
    jsonl.filter_lines(paths[0], lambda data: data["step"] > 0)
    assert paths[0].read_text() == before[1]
    jsonl.merge(paths, tmp_path / "all.jsonl", lambda data: data["step"])
    lines = (tmp_path / "all.jsonl").read_bytes().splitlines()
    assert [json.loads(without_checksum(line))["step"] for line in lines] == [1, 2, 3]
    assert all(b'"crc32"' in line for line in lines)
