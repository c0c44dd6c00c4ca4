"""Documents from files, and the windows of their tokens, by hand and by brute force."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl_jax.documents import Document, document_text
from agentrl_jax.errors import UserError
from agentrl_jax.storage.text_documents import (
    DocumentTokens,
    is_complete,
    read_documents,
    read_tokens,
    write_tokens,
)


def tokens_of(lengths: list[int]) -> DocumentTokens:
    """Documents of these lengths, whose tokens are 0, 1, 2, ..."""
    starts = np.cumsum([0, *lengths[:-1]])
    return DocumentTokens(np.arange(sum(lengths), dtype=np.int32), starts)


def windows_of(documents: DocumentTokens, length: int) -> list[list[list[int]]]:
    return [
        [piece.tolist() for piece in documents.window(i, length)]
        for i in range(documents.num_windows(length))
    ]


def test_windows_overlap_by_a_token_and_are_cut_where_a_document_starts():
    assert windows_of(tokens_of([3, 4]), 5) == [[[0, 1, 2], [3, 4]], [[4, 5, 6]]]
    assert windows_of(tokens_of([7]), 4) == [[[0, 1, 2, 3]], [[3, 4, 5, 6]]]
    assert windows_of(tokens_of([4, 2]), 4) == [[[0, 1, 2, 3]], [[4, 5]]]  # not 3: it is the last


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=9),
    length=st.integers(2, 7),
)
def test_every_token_but_the_first_of_a_document_is_predicted_once(lengths: list[int], length: int):
    documents = tokens_of(lengths)
    windows = windows_of(documents, length)
    predicted = [token for window in windows for piece in window for token in piece[1:]]
    firsts = set(documents.starts.tolist())
    assert predicted == [token for token in range(sum(lengths)) if token not in firsts]
    document = np.searchsorted(documents.starts, np.arange(sum(lengths)), "right")
    for window in windows:
        assert all(len({int(document[token]) for token in piece}) == 1 for piece in window)
        assert sum(map(len, window)) <= length


def _code_points(document: Document) -> np.ndarray:
    return np.array([*map(ord, document_text(document)), 0], np.int32)


def test_tokens_are_read_back_from_the_files(tmp_path: Path):
    folder = tmp_path / "text" / "pretrain"
    assert not is_complete(folder)
    write_tokens(folder, ["ab", "", "cde"], _code_points)
    assert is_complete(folder)
    documents = read_tokens(folder)
    assert documents.tokens.tolist() == [97, 98, 0, 99, 100, 101, 0]
    assert documents.starts.tolist() == [0, 3]


def test_a_json_lines_file_has_a_document_per_line_and_a_text_file_is_one(tmp_path: Path):
    lines, text = tmp_path / "a.jsonl", tmp_path / "a.txt"
    lines.write_text("".join(json.dumps({"text": t, "id": 1}) + "\n" for t in ("one\n", "zwö")))
    text.write_text("one\n\ntwo", encoding="utf-8")
    assert list(read_documents(lines)) == ["one\n", "zwö"]
    assert list(read_documents(text)) == ["one\n\ntwo"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "a"}\n{"texts": "b"}\n', r"a\.jsonl, line 2: .* the fields texts"),
        ("a.jsonl", b'{"text": 3}\n', r"line 1: .* the fields text"),
        ("a.jsonl", b"nonsense\n", r"a\.jsonl, line 1: not JSON"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "b', r"a\.jsonl, line 2: not JSON"),
        ("a.jsonl", b'{"text": "a"}\n\n{"text": "b"}\n', r"a\.jsonl, line 2: is empty; delete it"),
        ("a.txt", b"\xff\xfe", r"a\.txt is no text in UTF-8"),
        ("missing.txt", None, r"cannot read .*missing\.txt"),
    ],
)
def test_a_file_that_holds_no_documents_is_named(
    tmp_path: Path, name: str, content: bytes | None, message: str
):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        list(read_documents(tmp_path / name))


def test_documents_without_text_are_an_error(tmp_path: Path):
    write_tokens(tmp_path, ["", ""], lambda text: np.zeros(0, np.int32))
    with pytest.raises(UserError, match="the documents hold no text"):
        read_tokens(tmp_path)
