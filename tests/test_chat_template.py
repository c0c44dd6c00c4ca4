"""Conversations with tools and thinking through the chat templates of published families.

What rollouts build call by call is what the template writes of the whole conversation, and the
template's work is linear in the episode's length.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.chat_families import FAMILIES
from support.fixtures import make_call

from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, ToolCall, assistant, user
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import ChatFormat, ChatRenderer

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"The tool {name}.",
            "parameters": {
                "type": "object",
                "properties": {"x": {"type": "string"}},
                "required": ["x"],
            },
        },
    }
    for name in ("find", "add")
]
WITH_TOOLS = [name for name, family in FAMILIES.items() if family.knows_tools]


def renderer_of(name: str, **arguments: Any) -> ChatRenderer:
    family = FAMILIES[name]
    return ChatFormat(tool_format=family.tool_format, **arguments)(family.tokenizer())


RENDERERS = {name: renderer_of(name) for name in FAMILIES}


def decode(renderer: ChatRenderer, ids: Sequence[int] | np.ndarray) -> str:
    return renderer.codec.decode(tuple(map(int, ids)))


def template_text(renderer: ChatRenderer, messages: Sequence[dict[str, Any]], tools: Any) -> str:
    """The conversation by the tokenizer's own `apply_chat_template`."""
    return renderer.codec.tokenizer.apply_chat_template(
        list(messages), tools=tools or None, tokenize=False, add_generation_prompt=True
    )


def as_written(message: Message) -> dict[str, Any]:
    """A message whose calls stand in its text, as the policy wrote them."""
    text = message.text if message.raw_text is None else message.raw_text
    return {"role": message.role, "content": text}


def as_structured(message: Message) -> dict[str, Any]:
    """A message whose calls are structured, as Hugging Face's templates take them."""
    data: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.tool_calls:
        data["tool_calls"] = [
            {
                "type": "function",
                "function": {"name": call.name, "arguments": json.loads(call.arguments)},
            }
            for call in message.tool_calls
        ]
    return data


class Rollout:
    """The prompts of an episode, as an agent's session builds them."""

    def __init__(self, renderer: ChatRenderer, opening: Sequence[Message], tools: Any = ()) -> None:
        self.renderer, self.tools, self.history = renderer, tools, list(opening)
        self.ids = renderer.render(self.history, tools).ids
        self.extended: list[bool] = []

    def turn(self, action: np.ndarray, new: Sequence[Message]) -> None:
        call = make_call(self.ids, action)
        self.history.append(self.renderer.parse(action, self.tools))
        bridge = self.renderer.continuation_ids(call, self.history, new, self.tools)
        self.history += new
        self.extended.append(bridge is not None)
        if bridge is None:
            self.ids = self.renderer.render(self.history, self.tools).ids
        else:
            self.ids = np.concatenate([call.ids, bridge])


words = st.text("ab {}<>\"'é", min_size=1, max_size=6).map(str.strip).filter(bool)
thoughts = st.sampled_from(["", "<think>\nso\n</think>\n\n", "<think>so</think>", "<think>\n\n"])
argument_values = st.text('ab"\\ \né', max_size=5)
calls = st.builds(
    lambda name, value: ToolCall("", name, json.dumps({"x": value}, ensure_ascii=False)),
    st.sampled_from(["find", "add"]),
    argument_values,
)


@st.composite
def turns(draw: Any, max_calls: int) -> list[tuple[str, list[ToolCall], bool]]:
    """(text, calls, whether its stop is sampled); a turn without calls is followed by a user."""
    turn = st.tuples(
        st.builds(lambda thought, text, space: thought + text + space, thoughts, words, spaces),
        st.lists(calls, max_size=max_calls),
        st.booleans(),
    )
    return draw(st.lists(turn, min_size=1, max_size=6))


spaces = st.sampled_from(["", "", "", " ", "\n"])


def play(renderer: ChatRenderer, opening: Sequence[Message], script: Any, tools: Any) -> Rollout:
    rollout = Rollout(renderer, opening, tools)
    for number, (text, turn_calls, has_stop) in enumerate(script):
        if turn_calls and renderer.tool_format == FAMILIES["Llama 3.1"].tool_format:
            text = ""  # its calls are the whole message
        written = renderer.action_ids(Message("assistant", text, tuple(turn_calls)))
        results = [Message("tool", f"result {number}.{i}") for i in range(len(turn_calls))]
        rollout.turn(written if has_stop else written[:-1], results or [user(f"go {number}")])
    return rollout


