"""Pretraining on text: what is predicted, what is learned, and exact resumption."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.small_runs import logged_metrics, partial_context, rollout_source, small_experiment

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.documents import ChatDocument
from agentrl_jax.errors import UserError
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.learner.sequences import sequences_of
from agentrl_jax.messages import assistant, user
from agentrl_jax.models.tokenizers import ByteTokenizer, byte_tokenizer
from agentrl_jax.renderer import ChatRenderer
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.storage import text_documents
from agentrl_jax.storage.digests import forget_digest
from agentrl_jax.training import loop
from agentrl_jax.training.config import Experiment, Phase, RunContext
from agentrl_jax.training.pretraining import DocumentEncoder, TextDocuments
from agentrl_jax.workers.pool import InlinePool

TEXT = "abcabcabc\n" * 20


def documents() -> Iterator[str]:
    """Forty documents of different lengths."""
    for i in range(40):
        yield TEXT[: 5 + 3 * i]


def pretraining(steps: int, source: TextDocuments) -> Experiment:
    cloning = BehaviorCloningConfig(optimizer=AdamWConfig(1e-2), bin_length=32, microbatch=8)
    experiment = small_experiment(rollout_source())
    experiment.tokenizer, experiment.demonstrations = ByteTokenizer(), None
    experiment.phases = {"pretrain": Phase("text", source, cloning, steps, checkpoint_every=2)}
    return experiment


def context(run_dir: Path, source: TextDocuments, runtime: Runtime) -> RunContext:
    experiment = pretraining(1, source)
    return partial_context(
        experiment=experiment,
        run_dir=run_dir,
        phase="pretrain",
        runtime=runtime,
        tokenizer=byte_tokenizer(),
    )


def test_a_document_is_text_and_an_end():
    tokenizer = byte_tokenizer()
    ids = DocumentEncoder(tokenizer)("a<eos>")
    assert ids.tolist() == [*b"a<eos>", tokenizer.eos_token_id] and ids.dtype == np.int32


def test_a_text_ends_in_the_token_that_is_named():
    tokenizer = byte_tokenizer()
    ids = DocumentEncoder(tokenizer, "<pad>")("ab")
    assert ids.tolist() == [*b"ab", tokenizer.pad_token_id]
    with pytest.raises(UserError, match="no token '<end>'"):
        DocumentEncoder(tokenizer, "<end>")("ab")


def test_a_conversation_is_what_an_agents_last_call_holds():
    tokenizer = byte_tokenizer(chat=True)
    messages = (user("2 + 2? <|im_end|>"), assistant("4"), user("sure?"), assistant("yes"))
    ids = DocumentEncoder(tokenizer)(ChatDocument(messages))
    renderer = ChatRenderer(tokenizer)
    prompt, action = renderer.render(messages[:-1]).ids, renderer.action_ids(messages[-1])
    assert ids.tolist() == [*prompt.tolist(), *action.tolist()] and ids.dtype == np.int32
    ends = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert ids.tolist().count(ends) == 4 and ids[-1] == ends  # not that of the user's text
    with pytest.raises(UserError, match="ends in an assistant's message"):
        DocumentEncoder(tokenizer)(ChatDocument(messages[:3]))


def chats() -> Iterator[ChatDocument | str]:
    for i in range(6):
        yield ChatDocument((user(f"{i}?"), assistant(str(i))))
        yield f"{i} is {i}"


def test_texts_and_conversations_are_documents_of_one_source(tmp_path: Path):
    source, tokenizer = (
        TextDocuments(documents=chats, batch=2, length=16),
        byte_tokenizer(chat=True),
    )
    with Runtime({}, {}, InlinePool()) as runtime:
        source.open(
            partial_context(
                experiment=pretraining(1, source),
                run_dir=tmp_path,
                phase="pretrain",
                runtime=runtime,
                tokenizer=tokenizer,
            )
        )
    tokens = text_documents.read_tokens(tmp_path / "text" / "pretrain")
    encode = DocumentEncoder(tokenizer)
    assert tokens.tokens.tolist() == [int(x) for document in chats() for x in encode(document)]
    assert source.first_texts(2) == ["user\n0?\nassistant\n0", "0 is 0"]


def test_every_token_is_trained_once_an_epoch(tmp_path: Path):
    source = TextDocuments(documents=documents, batch=4, length=16)
    with Runtime({}, {}, InlinePool()) as runtime:
        iterator = source.open(context(tmp_path, source, runtime))
        total = sum(len(text) for text in documents())  # with an end, and without a first token
        windows = -(-(total + 40 - 1) // 15)
        groups = [group for step in range(windows // 4) for group in iterator.next(step)]
    sequences = [
        sequence
        for group in groups
        for trajectory in group.trajectories
        for sequence in sequences_of(trajectory)
    ]
    assert all(
        sequence.action_mask.tolist() == [False, *[True] * (len(sequence) - 1)]
        for sequence in sequences
    )
    trained = sum(int(sequence.action_mask.sum()) for sequence in sequences)
    assert total - 4 * 15 <= trained <= total  # an epoch without its last, incomplete batch


def test_whole_documents_are_not_divided_and_lose_what_exceeds_the_length(tmp_path: Path):
    source = TextDocuments(documents=documents, batch=40, length=100, whole_documents=True)
    with Runtime({}, {}, InlinePool()) as runtime:
        groups = source.open(context(tmp_path, source, runtime)).next(0)
        encode = DocumentEncoder(byte_tokenizer())
        expected = sorted(encode(document)[:100].tolist() for document in documents())
        pieces = [t.calls[0].ids.tolist() for group in groups for t in group.trajectories]
        assert sorted(pieces) == expected and max(map(len, pieces)) == 100
        too_many = dataclasses.replace(source, batch=41)
        with pytest.raises(UserError, match="40 windows of 100, fewer than one batch of 41"):
            too_many.open(context(tmp_path, too_many, runtime))


class OneOfTwo(ProcessGroup):
    """One of two processes, without the other."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.count = 2

    def coordinator_first(self, label: str) -> Any:
        return contextlib.nullcontext()


