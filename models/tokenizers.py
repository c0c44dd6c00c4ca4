"""Tokenizers made on the spot, as Hugging Face objects: bytes, characters, or byte-pair encoding trained on the task's texts.

All decode exactly what they encoded, add no token and no space. `len(tokenizer)` is the vocabulary a model needs.
Text that looks like a special token ("<eos>" in a page from the web) is read as one unless the call says otherwise:
`tokenizer(text, split_special_tokens=True)` encodes it as the plain characters it is.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from agentrl_jax.errors import UserError

PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
IM_START, IM_END = "<|im_start|>", "<|im_end|>"

CHATML = """\
{%- if tools %}{{ raise_exception('this chat template shows no tools') }}{% endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def byte_tokenizer(chat: bool = False) -> PreTrainedTokenizerFast:
    """One id for each byte of the text's UTF-8, equal to the byte; then the special tokens.

    "\\n" -> 10; "é" -> 195 169. With `chat`, turns are written as ChatML and end in `<|im_end|>`.
    """
    tokenizer = Tokenizer(models.BPE(vocab=_byte_vocabulary(), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _wrap(tokenizer, chat)


def character_tokenizer(texts: Iterable[str], chat: bool = False) -> PreTrainedTokenizerFast:
    """One id for each character of `texts`, in code point order; any other becomes `<unk>`.

    "ab a" -> " " 0, "a" 1, "b" 2, then `<unk>` and the other special tokens.
    """
    vocabulary = {character: i for i, character in enumerate(sorted(set().union(*texts)))}
    if not vocabulary:
        raise UserError("A character tokenizer needs texts to take its characters from.")
    vocabulary[UNKNOWN] = len(vocabulary)
    tokenizer = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return _wrap(tokenizer, chat, unk_token=UNKNOWN)


def train_bpe(
    texts: Iterable[str], vocab_size: int, chat: bool = False, all_bytes: bool = True, phrases: bool = False
) -> PreTrainedTokenizerFast:
    """Byte-pair encoding over bytes with at most `vocab_size` ids, special tokens included (Sennrich et al. 2016, arXiv:1508.07909).

    Words carry the space before them and a newline is always a token of its own: "s l a t e\\n" -> "s" " l" " a" " t" " e" "\\n".
    With `phrases` a token may go on over spaces, up to a whole line (as in SuperBPE, arXiv:2503.13423), and text that repeats itself
    takes a third of the tokens.
    The 256 bytes are in the vocabulary, so every text can be encoded; without `all_bytes` only those that the texts hold
    are, the vocabulary of a small game stays small, and anything else becomes `<unk>`. Training is deterministic.

    Raises:
        UserError: no room for the bytes and the special tokens.
    """
    specials = len(_specials(chat)) + (not all_bytes)
    if all_bytes and vocab_size < 256 + specials:
        raise UserError(f"A byte-pair vocabulary needs at least {256 + specials} ids, not {vocab_size}.")
    tokenizer = Tokenizer(models.BPE() if all_bytes else models.BPE(unk_token=UNKNOWN))
    newline = pre_tokenizers.Split("\n", behavior="isolated")
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not phrases)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([newline, words])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = list(_byte_vocabulary()) if all_bytes else []
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - specials, initial_alphabet=alphabet, show_progress=False, special_tokens=[] if all_bytes else [UNKNOWN]
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _wrap(tokenizer, chat, **({} if all_bytes else {"unk_token": UNKNOWN}))


@dataclass
class BytePairs:
    """A config's tokenizer: `train_bpe` on the texts that the run gives it."""

    vocab_size: int = 512
    all_bytes: bool = True
    chat: bool = False
    phrases: bool = False

    def __call__(self, texts: Iterable[str]) -> PreTrainedTokenizerFast:
        return train_bpe(texts, self.vocab_size, self.chat, self.all_bytes, self.phrases)


@dataclass
class Bytes:
    """A config's tokenizer: `byte_tokenizer`, whatever the texts."""

    chat: bool = False

    def __call__(self, texts: Iterable[str]) -> PreTrainedTokenizerFast:
        return byte_tokenizer(self.chat)


@dataclass
class Characters:
    """A config's tokenizer: `character_tokenizer` of the texts that the run gives it."""

    chat: bool = False

    def __call__(self, texts: Iterable[str]) -> PreTrainedTokenizerFast:
        return character_tokenizer(texts, self.chat)


@dataclass
class FolderTokenizer:
    """A config's tokenizer: the one in a model's folder (or of that name on the hub), whatever the texts."""

    folder: str

    def __call__(self, texts: Iterable[str]) -> Any:
        try:
            return AutoTokenizer.from_pretrained(self.folder)
        except (OSError, ValueError) as error:
            raise UserError(f"{self.folder} holds no tokenizer: give the folder of a Hugging Face model") from error


def _byte_vocabulary() -> dict[str, int]:
    """The character that stands for each byte: itself where it prints, else one from 256 on, in the order of the bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    shown = {character: ord(character) for character in alphabet if ord(character) < 256}
    hidden = (byte for byte in range(256) if byte not in shown.values())
    vocabulary = shown | dict(zip((c for c in alphabet if c not in shown), hidden))
    return dict(sorted(vocabulary.items(), key=lambda item: item[1]))


def _specials(chat: bool) -> dict[str, Any]:
    return {"pad_token": PAD, "eos_token": IM_END, "extra_special_tokens": [IM_START]} if chat else {"pad_token": PAD, "eos_token": EOS}


def _wrap(tokenizer: Tokenizer, chat: bool, **specials: str) -> PreTrainedTokenizerFast:
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **_specials(chat), **specials)
    if chat:
        wrapped.chat_template = CHATML
    return wrapped