@pytest.mark.parametrize("name", WITH_TOOLS)
@pytest.mark.parametrize("has_system", [False, True])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_an_episode_with_tools_is_the_template_s_text(name: str, has_system: bool, data: Any):
    renderer = RENDERERS[name]
    opening = [*([Message("system", "be brief")] if has_system else []), user("go")]
    script = data.draw(turns(max_calls=1 if name == "Llama 3.1" else 3))
    rollout = play(renderer, opening, script, TOOLS)
    expected = template_text(renderer, [as_written(m) for m in rollout.history], TOOLS)
    assert decode(renderer, rollout.ids) == expected
    parsed = [m for m in rollout.history if m.role == "assistant"]
    assert [[(c.name, c.arguments) for c in m.tool_calls] for m in parsed] == [
        [(c.name, c.arguments) for c in turn_calls] for _, turn_calls, _ in script
    ]


@pytest.mark.parametrize("name", WITH_TOOLS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_canonical_calls_have_the_text_and_ids_of_structured_ones(name: str, data: Any):
    renderer = RENDERERS[name]
    text = "" if name == "Llama 3.1" else data.draw(st.sampled_from(["", "I look.", "é {"]))
    turn_calls = data.draw(st.lists(calls, min_size=1, max_size=1 if name == "Llama 3.1" else 3))
    rollout = play(renderer, [user("go")], [(text, turn_calls, True), ("done", [], True)], TOOLS)
    structured = [as_structured(m) for m in rollout.history]
    assert decode(renderer, rollout.ids) == template_text(renderer, structured, TOOLS)
    assert rollout.ids.tolist() == renderer.render(rollout.history, TOOLS).ids.tolist()
    assert rollout.extended == [True, True]
    imported = [m.replace(raw_text=None) for m in rollout.history]
    assert renderer.render(imported, TOOLS).ids.tolist() == rollout.ids.tolist()


@pytest.mark.parametrize("name", FAMILIES)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_an_episode_without_tools_is_the_template_s_text(name: str, data: Any):
    renderer = RENDERERS[name]
    rollout = play(renderer, [user("go")], data.draw(turns(max_calls=0)), ())
    expected = template_text(renderer, [as_written(m) for m in rollout.history], ())
    assert decode(renderer, rollout.ids) == expected


def hermes(text: str = "") -> str:
    return text + '<tool_call>\n{"name": "find", "arguments": {"x": "a"}}\n</tool_call>'


THOUGHT = "<think>\nso\n</think>\n\n"


def test_qwen3_keeps_thinking_within_a_query_and_strips_it_after():
    renderer = RENDERERS["Qwen3"]
    rollout = Rollout(renderer, [user("go")], TOOLS)
    action = renderer.action_ids
    rollout.turn(action(assistant(hermes(THOUGHT))), [Message("tool", "1")])
    rollout.turn(action(assistant(hermes(THOUGHT))), [Message("tool", "2")])
    assert (
        rollout.extended == [True, True] and decode(renderer, rollout.ids).count("<think>\nso") == 2
    )
    rollout.turn(action(assistant("plain")), [user("next")])  # it thought before this turn
    assert rollout.extended[-1] is False and decode(renderer, rollout.ids).count("<think>\nso") == 0
    rollout.turn(action(assistant("plain")), [user("last")])
    assert rollout.extended[-1] is True
    rollout.turn(action(assistant(THOUGHT + "x")), [user("more")])
    assert rollout.extended[-1] is False


@pytest.mark.parametrize("name", ["Qwen2.5", "Llama 3.1", "Gemma 3"])
def test_other_families_keep_thinking(name: str):
    renderer = RENDERERS[name]
    rollout = Rollout(renderer, [user("go")])
    for _ in range(3):
        rollout.turn(renderer.action_ids(assistant(THOUGHT + "x")), [user("next")])
    assert (
        rollout.extended == [True] * 3 and decode(renderer, rollout.ids).count("<think>\nso") == 3
    )


class CountingTokenizer:
    """A tokenizer that counts the characters its template writes."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self.renderings, self.characters = tokenizer, 0, 0

    def apply_chat_template(self, *args: Any, **kwargs: Any) -> str:
        text = self._tokenizer.apply_chat_template(*args, **kwargs)
        self.renderings, self.characters = self.renderings + 1, self.characters + len(text)
        return text

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._tokenizer(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def template_work(name: str, num_turns: int, has_tools: bool) -> tuple[int, int]:
    """Renderings and characters of an episode, after a first one that checks the template."""
    family = FAMILIES[name]
    tokenizer = CountingTokenizer(family.tokenizer())
    renderer = ChatRenderer(tokenizer, tool_format=family.tool_format)
    call = ToolCall("", "find", '{"x": "a"}')
    turn = ("", [call], True) if has_tools else ("left", [], True)
    tools = TOOLS if has_tools else ()
    play(renderer, [user("go")], [turn], tools)
    tokenizer.renderings = tokenizer.characters = 0
    play(renderer, [user("go")], [turn] * num_turns, tools)
    return tokenizer.renderings, tokenizer.characters


@pytest.mark.parametrize(
    ("name", "has_tools"),
    [*((name, True) for name in WITH_TOOLS), *((name, False) for name in FAMILIES)],
)
def test_template_work_is_linear_in_the_episode(name: str, has_tools: bool):
    work = [template_work(name, n, has_tools) for n in (32, 64)]
    assert [renderings for renderings, _ in work] == [65, 129]  # two a turn, and the opening
    per_turn = [characters / n for (_, characters), n in zip(work, (32, 64))]
    assert per_turn[1] <= 1.05 * per_turn[0]


NUMBERED = """\
{%- for message in messages -%}
{{- loop.index | string + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- (messages | length + 1) | string + 'assistant\\n' -}}
{%- endif -%}"""


def test_a_template_that_reads_the_whole_conversation_is_rendered_in_full():
    tokenizer = byte_tokenizer(chat=True)
    tokenizer.chat_template = NUMBERED
    renderer = ChatRenderer(tokenizer)
    rollout = play(renderer, [user("go")], [("a", [], True), ("b", [], False), ("c", [], True)], ())
    expected = template_text(renderer, [as_written(m) for m in rollout.history], ())
    assert decode(renderer, rollout.ids) == expected and rollout.extended == [True] * 3


def test_a_template_without_tools_is_refused_or_shows_them_as_text():
    with pytest.raises(UserError, match=r"does not show tools.*tools_as_text"):
        RENDERERS["Gemma 3"].render([user("go")], TOOLS)
    renderer = renderer_of("Gemma 3", tools_as_text=True)
    script = [("", [ToolCall("", "find", '{"x": "a"}')] * 2, True), ("done", [], True)]
    rollout = play(renderer, [Message("system", "be brief"), user("go")], script, TOOLS)
    assert rollout.extended == [True, True]
    assert rollout.ids.tolist() == renderer.render(rollout.history, TOOLS).ids.tolist()
    call = '<tool_call>\n{"name": "find", "arguments": {"x": "a"}}\n</tool_call>'
    assert decode(renderer, rollout.ids).split("be brief")[1] == (
        "\n\ngo<end_of_turn>\n<start_of_turn>model\n"
        f"{call}\n{call}<end_of_turn>\n<start_of_turn>user\n"
        "<tool_response>\nresult 0.0\n</tool_response>\n"
        "<tool_response>\nresult 0.1\n</tool_response><end_of_turn>\n<start_of_turn>model\n"
        "done<end_of_turn>\n<start_of_turn>user\ngo 1<end_of_turn>\n<start_of_turn>model\n"
    )
    described = decode(renderer, rollout.ids).split("be brief")[0]
    assert all(json.dumps(tool["function"]) in described for tool in TOOLS)
    assert described.endswith(
        'A call is written like this:\n<tool_call>\n{"name": "find", "arguments": {"x": "text"}}\n'
        "</tool_call>\n\n"
    )


def test_a_conversation_that_the_template_refuses_is_a_user_error():
    with pytest.raises(UserError, match=r"refuses the conversation.*must alternate"):
        RENDERERS["Gemma 3"].render([user("a"), user("b")])


def test_a_malformed_call_is_shown_as_it_was_written():
    renderer = RENDERERS["Qwen2.5"]
    rollout = Rollout(renderer, [user("go")], TOOLS)
    text = 'I try.\n<tool_call>\n{"name": "find", "arguments": {"x": \n</tool_call>'
    rollout.turn(renderer.action_ids(assistant(text)), [Message("tool", "Error")])
    (call,) = rollout.history[1].tool_calls
    assert call.error and rollout.history[1].text == "I try."
    assert rollout.extended == [True] and text in decode(renderer, rollout.ids)
    assert rollout.ids.tolist() == renderer.render(rollout.history, TOOLS).ids.tolist()
