"""A resume over damaged lines of its records stops, or sets them aside and goes on."""

from pathlib import Path

import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.reporting.reporter import Reporter
from agentrl_jax.storage import jsonl, trajectory_log
from agentrl_jax.storage.line_checksum import add_checksum

SEGMENT = "trajectories/0-000000.jsonl"
LINES = {"metrics.jsonl": 4, SEGMENT: 4}  # at the checkpoint of step 4


def write_run(run_dir: Path) -> None:
    """Four lines of metrics and of trajectories, those of the steps 0 to 3."""
    for name in LINES:
        (run_dir / name).parent.mkdir(parents=True, exist_ok=True)
        lines = [
            add_checksum(f'{{"phase": "rl", "step": {step}, "loss": 1.0}}') for step in range(4)
        ]
        (run_dir / name).write_text("".join(f"{line}\n" for line in lines))


def change(path: Path, number: int, line: bytes) -> bytes:
    """Replace a line, numbered from 1; returns the new one."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number - 1] = line
    path.write_bytes(b"".join(lines))
    return line


def flip(path: Path, number: int) -> bytes:
    line = bytearray(path.read_bytes().splitlines(keepends=True)[number - 1])
    line[10] ^= 1
    return change(path, number, bytes(line))


def steps(path: Path) -> list[int]:
    return [line["step"] for _, line in jsonl.read_lines(path)]


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("line", [None, b"{}\n", b'{"phase": "rl", "step": "x"}\n', b"\n"])
def test_a_damaged_line_is_named_with_the_option_that_goes_on(
    tmp_path: Path, name: str, line: bytes | None
):
    write_run(tmp_path)
    path = tmp_path / name
    flip(path, 2) if line is None else change(path, 2, line)
    content = path.read_bytes()
    with pytest.raises(UserError, match=f"{name}, line 2 is damaged .*=set_aside, ") as caught:
        reporter = Reporter(tmp_path, quiet=True)
        try:
            reporter.rewind(["rl"], "rl", 4, LINES)
        finally:
            reporter.close()
    assert "\n" not in str(caught.value) and path.read_bytes() == content


@pytest.mark.parametrize("name", LINES)
def test_damaged_lines_are_set_aside_and_still_count(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
):
    write_run(tmp_path)
    path, damaged = tmp_path / name, tmp_path / f"{name}.damaged"
    lines = flip(path, 2), change(path, 4, b"{}\n")
    for moved in (2, 0):  # the second time nothing is damaged any more
        reporter = Reporter(tmp_path, damaged_records="set_aside")
        reporter.rewind(["rl"], "rl", 4, LINES)
        assert steps(path) == [0, 2] and damaged.read_bytes() == b"".join(lines)
        assert reporter.sync() == LINES
        reporter.step("rl", 4, {"loss": 1.0}, 1.0)
        reporter.rewind(["rl"], "rl", 4, LINES)
        reporter.close()
        out = capsys.readouterr().out
        assert out.count("it was moved to") == moved
        assert not moved or f"{name}, line 2 is damaged (it is not as it was written" in out
    Reporter(tmp_path, quiet=True).close()  # nor does it stop without the option


def test_a_line_that_was_set_aside_before_a_kill_is_kept_once(tmp_path: Path):
    write_run(tmp_path)
    line = flip(tmp_path / SEGMENT, 2)
    (tmp_path / f"{SEGMENT}.damaged").write_bytes(line)
    reporter = Reporter(tmp_path, quiet=True, damaged_records="set_aside")
    reporter.rewind(["rl"], "rl", 4, LINES)
    reporter.close()
    assert (tmp_path / f"{SEGMENT}.damaged").read_bytes() == line


def test_missing_lines_stop_a_resume_unless_damage_is_set_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    write_run(tmp_path)
    change(tmp_path / "metrics.jsonl", 2, b"")
    reporter = Reporter(tmp_path, quiet=True)
    with pytest.raises(UserError, match=r"has 3 lines up to step 4, of 4 .*=set_aside, or"):
        reporter.rewind(["rl"], "rl", 4, LINES)
    reporter.close()
    reporter = Reporter(tmp_path, damaged_records="set_aside")
    reporter.rewind(["rl"], "rl", 4, LINES)
    reporter.close()
    assert "of 4 that were there with its checkpoint: the run goes on" in capsys.readouterr().out


def test_a_log_whose_damaged_line_was_set_aside_is_read(tmp_path: Path):
    path = tmp_path / SEGMENT
    write_run(tmp_path)
    flip(path, 2)
    with pytest.raises(UserError, match="line 2"):
        steps(path)
    reporter = Reporter(tmp_path, quiet=True, damaged_records="set_aside")
    reporter.close()
    assert steps(path) == [0, 2, 3]
    assert trajectory_log.segment_paths(path.parent) == [path]  # not the damaged lines