def test_processes_share_the_windows_of_a_step(tmp_path: Path):
    source = TextDocuments(documents=documents, batch=6, length=16)

    def windows(process_group: ProcessGroup) -> list[list[int]]:
        with Runtime({}, {}, InlinePool(), process_group=process_group) as runtime:
            groups = source.open(context(tmp_path, source, runtime)).next(0)
        return [[int(t.calls[0].ids.sum()) for t in group.trajectories] for group in groups]

    together = windows(ProcessGroup())
    parts = [windows(OneOfTwo(index)) for index in range(2)]
    assert len(together) == 6 and [len(part) for part in parts] == [3, 3]
    assert sorted(together) == sorted([*parts[0], *parts[1]])


@pytest.mark.slow
def test_a_policy_learns_to_continue_the_text(tmp_path: Path):
    source = TextDocuments(documents=documents, batch=8, length=32)
    loop.train(pretraining(40, source), tmp_path, quiet=True)
    losses = [line["loss"] for line in logged_metrics(tmp_path)]
    assert losses[0] > 5 and losses[-1] < 0.5  # log 259 before; the text repeats three letters


@pytest.mark.slow
def test_a_pretraining_phase_is_resumed_exactly_without_reading_the_documents_again(
    tmp_path: Path,
):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(TEXT * 5)
    source = TextDocuments(str(corpus), batch=4, length=16)
    loop.train(pretraining(5, source), tmp_path / "unbroken", quiet=True)
    experiment = pretraining(2, source)
    loop.train(experiment, tmp_path / "stopped", quiet=True)
    config = tmp_path / "stopped" / "config.json"
    config.write_text(config.read_text().replace('"steps": 2', '"steps": 5'))
    forget_digest(config)
    corpus.write_text("")
    loop.train(pretraining(5, source), tmp_path / "stopped", quiet=True)
    assert logged_metrics(tmp_path / "unbroken") == logged_metrics(tmp_path / "stopped")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"documents": None}, "either a path or a function"),
        ({"path": "a.txt"}, "either a path or a function"),
        ({"length": 1}, "length >= 2"),
        ({"length": 400}, "windows of 400, fewer than one batch of 32"),
    ],
)
def test_documents_that_cannot_be_read_are_refused(
    tmp_path: Path, fields: dict[str, Any], message: str
):
    source = dataclasses.replace(TextDocuments(documents=documents), **fields)
    with (
        Runtime({}, {}, InlinePool()) as runtime,
        pytest.raises(UserError, match=message),
    ):
        source.open(context(tmp_path, source, runtime))
