"""Segments: rotation, the size budget, counts of lines, and what a resume expects of them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentrl_jax.storage.segments import SegmentWriter, segment_paths, without_trimmed

LINE = "x" * 9 + "\n"


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Callable[..., SegmentWriter]]:
    """Makes writers of segments of 30 bytes, and closes them."""
    with ExitStack() as stack:

        def make(process: int = 0, max_bytes: int = 10**6) -> SegmentWriter:
            segments = SegmentWriter(tmp_path / "log", process, max_bytes, segment_bytes=30)
            stack.callback(segments.close)
            return segments

        yield make


def names(folder: Path) -> list[str]:
    return [path.name for path in segment_paths(folder / "log")]


def test_a_full_segment_is_followed_by_another_and_lines_stay_together(
    writer: Callable[..., SegmentWriter],
):
    segments = writer()
    for count in (2, 4, 1):
        segments.write([LINE] * count)
    assert segments.sync() == {"log/0-000000.jsonl": 6, "log/0-000001.jsonl": 1}


def test_another_writer_goes_on_in_the_last_segment_after_what_a_kill_left(
    tmp_path: Path, writer: Callable[..., SegmentWriter]
):
    segments = writer()
    segments.write(['{"a": 1}\n'])
    segments.close()
    path = tmp_path / "log" / "0-000000.jsonl"
    path.write_text(path.read_text() + '{"a": 2')
    again = writer()
    again.write(['{"a": 3}\n'])
    assert path.read_text() == '{"a": 1}\n{"a": 3}\n'
    again.write(['{"a": 4}\n'] * 2)  # full
    again.close()
    writer().write(["{}\n"])
    assert names(tmp_path) == ["0-000000.jsonl", "0-000001.jsonl"]


def test_the_oldest_segments_of_a_process_are_deleted_beyond_its_budget(
    tmp_path: Path, writer: Callable[..., SegmentWriter]
):
    first, other = writer(0, max_bytes=70), writer(1)
    for segments in (first, other):
        for _ in range(12):
            segments.write([LINE])
    before = {**first.sync(), **other.sync()}
    deleted = [first.trim_oldest(), first.trim_oldest()]
    assert [path.name for path in deleted if path] == ["0-000000.jsonl", "0-000001.jsonl"]
    assert first.trim_oldest() is None
    assert names(tmp_path) == [
        "0-000002.jsonl", "0-000003.jsonl",
        "1-000000.jsonl", "1-000001.jsonl", "1-000002.jsonl", "1-000003.jsonl",
    ]  # fmt: skip
    expected = without_trimmed(tmp_path / "log", {"metrics.jsonl": 3, **before})
    assert expected == {
        "metrics.jsonl": 3,
        **{f"log/{name}": 3 for name in names(tmp_path)},
    }


def test_the_newest_segment_is_never_deleted(tmp_path: Path, writer: Callable[..., SegmentWriter]):
    segments = writer(max_bytes=0)
    segments.write([LINE] * 5)
    assert segments.trim_oldest() is None and names(tmp_path) == ["0-000000.jsonl"]


def test_a_lost_newer_segment_is_not_taken_for_a_trimmed_one(
    tmp_path: Path, writer: Callable[..., SegmentWriter]
):
    segments = writer()
    for _ in range(9):
        segments.write([LINE])
    counts = segments.sync()
    for missing in ("0-000001.jsonl", "0-000002.jsonl"):
        (tmp_path / "log" / missing).unlink()
    assert without_trimmed(tmp_path / "log", counts) == counts
