"""`TextDocuments`: texts and conversations as experience, for (continued) pretraining."""

import functools
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.documents import ChatDocument, Document, document_text
from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.messages import Message
from agentrl_jax.renderer import ChatRenderer
from agentrl_jax.storage import text_documents
from agentrl_jax.storage.demonstration_file import DEMONSTRATION
from agentrl_jax.storage.text_documents import DocumentTokens
from agentrl_jax.training.config import ExperienceIterator, RunContext
from agentrl_jax.training.shuffled_batches import ShuffledBatches
from agentrl_jax.trajectories import Call, Group, Sampling, Trajectory, Turn


@dataclass
class TextDocuments:
    """Shuffled windows of documents; a cloning loss on them is the next-token loss of pretraining
    (`BehaviorCloningConfig` with a `bin_length` of at least `length`).

    Documents are tokenized once, into the run folder. Every token but the first of a document is
    predicted once an epoch, from those before it in its window and document. Windows follow one
    another through all documents and cut some of them; with `whole_documents` each window is one
    document, of which what exceeds `length` is left out.
    """

    # A .jsonl file, whose lines have a field `text`, or a text file; or else a module's function
    # that yields the documents. Conversations are written by the tokenizer's chat template.
    path: str = ""
    documents: Callable[[], Iterable[Document]] | None = None
    batch: int = 32  # windows per step
    length: int = 256  # tokens of a window
    # The token after a text, where it is not the one that ends a turn of a conversation; empty: the
    # tokenizer's end of sequence.
    end_of_text: str = ""
    whole_documents: bool = False
    on_policy: bool = field(default=False, init=False)

    def texts(self) -> Iterable[Document]:
        """The documents. Raises UserError unless one place for them is given."""
        if bool(self.path) == (self.documents is not None):
            raise UserError("text documents need either a path or a function `documents`")
        return (
            self.documents() if self.documents else text_documents.read_documents(Path(self.path))
        )

    def first_texts(self, limit: int) -> list[str]:
        """The first documents, for a tokenizer."""
        return [document_text(x) for x in itertools.islice(self.texts(), limit)]

    def open(self, run: RunContext) -> ExperienceIterator:
        if self.batch < 1 or self.length < 2:
            raise UserError(f"text documents need batch >= 1 and length >= 2: {self}")
        folder = run.run_dir / "text" / run.phase
        with run.process_group.coordinator_first("the documents' tokens"):
            if not text_documents.is_complete(folder):
                text_documents.write_tokens(
                    folder, self.texts(), DocumentEncoder(run.tokenizer, self.end_of_text)
                )
        tokens = text_documents.read_tokens(folder)
        loader = WindowLoader(tokens, self.length, self.whole_documents)
        windows = len(tokens.starts) if self.whole_documents else tokens.num_windows(self.length)
        if windows < self.batch:
            raise UserError(
                f"the documents have {len(tokens.tokens)} tokens, {windows} windows of "
                f"{self.length}, fewer than one batch of {self.batch}"
            )
        return ShuffledBatches(
            range(windows), self.batch, seed_of(run.experiment.seed, 4), loader, run.process_group
        )


@dataclass(frozen=True)
class DocumentEncoder:
    """The ids of a document: of a text with the beginning of sequence before it and an end after
    it, where the tokenizer has these tokens; of a conversation as an agent's last call has them,
    prompt and action. Text that looks like a special token is text.
    """

    tokenizer: Any
    end_of_text: str = ""  # a token; empty: the end of sequence

    def __call__(self, document: Document) -> np.ndarray:
        if isinstance(document, ChatDocument):
            return self._chat_ids(document)
        tokenizer = self.tokenizer
        ids = tokenizer(document, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        ids = [tokenizer.bos_token_id, *ids, self._end_id]
        return np.asarray([token for token in ids if token is not None], np.int32)

    def _chat_ids(self, document: ChatDocument) -> np.ndarray:
        *before, last = document.messages
        if last.role != "assistant":
            raise UserError(f"a conversation ends in an assistant's message, not in {last!r:.200}")
        before = [self._renderer.as_written(message) for message in before]
        prompt = self._renderer.render(before, document.tools)
        return np.concatenate([prompt.ids, self._renderer.action_ids(last)]).astype(np.int32)

    @functools.cached_property
    def _renderer(self) -> ChatRenderer:
        return ChatRenderer(self.tokenizer)

    @functools.cached_property
    def _end_id(self) -> int | None:
        if not self.end_of_text:
            return self.tokenizer.eos_token_id
        if self.end_of_text not in self.tokenizer.get_vocab():
            raise UserError(
                f"the tokenizer has no token {self.end_of_text!r} for the end of a text"
            )
        return self.tokenizer.convert_tokens_to_ids(self.end_of_text)


@dataclass(frozen=True)
class WindowLoader:
    """A window as a group: one trajectory for each document in it, of a single call whose action is
    every token but the first.
    """

    tokens: DocumentTokens
    length: int
    whole_documents: bool = False

    def __call__(self, index: int) -> Group:
        read = self.tokens.document if self.whole_documents else self.tokens.window
        pieces = read(index, self.length)
        return Group("text", tuple(map(text_trajectory, pieces)))


def text_trajectory(ids: np.ndarray) -> Trajectory:
    """Tokens as one demonstrated action after the first of them."""
    call = Call(
        prompt=ids[:1],
        action=ids[1:],
        sampler_logp=np.zeros(len(ids) - 1, np.float32),
        version=np.full(len(ids) - 1, -1, np.int32),
        sampling=Sampling(),
        finish_reason="budget",
        source="demonstration",
    )
    turn = Turn((call,), Message("assistant", ""), (), 0.0, terminated=True)
    return Trajectory((), (turn,), "text", agent=DEMONSTRATION)
