"""Tokenizers that need no download, as Hugging Face objects: bytes, characters, or byte-pair
encoding trained on the task's texts.

All decode exactly what they encoded and add no token and no space. `len(tokenizer)` is the
vocabulary size of a model. Text that looks like a special token ("<eos>" in a web page) is encoded
as one, except with `tokenizer(text, split_special_tokens=True)`, which encodes it as plain
characters.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AddedToken, AutoTokenizer, PreTrainedTokenizerFast

from agentrl_jax.errors import UserError
from agentrl_jax.models.hf.shipped import shipped_or_same

PAD, EOS, UNK = "<pad>", "<eos>", "<unk>"
IM_START, IM_END = "<|im_start|>", "<|im_end|>"
END_OF_TEXT = "<|endoftext|>"
# Tokens that a model of the Qwen family writes itself, so they are text to the tokenizer's user.
QWEN_MARKS = (
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>",
)  # fmt: skip

# Tools are one JSON object a line in a turn of their own; calls are written as Hermes does.
CHATML = """\
{%- if tools %}{{ '<|im_start|>tools\\n' }}
{%- for tool in tools %}{{ tool.function | tojson + '\\n' }}{% endfor %}{{ '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') }}
{%- for call in message.tool_calls or [] %}
{%- if message['content'] or not loop.first %}{{ '\\n' }}{% endif %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- (call.function.arguments | tojson) + '}\\n</tool_call>' }}
{%- endfor %}{{ '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def byte_tokenizer(chat: bool = False) -> PreTrainedTokenizerFast:
    """One id for each byte of UTF-8, equal to the byte; then the special tokens.

    "\\n" -> 10; "é" -> 195 169. With `chat`, turns are written as ChatML and end in `<|im_end|>`.
    """
    tokenizer = Tokenizer(models.BPE(vocab=_byte_vocabulary(), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _to_hf_tokenizer(tokenizer, chat)


def character_tokenizer(texts: Iterable[str], chat: bool = False) -> PreTrainedTokenizerFast:
    """One id for each character of `texts`, in code point order; any other becomes `<unk>`.

    "ab a" -> " " 0, "a" 1, "b" 2, then `<unk>` and the other special tokens.
    """
    vocabulary = {character: i for i, character in enumerate(sorted(set().union(*texts)))}
    if not vocabulary:
        raise UserError("A character tokenizer needs texts to take its characters from.")
    vocabulary[UNK] = len(vocabulary)
    tokenizer = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token=UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return _to_hf_tokenizer(tokenizer, chat, unk_token=UNK)


def train_bpe(
    texts: Iterable[str],
    vocab_size: int,
    chat: bool = False,
    all_bytes: bool = True,
    merge_across_spaces: bool = False,
    split_digits: bool = False,
) -> PreTrainedTokenizerFast:
    """Byte-pair encoding over bytes with at most `vocab_size` ids, special tokens included
    (Sennrich et al. 2016, arXiv:1508.07909).

    Words include the space before them and a newline is always a separate token: "s l a t e\\n" ->
    "s" " l" " a" " t" " e" "\\n". Training is deterministic.

    Args:
        texts: are trained on.
        vocab_size: the largest number of ids.
        chat: adds ChatML's special tokens and template.
        all_bytes: all 256 bytes are in the vocabulary, so every text can be encoded; False: only
            those of `texts`, which keeps the vocabulary of a small game small, and any other
            becomes `<unk>`.
        merge_across_spaces: a token may span spaces, up to a whole line (as in SuperBPE,
            arXiv:2503.13423); repetitive text takes a third of the tokens.
        split_digits: each digit is a token of its own, so that numbers can be copied.

    Raises:
        UserError: `vocab_size` is too small for the bytes and the special tokens.
    """
    specials = len(_special_tokens(chat)) + (not all_bytes)
    tokenizer = _train_byte_pairs(
        texts, vocab_size, specials, all_bytes, merge_across_spaces, split_digits
    )
    return _to_hf_tokenizer(tokenizer, chat, **({} if all_bytes else {"unk_token": UNK}))


def train_qwen_bpe(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Byte-pair encoding with the tokens and the pieces of a Qwen tokenizer: every byte is in the
    vocabulary, each digit is a token of its own, turns are ChatML that ends in `<|im_end|>`, a text
    ends in `<|endoftext|>`, and the marks of tool calls and of thoughts are one token each.

    Args:
        texts: are trained on.
        vocab_size: the largest number of ids.

    Raises:
        UserError: `vocab_size` is too small for the bytes and these tokens.
    """
    specials = len((END_OF_TEXT, IM_START, IM_END, *QWEN_MARKS))
    tokenizer = _train_byte_pairs(texts, vocab_size, specials, True, False, split_digits=True)
    tokens = {"pad_token": END_OF_TEXT, "eos_token": IM_END, "extra_special_tokens": [IM_START]}
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **tokens
    )
    marks = [AddedToken(mark, special=False) for mark in QWEN_MARKS]
    wrapped.add_tokens(marks)
    wrapped.chat_template = CHATML
    return wrapped


def _train_byte_pairs(
    texts: Iterable[str],
    vocab_size: int,
    specials: int,
    all_bytes: bool,
    merge_across_spaces: bool,
    split_digits: bool,
) -> Tokenizer:
    """The encoding without its special tokens, for which the vocabulary leaves room."""
    if all_bytes and vocab_size < 256 + specials:
        raise UserError(
            f"A byte-pair vocabulary needs at least {256 + specials} ids, not {vocab_size}."
        )
    tokenizer = Tokenizer(models.BPE() if all_bytes else models.BPE(unk_token=UNK))
    newline = pre_tokenizers.Split("\n", behavior="isolated")
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not merge_across_spaces)
    digits = [pre_tokenizers.Digits(individual_digits=True)] if split_digits else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([newline, *digits, words])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - specials,
        initial_alphabet=list(_byte_vocabulary()) if all_bytes else [],
        show_progress=False,
        special_tokens=[] if all_bytes else [UNK],
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


@dataclass
class BPETokenizer:
    """A config's tokenizer: `train_bpe` on the run's texts."""

    vocab_size: int = 512
    all_bytes: bool = True
    chat: bool = False
    merge_across_spaces: bool = False
    split_digits: bool = False

    def __call__(self, texts: Iterable[str]) -> PreTrainedTokenizerFast:
        return train_bpe(
            texts,
            self.vocab_size,
            self.chat,
            self.all_bytes,
            self.merge_across_spaces,
            self.split_digits,
        )


@dataclass
class QwenBPETokenizer:
    """A config's tokenizer: `train_qwen_bpe` on the run's texts."""

    vocab_size: int = 4096

    def __call__(self, texts: Iterable[str]) -> PreTrainedTokenizerFast:
        return train_qwen_bpe(texts, self.vocab_size)


@dataclass
class ByteTokenizer:
    """A config's tokenizer: `byte_tokenizer`; the texts are ignored."""

    chat: bool = False

    def __call__(self, texts: Iterable[str]) -> PreTrainedTokenizerFast:
        return byte_tokenizer(self.chat)


@dataclass
class CharacterTokenizer:
    """A config's tokenizer: `character_tokenizer` of the run's texts."""

    chat: bool = False

    def __call__(self, texts: Iterable[str]) -> PreTrainedTokenizerFast:
        return character_tokenizer(texts, self.chat)


@dataclass
class FolderTokenizer:
    """A config's tokenizer: that of a model's folder (or of the model of that name, which comes
    with the package or is on the hub); the texts are ignored.

    A chat template that is only in `chat_template.json`, where older processors keep it, is read.
    """

    folder: str

    def __call__(self, texts: Iterable[str]) -> Any:
        folder = shipped_or_same(self.folder)
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder)
        except (OSError, ValueError) as error:
            raise UserError(
                f"{self.folder} holds no tokenizer: give the folder of a Hugging Face model"
            ) from error
        template = Path(folder) / "chat_template.json"
        if not tokenizer.chat_template and template.is_file():
            tokenizer.chat_template = _template_of_processor(template)
        return tokenizer


def _template_of_processor(path: Path) -> str:
    """Raises UserError where the file has no template."""
    try:
        template = json.loads(path.read_text())["chat_template"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{path} is no file with a chat_template: {error}") from error
    if not isinstance(template, str):
        raise UserError(f"the chat_template of {path} is no text")
    return template


def _byte_vocabulary() -> dict[str, int]:
    """The character of each byte in byte-level BPE: itself where it is printable, else one from 256
    upwards, in the order of the bytes.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    printable = {character: ord(character) for character in alphabet if ord(character) < 256}
    others = (byte for byte in range(256) if byte not in printable.values())
    vocabulary = printable | dict(zip((c for c in alphabet if c not in printable), others))
    return dict(sorted(vocabulary.items(), key=lambda item: item[1]))


def _special_tokens(chat: bool) -> dict[str, Any]:
    if chat:
        return {"pad_token": PAD, "eos_token": IM_END, "extra_special_tokens": [IM_START]}
    return {"pad_token": PAD, "eos_token": EOS}


def _to_hf_tokenizer(tokenizer: Tokenizer, chat: bool, **specials: str) -> PreTrainedTokenizerFast:
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        clean_up_tokenization_spaces=False,
        **_special_tokens(chat),
        **specials,
    )
    if chat:
        wrapped.chat_template = CHATML
    return wrapped
