"""Lines are counted as a file grows and where it was cut back."""

from pathlib import Path

from agentrl_jax.storage.line_counter import LineCounter


def test_only_complete_lines_count(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    counter = LineCounter(path)
    assert counter.sync() == 0
    for content, lines in ((b"a\nb\n", 2), (b"a\nb\nc", 2), (b"a\nb\nc\nd\n", 4), (b"a\n", 1)):
        path.write_bytes(content)
        assert counter.sync() == lines
