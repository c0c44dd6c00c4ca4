"""`Exercise`: a document whose end follows from what stands before it."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from agentrl_jax.documents import ChatDocument, Document, document_text
from agentrl_jax.messages import Message, assistant

HELD_OUT_PART = 32  # one prompt in so many is held out,
HELD_OUT_REMAINDER = 31  # not the prompts with which every episode of an environment begins


@dataclass(frozen=True)
class Exercise:
    """A prompt and its right answer."""

    prompt: Document  # a conversation ends before the answer
    answer: Message

    @property
    def document(self) -> Document:
        if isinstance(self.prompt, str):
            return self.prompt + self.answer.text
        return ChatDocument((*self.prompt.messages, self.answer), self.prompt.tools)

    @property
    def prompts(self) -> Iterator[Document]:
        """All that the document answers: those of the assistant's earlier messages, and its own."""
        if isinstance(self.prompt, ChatDocument):
            messages, tools = self.prompt.messages, self.prompt.tools
            for i, message in enumerate(messages):
                if message.role == "assistant":
                    yield ChatDocument(messages[:i], tools)
        yield self.prompt


# A kind of exercises; the same generator state gives the same exercise.
Domain = Callable[[np.random.Generator], Exercise]


def text_exercise(prompt: str, answer: str) -> Exercise:
    return Exercise(prompt, assistant(answer))


def is_held_out(prompt: Document) -> bool:
    """Whether the answer to a prompt is never trained on, by a hash of the prompt's text."""
    digest = hashlib.blake2b(document_text(prompt).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % HELD_OUT_PART == HELD_OUT_REMAINDER


def sample_training_exercise(domain: Domain, rng: np.random.Generator) -> Exercise:
    """The next exercise of the domain that answers no held-out prompt, in no turn."""
    while True:
        exercise = domain(rng)
        if not any(map(is_held_out, exercise.prompts)):
            return exercise


def sample_held_out_exercise(domain: Domain, rng: np.random.Generator) -> Exercise:
    """The next exercise of the domain whose prompt is held out."""
    while True:
        exercise = domain(rng)
        if is_held_out(exercise.prompt):
            return exercise
