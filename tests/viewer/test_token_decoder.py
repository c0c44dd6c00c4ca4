"""Tokens as pieces of text."""

from pathlib import Path

import pytest
from support.viewer_runs import make_tokenizer
from tokenizers import Tokenizer, decoders, models

from agentrl_jax.viewer.token_decoder import TokenDecoder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize(
    "text", ["When does the museum open?\n", "größer 日本 🙂!", "", "a\u0301 \0"]
)
def test_pieces_join_to_the_text(folder: Path, text: str):
    ids = make_tokenizer().encode(text).ids
    pieces = TokenDecoder(folder).pieces(ids)
    assert pieces is not None and len(pieces) == len(ids) and "".join(pieces) == text


def test_a_character_of_several_tokens_is_the_piece_of_the_last(folder: Path):
    ids = make_tokenizer().encode("é!").ids
    assert len(ids) == 3 and TokenDecoder(folder).pieces(ids) == ["", "é", "!"]


def test_special_tokens_are_shown(folder: Path):
    assert TokenDecoder(folder).pieces([1]) == ["<|im_end|>"]


def test_a_space_before_a_first_word_is_kept(tmp_path: Path):
    """As with SentencePiece, whose decoder drops the first space of a text."""
    tokenizer = Tokenizer(models.WordLevel({"▁the": 0, "▁hall": 1}, unk_token="▁the"))
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert tokenizer.decode([1]) == "hall"
    assert TokenDecoder(tmp_path).pieces([0, 1, 1]) == ["the", " hall", " hall"]


@pytest.mark.parametrize("ids", [[-1], [2**40], ["x"], [None], [[1]]])
def test_ids_that_are_none_have_no_pieces(folder: Path, ids: list):
    assert TokenDecoder(folder).pieces(ids) is None


def test_without_a_tokenizer_there_are_no_pieces(tmp_path: Path):
    assert TokenDecoder(tmp_path / "missing").pieces([1]) is None
    (tmp_path / "tokenizer.json").write_text("{}")
    assert TokenDecoder(tmp_path).pieces([1]) is None


def test_texts_of_single_ids(folder: Path):
    first = make_tokenizer().encode("é").ids[0]
    assert TokenDecoder(folder).texts([1, -1, first]) == {1: "<|im_end|>", first: ""}
