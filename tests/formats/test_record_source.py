"""Lines of files are found by index; what is wrong is named by file, line and field."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.chat_records import canonical_line, canonical_records

from agentrl_jax.errors import UserError
from agentrl_jax.formats.chat_record import chat_line, parse_chat_line
from agentrl_jax.formats.exports import ChatExport, write_chats
from agentrl_jax.formats.record_source import MAX_LINE_BYTES, ParsedLines, StrictLines
from agentrl_jax.messages import Message, assistant, user
from agentrl_jax.trajectories import Trajectory, Turn

GOOD = b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}'


def error_of(path: Path) -> str:
    """The message of the first error, which is one sentence."""
    with pytest.raises(UserError) as caught:
        source = ParsedLines(StrictLines(path), parse_chat_line)
        for i in range(len(source)):
            source[i]
    sentence = str(caught.value)
    assert "\n" not in sentence and len(sentence) < 400
    return sentence


@given(st.lists(canonical_records().map(canonical_line), min_size=1, max_size=4), st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_file_is_read_by_index_and_written_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], ends_with_line_feed: bool
):
    folder = tmp_path_factory.mktemp("chats")
    content = "".join(f"{line}\n" for line in lines).encode()
    (folder / "a.jsonl").write_bytes(content if ends_with_line_feed else content[:-1])
    source = ParsedLines(StrictLines(folder / "a.jsonl"), parse_chat_line)
    order = reversed(range(len(lines)))
    assert [chat_line(source[i]) for i in order] == lines[::-1]
    trajectories = [ChatExport(source[i]) for i in range(len(source))]
    assert write_chats(folder / "b.jsonl", trajectories) == len(lines)
    assert (folder / "b.jsonl").read_bytes() == content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty: it needs one JSON object a line"),
        (b"\n\n", "is empty"),
        (GOOD + b"\n\n" + GOOD, ", line 2: is empty; delete it"),
        (GOOD + b"\n" + GOOD[:-1], ", line 2: not valid JSON"),
        (GOOD + b"\n" + GOOD.replace(b"b", b"\xff"), ", line 2: byte 83 is not UTF-8"),
        (GOOD.decode().encode("utf-16"), ", line 1: byte 1 is not UTF-8"),
        (b"\xef\xbb\xbf" + GOOD, ", line 1: not valid JSON"),
        (GOOD + b"\n\x00", ", line 2: not valid JSON"),
        (GOOD.replace(b'"b"', b"3"), ", line 1, messages[1].content: must be a text, not a number"),
    ],
)
def test_what_is_wrong_is_named_by_file_and_line(tmp_path: Path, content: bytes, message: str):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    assert message in error_of(path) and str(path) in error_of(path)


def test_a_missing_file_is_named(tmp_path: Path):
    assert "there is no file" in error_of(tmp_path / "a.jsonl")


def test_a_line_of_50_megabytes_is_refused_before_it_is_read(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD + b"\n" + b'{"messages": "' + b"x" * 50_000_000 + b'"}\n')
    assert ", line 2: has 48 MiB of at most 32" in error_of(path)
    assert MAX_LINE_BYTES < 50_000_000


def test_a_file_without_its_last_records_is_not_written(tmp_path: Path):
    good = Trajectory((user("a"),), (Turn((), assistant("b"), (), 0.0),), "fine")
    stray = Turn((), assistant("b"), (Message("tool", "?", tool_call_id="x"),), 0.0)
    bad = Trajectory((user("a"),), (stray,), "odd")
    with pytest.raises(UserError, match=r"trajectory 2 \(odd\) has no OpenAI form, messages\[2\]"):
        write_chats(tmp_path / "a.jsonl", [ChatExport(good), ChatExport(bad)])
    assert list(tmp_path.iterdir()) == []
