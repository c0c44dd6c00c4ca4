"""Training documents and held-out exercises: disjoint, deterministic, and of all environments."""

import dataclasses

import numpy as np
import pytest

from agentrl_jax.corpus import corpus as corpus_module
from agentrl_jax.corpus.corpus import Corpus, held_out_exercises, training_document
from agentrl_jax.corpus.domains import DIALOGUES, DOMAINS, GAMES, NAVIGATION
from agentrl_jax.corpus.exercise import is_held_out, sample_training_exercise
from agentrl_jax.documents import ChatDocument, Document

HELD_OUT = 3  # exercises of a domain


def answers_prompt(document: Document, prompt: Document) -> bool:
    """Whether the document goes on after the prompt with an answer."""
    if isinstance(document, str) or isinstance(prompt, str):
        return isinstance(document, str) and isinstance(prompt, str) and prompt in document
    size = len(prompt.messages)
    return (
        document.tools == prompt.tools
        and document.messages[:size] == prompt.messages
        and [message.role for message in document.messages[size : size + 1]] == ["assistant"]
    )


def leaked(documents: list[Document]) -> list[Document]:
    """The held-out prompts that a document answers."""
    prompts = [x.prompt for name in DOMAINS for x in held_out_exercises(name, HELD_OUT)]
    return [p for p in prompts if any(answers_prompt(document, p) for document in documents)]


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return list(Corpus(1000)())


def test_no_training_document_answers_a_held_out_prompt(documents: list[Document]):
    assert leaked(documents) == []


def test_the_search_for_leaks_finds_one(documents: list[Document]):
    exercises = [held_out_exercises(name, 1)[0] for name in DOMAINS]
    assert len(leaked([*documents, *(x.document for x in exercises)])) >= len(DOMAINS)


def test_a_training_exercise_answers_no_held_out_prompt_in_any_turn():

    rng = np.random.default_rng(0)
    for share in DOMAINS.values():
        exercises = [sample_training_exercise(share.domain, rng) for _ in range(40)]
        assert not any(is_held_out(prompt) for x in exercises for prompt in x.prompts)


def test_held_out_exercises_differ_and_are_the_same_every_time():
    for name in DOMAINS:
        exercises = held_out_exercises(name, HELD_OUT)
        assert exercises == held_out_exercises(name, HELD_OUT)
        assert all(is_held_out(exercise.prompt) for exercise in exercises)
        prompts = [exercise.prompt for exercise in exercises]
        assert all(prompt not in prompts[:i] for i, prompt in enumerate(prompts))


def test_a_document_depends_on_its_number_alone(documents: list[Document]):
    assert documents[17] == training_document(17) and documents[17] != documents[18]
    assert corpus_module.TRAINING != corpus_module.HELD_OUT


def test_texts_and_conversations_are_mixed(documents: list[Document]):
    chats = sum(isinstance(document, ChatDocument) for document in documents)
    assert 0.35 * len(documents) < chats < 0.6 * len(documents)
    assert any("\n\n" in x for x in documents if isinstance(x, str) and "Table" in x)


@pytest.mark.parametrize(
    ("domain", "name"),
    [(domain, name) for domain in (NAVIGATION, DIALOGUES, GAMES) for name in domain.environments],
)
def test_every_environment_is_trained_on(domain, name: str):
    """A prompt that opens all of its episodes would exclude it, were it held out."""

    alone, rng = dataclasses.replace(domain, environments=(name,)), np.random.default_rng(0)
    is_trainable = [not any(map(is_held_out, alone(rng).prompts)) for _ in range(12)]
    assert sum(is_trainable) >= 3
