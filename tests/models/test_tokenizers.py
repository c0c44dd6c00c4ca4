"""Tokenizers: exact round trips, token boundaries, and saved folders that Hugging Face loads."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, ToolCall, assistant, user
from agentrl_jax.models.tokenizers import (
    QWEN_MARKS,
    BPETokenizer,
    FolderTokenizer,
    byte_tokenizer,
    character_tokenizer,
    train_bpe,
    train_qwen_bpe,
)
from agentrl_jax.renderer import ChatRenderer
from agentrl_jax.tools import tool

WORDLE = [
    "s l a t e\nb b y g b\n",
    "c r o n y\ny b b g b\n",
    "f j u i p\nw v x q z\nd h m k g\nb b b b b\n",
]
TEXT = st.text(st.characters(exclude_categories=["Cs"]))  # lone surrogates have no UTF-8 encoding
BYTES = byte_tokenizer()
PAIRS = train_bpe(WORDLE, 300)
PHRASES = train_bpe(["go east\ngo west\n"], 280, merge_across_spaces=True)
CHARACTERS = character_tokenizer(WORDLE)
QWEN = train_qwen_bpe(["two and two are 4\n", '{"name": "add", "arguments": {"a": 17}}\n'], 330)
CHAT = [
    {"role": "system", "content": "Play.\nShort."},
    {"role": "user", "content": "b b y g b"},
    {"role": "assistant", "content": "s l a t e"},
]


def plain(tokenizer, text):
    return tokenizer(text, split_special_tokens=True)["input_ids"]


@given(TEXT)
def test_the_byte_tokenizer_is_utf8(text):
    assert plain(BYTES, text) == list(text.encode())
    assert BYTES.decode(plain(BYTES, text)) == text


@given(st.one_of(TEXT, st.text("abc \n\r\t'.,<eos>"), st.sampled_from(WORDLE)))
@settings(max_examples=200)
def test_byte_pairs_round_trip_and_a_newline_stands_alone(text):
    for tokenizer in (PAIRS, PHRASES, QWEN):
        ids = plain(tokenizer, text)
        assert tokenizer.decode(ids) == text
        assert ids.count(tokenizer.convert_tokens_to_ids("Ċ")) == text.count("\n")


@given(st.text(sorted(set("".join(WORDLE)))))
def test_the_character_tokenizer_has_one_id_for_each_character(text):
    assert len(plain(CHARACTERS, text)) == len(text)
    assert CHARACTERS.decode(plain(CHARACTERS, text)) == text


def test_an_unseen_character_is_unknown():
    ids = plain(CHARACTERS, "s é")
    assert CHARACTERS.convert_ids_to_tokens(ids) == ["s", " ", "<unk>"]


def test_a_wordle_move_is_six_byte_pair_tokens():
    assert PAIRS.tokenize("s l a t e\n") == ["s", "Ġl", "Ġa", "Ġt", "Ġe", "Ċ"]
    assert PAIRS.tokenize("\n\n l") == ["Ċ", "Ċ", "Ġl"]


def test_merged_tokens_span_spaces_but_not_lines():
    text = "go east\ngo west\n\n go"
    assert [PHRASES.decode([i]) for i in plain(PHRASES, text)] == [
        "go east",
        "\n",
        "go west",
        "\n",
        "\n",
        " ",
        "go",
    ]


def test_byte_pairs_are_learned_the_same_way_twice_and_fit_their_size():
    assert train_bpe(WORDLE, 300).get_vocab() == PAIRS.get_vocab()
    small = train_bpe(WORDLE, 262)
    assert len(small) == 262 and max(small.get_vocab().values()) == 261


def test_the_special_token_of_a_text_can_be_plain():
    assert BYTES("<eos>")["input_ids"] == [BYTES.eos_token_id]
    assert plain(BYTES, "<eos>") == list(b"<eos>")
    assert BYTES.decode(plain(BYTES, " <pad> x")) == " <pad> x"


@pytest.mark.parametrize(
    "make",
    [
        byte_tokenizer,
        lambda **k: character_tokenizer(WORDLE, **k),
        lambda **k: train_bpe(WORDLE, 300, **k),
    ],
)
@pytest.mark.parametrize("chat", [False, True])
def test_hugging_face_loads_what_was_saved(make, chat, tmp_path):
    tokenizer = make(chat=chat)
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again.get_vocab() == tokenizer.get_vocab() and len(again) == len(tokenizer)
    assert (again.pad_token, again.eos_token, again.chat_template) == (
        tokenizer.pad_token,
        tokenizer.eos_token,
        tokenizer.chat_template,
    )
    for text in ["s l a t e\n", " ,b  'b\n\n", "y g <eos> <|im_end|>"]:
        assert (
            plain(again, text) == plain(tokenizer, text)
            and again(text)["input_ids"] == tokenizer(text)["input_ids"]
        )
        assert again.decode(again(text)["input_ids"]) == tokenizer.decode(
            tokenizer(text)["input_ids"]
        )


@pytest.mark.parametrize("make", [byte_tokenizer, lambda **k: train_bpe(WORDLE, 300, **k)])
def test_a_conversation_is_written_as_chatml(make):
    tokenizer = make(chat=True)
    want = (
        "<|im_start|>system\nPlay.\nShort.<|im_end|>\n<|im_start|>user\nb b y g b<|im_end|>\n"
        "<|im_start|>assistant\ns l a t e<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True) == want
    ids = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True)["input_ids"]
    assert tokenizer.decode(ids) == want
    assert (
        ids.count(tokenizer.eos_token_id) == 3
        and ids.count(tokenizer.convert_tokens_to_ids("<|im_start|>")) == 4
    )
    assert tokenizer.apply_chat_template(CHAT, tokenize=False) == want.removesuffix(
        "<|im_start|>assistant\n"
    )


def test_the_chat_template_shows_tools_and_writes_calls_as_hermes_does():
    tool = {"type": "function", "function": {"name": "look", "parameters": {"x": "é"}}}
    calls = [{"function": {"name": "look", "arguments": {"at": n}}} for n in (1, 2)]
    chat = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "wall"},
    ]
    assert byte_tokenizer(chat=True).apply_chat_template(chat, tools=[tool], tokenize=False) == (
        '<|im_start|>tools\n{"name": "look", "parameters": {"x": "é"}}\n<|im_end|>\n'
        "<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n"
        '<tool_call>\n{"name": "look", "arguments": {"at": 1}}\n</tool_call>\n'
        '<tool_call>\n{"name": "look", "arguments": {"at": 2}}\n</tool_call><|im_end|>\n'
        "<|im_start|>tool\nwall<|im_end|>\n"
    )


def test_digits_may_be_tokens_of_their_own():
    texts = ["cost 12 a", "cost 12 b", "cost 345 a"] * 9
    for spans in (False, True):
        tokenizer = train_bpe(texts, 300, merge_across_spaces=spans, split_digits=True)
        ids = tokenizer("cost 3451 a")["input_ids"]
        pieces = [str(tokenizer.decode([i])) for i in ids]
        assert "".join(pieces) == "cost 3451 a"
        assert [piece for piece in pieces if piece.isdigit()] == ["3", "4", "5", "1"]


def test_a_size_without_room_for_the_bytes_is_refused():
    with pytest.raises(UserError, match="at least 258 ids, not 64"):
        train_bpe(WORDLE, 64)


def test_characters_of_no_text_are_refused():
    with pytest.raises(UserError, match="needs texts"):
        character_tokenizer([])


def test_a_qwen_tokenizer_has_the_tokens_of_that_family():
    assert (QWEN.eos_token, QWEN.pad_token) == ("<|im_end|>", "<|endoftext|>")
    for mark in ("<|im_start|>", "<|im_end|>", "<|endoftext|>", *QWEN_MARKS):
        (token,) = QWEN(mark)["input_ids"]
        assert QWEN.decode([token]) == mark
    assert len(plain(QWEN, "<|im_end|>")) > 1  # text that looks like it
    assert len(plain(QWEN, "<tool_call>")) == 1  # a policy writes it
    assert [QWEN.decode([token]) for token in plain(QWEN, "417")] == ["4", "1", "7"]
    assert len(QWEN) <= 330
    with pytest.raises(UserError, match="at least 265 ids"):
        train_qwen_bpe(WORDLE, 264)


def test_tool_calls_round_trip_through_a_qwen_tokenizer(tmp_path):
    def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: a number
            b: another
        """
        return a + b

    QWEN.save_pretrained(tmp_path)
    renderer, tools = ChatRenderer(AutoTokenizer.from_pretrained(tmp_path)), (tool(add).schema,)
    call = Message("assistant", "", (ToolCall("call_0", "add", '{"a": 17, "b": 4}'),))
    action = renderer.action_ids(call)
    parsed = renderer.parse(action, tools)
    assert [(x.name, x.arguments) for x in parsed.tool_calls] == [("add", '{"a": 17, "b": 4}')]
    messages = [user("What is 17 plus 4?"), parsed, Message("tool", "21", tool_call_id="call_0")]
    text = renderer.codec.decode(tuple(renderer.render(messages, tools).ids.tolist()))
    first, *turns = text.split("<|im_start|>")
    assert first == "" and [turn.partition("\n")[0] for turn in turns] == [
        "tools",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert turns[2] == f"assistant\n{parsed.raw_text}<|im_end|>\n"
    assert "Add two numbers." in turns[0] and turns[3] == "tool\n21<|im_end|>\n"
    assert renderer.parse(renderer.action_ids(assistant("It is 21.")), tools).text == "It is 21."


def test_a_template_that_only_the_processor_has_is_read(tmp_path):
    tokenizer = BPETokenizer(vocab_size=300, chat=True)(["a text"])
    template, tokenizer.chat_template = tokenizer.chat_template, None
    tokenizer.save_pretrained(tmp_path)
    load = FolderTokenizer(str(tmp_path))
    assert load(()).chat_template is None
    path = tmp_path / "chat_template.json"
    path.write_text(json.dumps({"chat_template": template}))
    assert load(()).chat_template == template
    for damaged, message in (("{}", "no file with a chat_template"), ("[1", "no file with"),
                             ('{"chat_template": 3}', "is no text")):  # fmt: skip
        path.write_text(damaged)
        with pytest.raises(UserError, match=message):
            load(())
