"""Conversations about pages, on which a model learns to read."""

import re
from dataclasses import replace
from itertools import islice

import pytest

from agentrl_jax.envs.search.questions import split_of
from agentrl_jax.envs.search.reader import UNKNOWN
from agentrl_jax.envs.search.reading_documents import DOCUMENTS_PER_WORLD, ReadingDocuments


def titles(text: str) -> set[str]:
    return set(re.findall(r"^\(Title: (.+?)\)", text, re.MULTILINE))


def test_the_answers_stand_in_the_pages_or_are_unknown():
    num_unknown = num_questions = 0
    for document in ReadingDocuments(documents=100)():
        opening, *rest = document.messages
        turns = len(document.messages) // 2
        assert 4 <= turns <= 7
        assert [m.role for m in document.messages] == ["user", "assistant"] * turns
        assert all(not titles(message.text) for message in rest)  # the pages are shown once
        questions = [m.text.split("Answer shortly: ")[1] for m in document.messages[::2]]
        assert len(set(questions)) == turns
        for answer in document.messages[1::2]:
            num_questions += 1
            num_unknown += answer.text == UNKNOWN
            assert answer.text == UNKNOWN or answer.text in opening.text
    assert num_questions > 600 and 0.1 < num_unknown / num_questions < 0.2  # 15 in a hundred


def test_all_pages_of_two_hops_are_shown_and_a_question_of_other_pages_is_unknown():
    alone = ReadingDocuments(documents=30, topics=1, noise=0, questions=1, hops=(2,), unknown=0)
    counts = []
    for document in alone():
        opening, answer = document.messages
        counts.append(len(titles(opening.text)))
        assert answer.text != UNKNOWN
    assert set(counts) == {1, 2}  # one page may hold both facts
    for document in replace(alone, noise=2, unknown=100)():
        opening, answer = document.messages
        assert 1 <= len(titles(opening.text)) <= 4 and answer.text == UNKNOWN


def test_names_are_those_of_another_encyclopedia_after_fifty_documents():
    documents = [*ReadingDocuments(documents=2 * DOCUMENTS_PER_WORLD)()]
    assert documents == [*ReadingDocuments(documents=2 * DOCUMENTS_PER_WORLD)()]
    first, second = documents[:DOCUMENTS_PER_WORLD], documents[DOCUMENTS_PER_WORLD:]
    read = [
        set().union(*(titles(document.messages[0].text) for document in part))
        for part in (first, second)
    ]
    assert len(read[0] & read[1]) < 0.1 * len(read[0])
    assert [*islice(ReadingDocuments(first_world=1_001)(), DOCUMENTS_PER_WORLD)] == second


@pytest.mark.parametrize("number", range(5))
def test_questions_are_about_titles_of_the_training(number: int):
    document = next(iter(ReadingDocuments(first_world=number, unknown=0, hops=(1,))()))
    anchors = [
        title
        for title in titles(document.messages[0].text)
        if any(title in message.text for message in document.messages[2::2])
    ]
    assert anchors and all(split_of(title) == "train" for title in anchors)
