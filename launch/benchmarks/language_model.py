"""`LanguageModel`: a model's loss on exercises and its greedy answers."""

import functools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from agentrl_jax import models
from agentrl_jax.corpus.corpus import SEPARATOR, Corpus
from agentrl_jax.corpus.exercise import Exercise
from agentrl_jax.inference.batch_scorer import BatchScorer, continuation_logp
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.models.tokenizers import END_OF_TEXT, FolderTokenizer
from agentrl_jax.renderer import ChatRenderer
from agentrl_jax.training.pretraining import DocumentEncoder
from agentrl_jax.trajectories import Sampling

ENGINE = EngineConfig(rows=16, positions=768, prefill_chunk=32, min_decode_steps=8)
BASELINE_DOCUMENTS = 4000  # training documents from which the unigram model is counted
SPARE_TOKENS = 8  # that a greedy answer may be longer than the right one


@dataclass(frozen=True)
class DomainResult:
    """Sums over held-out exercises of a domain."""

    count: int
    tokens: int  # predicted: all but the first of each document
    text_bytes: int  # that these tokens stand for
    nats: float  # minus the model's log-probability of them
    unigram_nats: float  # minus that of their frequencies in training documents
    right: int  # greedy answers that equal the right one

    def cells(self, name: str, percent: int) -> tuple[str, ...]:
        """The cells of the table's row."""
        return (
            name,
            f"{percent} %",
            f"{self.tokens:,}",
            f"{self.nats / self.tokens:.3f}",
            f"{self.unigram_nats / self.tokens:.3f}",
            f"{self.nats / math.log(2) / self.text_bytes:.3f}",
            f"{self.right} of {self.count}",
        )


class LanguageModel:
    """A pretrained model on this process's devices."""

    def __init__(self, name: str) -> None:
        """Of a folder, or of a model by its name."""
        self.policy, params = models.load(name)
        self.tokenizer = FolderTokenizer(name)(())
        self.encode = DocumentEncoder(self.tokenizer, END_OF_TEXT)
        self._renderer = ChatRenderer(self.tokenizer)
        self._engine = LocalEngine(self.policy, ENGINE, params)
        score = continuation_logp(self.policy)
        self._scorer = BatchScorer(score, self.policy.axes(), lambda: params, ENGINE, rows=8)

    def evaluate(self, exercises: Sequence[Exercise]) -> DomainResult:
        """Loss on the documents, and answers to the prompts."""
        documents = [self.encode(exercise.document) for exercise in exercises]
        predicted = [ids[1:] for ids in documents]
        return DomainResult(
            count=len(exercises),
            tokens=sum(map(len, predicted)),
            text_bytes=sum(len(self.tokenizer.decode(ids).encode()) for ids in predicted),
            nats=-sum(self.logp(documents, [np.arange(len(ids)) > 0 for ids in documents])),
            unigram_nats=-float(sum(self._unigram_logp[ids].sum() for ids in predicted)),
            right=sum(self._is_right(exercises)),
        )

    def logp(
        self, documents: Sequence[np.ndarray], are_scored: Sequence[np.ndarray]
    ) -> list[float]:
        """The log-probability of each document's scored tokens, each given all before it."""
        scored = [self._scorer.submit(*pair) for pair in zip(documents, are_scored, strict=True)]
        return [score.result() for score in scored]

    @functools.cached_property
    def _unigram_logp(self) -> np.ndarray:
        """log((n_v + 1) / sum_u (n_u + 1)) of each token v."""
        counts: Counter[int] = Counter()
        for document in Corpus(BASELINE_DOCUMENTS)():
            counts.update(self.encode(document)[1:].tolist())
        numbers = np.array([counts[token] + 1 for token in range(len(self.tokenizer))])
        return np.log(numbers / numbers.sum())

    def _is_right(self, exercises: Sequence[Exercise]) -> list[bool]:
        """Whether each greedy answer is the right one, to the letter."""
        calls = []
        for i, exercise in enumerate(exercises):
            right = self._renderer.action_ids(exercise.answer)
            ends = (*self._renderer.stop_ids, self.tokenizer.convert_tokens_to_ids(END_OF_TEXT))
            sampling = Sampling(len(right) + SPARE_TOKENS, temperature=0.0, stop_ids=ends)
            calls.append(self._engine.submit(self._prompt_ids(exercise), sampling, (i,)))
        answers = [self._answer(call.result().action) for call in calls]
        right_answers = [self._answer(self._renderer.action_ids(x.answer)) for x in exercises]
        return [x == y for x, y in zip(answers, right_answers)]

    def _prompt_ids(self, exercise: Exercise) -> np.ndarray:
        prompt = exercise.prompt
        if isinstance(prompt, str):
            return self._renderer.codec.encode_plain(prompt)
        return self._renderer.render(prompt.messages, prompt.tools).ids

    def _answer(self, action: np.ndarray) -> str:
        """The text without the token that ends it and, of a text, without further exercises."""
        text = self.tokenizer.decode(action, skip_special_tokens=True)
        return text.partition(SEPARATOR)[0].rstrip("\n")

    def __enter__(self) -> "LanguageModel":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._engine.close()
        self._scorer.close()
