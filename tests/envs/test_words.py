"""The word list of Wordle."""

from importlib.resources import files
from string import ascii_lowercase

import pytest

from agentrl_jax.envs.lmrl.wordle import word_list


def test_the_file_holds_431_different_words_of_five_lower_case_letters_one_a_line():
    text = files("agentrl_jax.envs.lmrl").joinpath("words.txt").read_bytes().decode("ascii")
    lines = text.split("\n")
    assert lines.pop() == ""
    assert len(lines) == len(set(lines)) == 431
    assert all(len(word) == 5 and set(word) <= set(ascii_lowercase) for word in lines)
    assert word_list() == tuple(lines)


@pytest.mark.parametrize("count", [64, 128])
def test_the_smaller_tasks_use_the_whole_alphabet(count):
    assert set("".join(word_list()[:count])) == set(ascii_lowercase)
    assert len({word[0] for word in word_list()[:count]}) >= 20


@pytest.mark.parametrize("count", [16, 32])
def test_a_prefix_is_not_an_alphabetical_slice(count):
    assert len({word[0] for word in word_list()[:count]}) >= count // 2
