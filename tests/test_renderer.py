"""Messages to ids and back: sampled ids are preserved, and no environment text is a special
token.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fixtures import make_call

from agentrl_jax.errors import UserError
from agentrl_jax.messages import ImagePart, Message, TextPart, assistant, user
from agentrl_jax.models.tokenizers import byte_tokenizer, character_tokenizer, train_bpe
from agentrl_jax.renderer import ChatRenderer, Renderer, TextRenderer

LETTERS = "abcdefg <>|/_.,!\n'"
CORPUS = [
    "s l a t e\nb b y g b\n",
    "the goal is at 8, 6.\n",
    "what is this? <b>bold</b>\n",
    LETTERS + "\n",
]
TEXT_RENDERERS = {
    "bytes": TextRenderer(byte_tokenizer()),
    "characters": TextRenderer(character_tokenizer(CORPUS)),
    "pairs": TextRenderer(train_bpe(CORPUS, 320)),
}
CHAT_RENDERERS = {
    "bytes": ChatRenderer(byte_tokenizer(chat=True)),
    "pairs": ChatRenderer(train_bpe(CORPUS, 320, chat=True)),
}

THINKING = """\
{%- for message in messages -%}
{%- set text = message['content'] -%}
{%- if message['role'] == 'assistant' and not loop.last and '</think>' in text -%}
{%- set text = text.split('</think>')[-1] -%}
{%- endif -%}
{{- '<|im_start|>' + message['role'] + '\\n' + text + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""


def chat_renderer(template: str) -> ChatRenderer:
    tokenizer = byte_tokenizer(chat=True)
    tokenizer.chat_template = template
    return ChatRenderer(tokenizer)


def decode_ids(renderer: Any, ids: Sequence[int] | np.ndarray) -> str:
    return renderer.codec.tokenizer.decode(list(map(int, ids)), skip_special_tokens=False)


# A conversation: the opening text, then turns of (action, whether its stop was sampled, replies).
environment_texts = st.text(LETTERS, max_size=12).map(lambda text: text + "\n")
turns_of_ids = st.lists(
    st.tuples(
        st.lists(st.integers(0, 10**6), max_size=6),
        st.booleans(),
        st.lists(environment_texts, max_size=2),
    ),
    max_size=4,
)
lines = st.text(LETTERS.replace("\n", ""), max_size=8)
turns_of_text = st.lists(st.tuples(lines, st.lists(environment_texts, max_size=2)), max_size=4)


def play_conversation(
    renderer: Renderer,
    opening: str,
    turns: Sequence[tuple[Sequence[int] | np.ndarray, Sequence[str]]],
) -> tuple[np.ndarray, list[Message]]:
    """The ids of a conversation as rollouts build them, call by call, and its messages."""
    history = [user(opening)]
    ids, call = renderer.render(history).ids, None
    for action, replies in turns:
        call = make_call(ids, action)
        history.append(renderer.parse(call.action))
        new = [user(text) for text in replies]
        continuation = renderer.continuation_ids(call, history, new)
        assert continuation is not None
        history += new
        ids = np.concatenate([call.ids, continuation])
    return ids, history


def sample_ids(renderer: Any, numbers: Sequence[int], has_stop: bool) -> list[int]:
    """Arbitrary ids, special tokens included, as a model may sample them before its stop.

    They are not a canonical tokenization; the stop itself and <unk> are left out.
    """
    tokenizer = renderer.codec.tokenizer
    allowed = [
        i
        for i in range(len(tokenizer))
        if i not in renderer.stop_ids and i != tokenizer.unk_token_id
    ]
    return [allowed[n % len(allowed)] for n in numbers] + (
        [renderer.stop_ids[0]] if has_stop else []
    )


def transcript(history: Sequence[Message]) -> str:
    return "".join(m.text if m.role == "user" else m.text + "\n" for m in history)


@pytest.mark.parametrize("name", TEXT_RENDERERS)
@given(opening=environment_texts, turns=turns_of_ids)
@settings(max_examples=100, deadline=None)
def test_a_transcript_decodes_to_the_text_of_the_conversation(name: str, opening: str, turns: list):
    renderer = TEXT_RENDERERS[name]
    ids, history = play_conversation(
        renderer,
        opening,
        [
            (sample_ids(renderer, numbers, has_stop), replies)
            for numbers, has_stop, replies in turns
        ],
    )
    assert decode_ids(renderer, ids) == transcript(history)


@pytest.mark.parametrize("name", TEXT_RENDERERS)
@given(opening=environment_texts, turns=turns_of_text)
@settings(max_examples=100, deadline=None)
def test_a_transcript_of_canonical_actions_has_the_ids_of_the_conversation(
    name: str, opening: str, turns: list
):
    renderer = TEXT_RENDERERS[name]
    ids, history = play_conversation(
        renderer,
        opening,
        [(renderer.action_ids(assistant(text)), replies) for text, replies in turns],
    )
    assert ids.tolist() == renderer.render(history).ids.tolist()
    assert [m.text for m in history if m.role == "assistant"] == [text for text, _ in turns]


def chatml(history: Sequence[Message]) -> str:
    return (
        "".join(f"<|im_start|>{m.role}\n{m.text}<|im_end|>\n" for m in history)
        + "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("name", CHAT_RENDERERS)
@given(opening=environment_texts, turns=turns_of_ids)
@settings(max_examples=60, deadline=None)
def test_a_chat_decodes_to_the_text_of_its_template(name: str, opening: str, turns: list):
    renderer = CHAT_RENDERERS[name]
    ids, history = play_conversation(
        renderer,
        opening,
        [
            (sample_ids(renderer, numbers, has_stop), replies)
            for numbers, has_stop, replies in turns
        ],
    )
    assert decode_ids(renderer, ids) == chatml(history)


@pytest.mark.parametrize("name", CHAT_RENDERERS)
@given(opening=environment_texts, turns=turns_of_text)
@settings(max_examples=60, deadline=None)
def test_a_chat_of_canonical_actions_has_the_ids_of_its_template(
    name: str, opening: str, turns: list
):
    renderer = CHAT_RENDERERS[name]
    ids, history = play_conversation(
        renderer,
        opening,
        [(renderer.action_ids(assistant(text)), replies) for text, replies in turns],
    )
    assert ids.tolist() == renderer.render(history).ids.tolist() and decode_ids(
        renderer, ids
    ) == chatml(history)


RENDERERS = [*TEXT_RENDERERS.values(), *CHAT_RENDERERS.values()]


@pytest.mark.parametrize("renderer", RENDERERS)
def test_a_turn_that_its_budget_truncated_is_closed_once(renderer: Any):
    history = [user("go\n")]
    prompt = renderer.render(history).ids
    full_action = renderer.action_ids(assistant("a b"))
    new = [user("no\n")]
    continuations = [
        renderer.continuation_ids(make_call(prompt, action), [*history, assistant("a b")], new)
        for action in (full_action, full_action[:-1])
    ]
    assert continuations[1].tolist() == [*renderer.stop_ids, *continuations[0].tolist()]


@pytest.mark.parametrize("renderer", RENDERERS)
def test_parsing_strips_the_stop_and_nothing_else(renderer: Any):
    stop = renderer.stop_ids[0]
    body = renderer.action_ids(assistant("a b "))[:-1]
    assert (
        renderer.parse(body)
        == renderer.parse(np.append(body, stop))
        == Message("assistant", "a b ")
    )
    assert (
        renderer.parse(np.array([stop]))
        == renderer.parse(np.zeros(0, int))
        == Message("assistant", "")
    )


@pytest.mark.parametrize("renderer", RENDERERS)
@given(text=st.text(LETTERS.replace("\n", ""), max_size=20))
@settings(max_examples=50, deadline=None)
def test_an_action_is_parsed_to_what_was_rendered(renderer: Any, text: str):
    ids = renderer.action_ids(assistant(text))
    assert renderer.parse(ids).text == text and ids[-1] in renderer.stop_ids


fragments = [
    "<|im_end|>",
    "<|im_start|>",
    "<pad>",
    "<eos>",
    "<unk>",
    "<",
    "|",
    "im_end",
    "|>",
    "<|",
    ">",
    "assistant\n",
    " ",
    "\n",
    "a",
]
hostile_texts = st.lists(st.sampled_from(fragments), max_size=8).map("".join)


@pytest.mark.parametrize("name", TEXT_RENDERERS)
@given(text=hostile_texts)
@settings(max_examples=100, deadline=None)
def test_no_text_is_a_special_token_in_a_transcript(name: str, text: str):
    renderer: Any = TEXT_RENDERERS[name]
    specials = set(renderer.codec.tokenizer.all_special_ids) - {
        renderer.codec.tokenizer.unk_token_id
    }
    prompt = renderer.render([user("go\n")]).ids
    continuation = renderer.continuation_ids(
        make_call(prompt, renderer.action_ids(assistant("a"))),
        [user("go\n"), assistant("a")],
        [user(text)],
    )
    for ids in (
        renderer.render([user(text)]).ids,
        renderer.render([assistant(text)]).ids,
        renderer.action_ids(assistant(text)),
        continuation,
    ):
        assert not specials & set(ids.tolist())


@pytest.mark.parametrize("name", CHAT_RENDERERS)
@pytest.mark.parametrize("role", ["user", "system", "tool"])
@given(text=hostile_texts)
@settings(max_examples=60, deadline=None)
def test_no_environment_text_is_a_special_token_in_a_chat(name: str, role: Any, text: str):
    renderer: Any = CHAT_RENDERERS[name]
    tokenizer = renderer.codec.tokenizer
    start, end = tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])

    def specials(ids: np.ndarray) -> list[int]:
        return [i for i in ids.tolist() if i in tokenizer.all_special_ids]

    message = Message(role, text)
    assert specials(renderer.render([message]).ids) == [start, end, start]
    prompt = renderer.render([user("go")]).ids
    history = [user("go"), assistant("a")]
    continuation = renderer.continuation_ids(
        make_call(prompt, renderer.action_ids(history[1])), history, [message]
    )
    assert specials(continuation) == [start, end, start]
    decoded = decode_ids(renderer, continuation)
    assert decoded.split(f"{role}\n", 1)[1].rsplit("<|im_end|>", 1)[0] == text


def test_special_tokens_in_environment_texts_are_plain_text():
    text = decode_ids(
        CHAT_RENDERERS["bytes"], CHAT_RENDERERS["bytes"].render([user("x<|im_end|>y<pad>")]).ids
    )
    assert text == "<|im_start|>user\nx<|im_end|>y<pad><|im_end|>\n<|im_start|>assistant\n"
    parts = Message("user", (TextPart("x<|im_"), TextPart("end|>")))
    assert (
        decode_ids(CHAT_RENDERERS["bytes"], CHAT_RENDERERS["bytes"].render([parts]).ids)
        == "<|im_start|>user\nx<|im_end|><|im_end|>\n<|im_start|>assistant\n"
    )


def continuation_after(
    renderer: ChatRenderer, text: str, action: Sequence[int] | None = None
) -> np.ndarray | None:
    history = [user("go"), assistant(text)]
    ids = renderer.action_ids(history[1]) if action is None else action
    return renderer.continuation_ids(
        make_call(renderer.render(history[:1]).ids, ids), history, [user("next")]
    )


def test_there_is_no_continuation_where_a_template_strips_earlier_thinking():
    renderer = chat_renderer(THINKING)
    assert continuation_after(renderer, "<think>left or right?</think>left") is None
    plain = continuation_after(renderer, "left")
    assert (
        plain is not None
        and decode_ids(renderer, plain)
        == "\n<|im_start|>user\nnext<|im_end|>\n<|im_start|>assistant\n"
    )
    # The prompt is then the template's rendering of the whole conversation.
    history = [user("go"), assistant("<think>left or right?</think>left"), user("next")]
    assert "<think>" not in decode_ids(renderer, renderer.render(history).ids)


def test_there_is_no_continuation_where_a_template_trims_messages():
    renderer = chat_renderer(
        THINKING.replace("set text = message['content']", "set text = message['content'] | trim")
    )
    assert (
        continuation_after(renderer, "left ") is None
        and continuation_after(renderer, " left") is None
        and continuation_after(renderer, "left") is not None
    )


def test_there_is_no_continuation_where_a_template_ends_turns_otherwise():
    renderer = chat_renderer(THINKING.replace("'<|im_end|>\\n' -}}", "'\\n' -}}"))
    # The sampled stop does not occur in the template's text.
    assert continuation_after(renderer, "left") is None
    truncated = continuation_after(
        renderer, "left", renderer.action_ids(assistant("left"))[:-1].tolist()
    )
    assert truncated is not None and decode_ids(renderer, truncated).startswith(
        "\n<|im_start|>user"
    )


def test_rendered_ids_cannot_be_changed_behind_the_cache():
    renderer = TEXT_RENDERERS["bytes"]
    first = renderer.render([user("abc")]).ids
    first[0] = 0
    assert renderer.render([user("abc")]).ids.tolist() == list(b"abc")
    with pytest.raises(ValueError, match="read-only"):
        CHAT_RENDERERS["bytes"].render([user("abc")]).ids[0] = 0


@pytest.mark.parametrize("renderer", RENDERERS)
def test_an_image_is_refused(renderer: Any):
    image_message, history = (
        Message("user", (TextPart("look"), ImagePart("data:image/png;base64,"))),
        [user("go"), assistant("a")],
    )
    with pytest.raises(UserError, match="does not show images"):
        renderer.render([image_message])
    with pytest.raises(UserError, match="does not show images"):
        renderer.continuation_ids(
            make_call(renderer.render(history[:1]).ids, renderer.action_ids(history[1])),
            history,
            [image_message],
        )


def test_unsupported_arguments_are_refused():
    with pytest.raises(UserError, match="does not support tools"):
        TEXT_RENDERERS["bytes"].render([user("go")], [{"type": "function"}])
    with pytest.raises(UserError, match="no chat template"):
        ChatRenderer(byte_tokenizer())
    with pytest.raises(UserError, match="must be one token of this tokenizer, not 2"):
        TextRenderer(byte_tokenizer(), stop="\n\n")


def test_another_stop_ends_a_transcripts_actions():
    renderer = TextRenderer(byte_tokenizer(), stop=".")
    assert renderer.stop_ids == (ord("."),)
    assert (
        decode_ids(renderer, renderer.render([user("go "), assistant("left"), user(" wall ")]).ids)
        == "go left. wall "
    )
    assert renderer.parse(np.array(list(b"left."))).text == "left"
    # A line feed is then a letter like any other.
    ids, history = play_conversation(
        renderer, "go ", [(list(b"left\n"), [" wall "]), (list(b"up\n."), [])]
    )
    assert (
        decode_ids(renderer, ids) == "go left\n. wall up\n."
        and renderer.render(history).ids.tolist() == ids.tolist()
    )
