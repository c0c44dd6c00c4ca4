"""Texts that only a model that copies can predict, and documents of several sources."""

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest

from agentrl_jax.corpus.mixed_documents import MixedDocuments
from agentrl_jax.corpus.repeated_lines import RepeatedLines
from agentrl_jax.documents import ChatDocument, document_text
from agentrl_jax.envs.search.pair_documents import PairDocuments
from agentrl_jax.envs.search.reading_documents import DOCUMENTS_PER_WORLD
from agentrl_jax.errors import UserError
from agentrl_jax.models.hf.shipped import BASE_MODEL
from agentrl_jax.models.tokenizers import FolderTokenizer


def test_a_line_of_random_tokens_comes_again():
    texts = [*RepeatedLines(FolderTokenizer(BASE_MODEL), documents=200)()]
    assert (
        texts == [*RepeatedLines(FolderTokenizer(BASE_MODEL), documents=200)()]
        and len(set(texts)) == 200
    )
    tokenizer = FolderTokenizer(BASE_MODEL)(())
    for text in texts:
        divided = [text.split(separator) for separator in ("\n", " ", ". ")]
        assert any(
            parts == parts[: len(parts) // copies] * copies
            for parts, copies in itertools.product(divided, (2, 3))
        )
        assert not any(token in text for token in tokenizer.all_special_tokens)


def test_the_second_name_of_a_pair_stands_before_the_question():
    documents = [*PairDocuments(documents=100)()]
    assert documents == [*PairDocuments(documents=100)()]
    chats = [document for document in documents if isinstance(document, ChatDocument)]
    assert 30 < len(chats) < 70
    for chat in chats:
        *lines, _ = chat.messages[0].text.split("\n")
        questions = chat.messages[::2]
        assert len(lines) == len(questions) and 2 <= len(lines) <= 6
        for question, answer in zip(questions, chat.messages[1::2]):
            name = question.text.split("\n")[-1].removeprefix("Answer shortly: ")[:-1]
            (line,) = [line for line in lines if line.startswith(name)]
            assert line.endswith(answer.text) and line != name
    for text in set(map(document_text, documents)) - {chat.text for chat in chats}:
        counts = Counter(text.split("\n"))
        assert 2 <= len(counts) <= 6 and counts.total() == 3 * len(counts)


def test_so_many_pairs_have_a_number():
    documents = [d for d in PairDocuments(documents=200, numbers=70)() if isinstance(d, str)]
    seconds = [line.split()[-1] for text in documents for line in set(text.split("\n"))]
    share = sum(word.isdigit() for word in seconds) / len(seconds)
    assert 0.6 < share < 0.8 and all(100 <= int(x) < 2100 for x in seconds if x.isdigit())


def test_names_of_pairs_are_others_after_fifty_documents():
    documents = [document_text(d) for d in PairDocuments(documents=2 * DOCUMENTS_PER_WORLD)()]
    first, second = documents[:DOCUMENTS_PER_WORLD], documents[DOCUMENTS_PER_WORLD:]
    again = [*itertools.islice(PairDocuments(first_world=20_001)(), DOCUMENTS_PER_WORLD)]
    assert [document_text(document) for document in again] == second != first


def counted(prefix: str, count: int = 10_000) -> Iterator[str]:
    return (f"{prefix}{number}" for number in range(count))


def few() -> Iterator[str]:
    return counted("a", 3)


def letters() -> Iterator[str]:
    return counted("a")


def others() -> Iterator[str]:
    return counted("b")


def test_a_mixture_draws_its_sources_by_their_shares_and_each_in_order():
    documents = [*MixedDocuments((letters, others), (3, 1), documents=2000)()]
    assert documents == [*MixedDocuments((letters, others), (0.75, 0.25), documents=2000)()]
    firsts = [document for document in documents if document_text(document).startswith("a")]
    assert firsts == [*itertools.islice(letters(), len(firsts))]
    assert 1400 < len(firsts) < 1600 and len(documents) == 2000


@pytest.mark.parametrize(
    ("mixture", "message"),
    [
        (MixedDocuments((letters, others), (1,), 10), "a share above 0 for each of its 2 sources"),
        (MixedDocuments((letters,), (0,), 10), "a share above 0"),
        (MixedDocuments((), (), 10), "at least one source"),
        (MixedDocuments((few,), (1,), 10), "few.* ended after 3 of 10 documents"),
    ],
)
def test_a_mixture_that_cannot_be_drawn_is_refused(mixture: MixedDocuments, message: str):
    with pytest.raises(UserError, match=message):
        list(mixture())
