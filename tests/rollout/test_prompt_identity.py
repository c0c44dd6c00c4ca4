"""A prompt is the earlier prompt, the sampled action and what was added, token by token, whatever
the policy samples and the tools answer.
"""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fixtures import make_call

from agentrl_jax.context import FullHistory
from agentrl_jax.envs.code.protocols import PROTOCOLS
from agentrl_jax.messages import Message, user
from agentrl_jax.models.hf.shipped import BASE_MODEL
from agentrl_jax.models.tokenizers import FolderTokenizer
from agentrl_jax.renderer import ChatFormat, ChatRenderer
from agentrl_jax.rollout.agent import Agent, PromptBuilder
from agentrl_jax.tools import tool
from agentrl_jax.trajectories import Sampling, Turn

MARKS = (
    "<code>",
    "</code>",
    "```python\n",
    "\n```",
    "<|im_end|>",
    "<tool_call>",
    "</answer>",
    "\n",
)
TEXT = st.lists(st.one_of(st.sampled_from(MARKS), st.text(max_size=8)), max_size=6).map("".join)


@tool
def python(code: str) -> str:
    """Run code."""
    return code


@functools.cache
def make_renderer(protocol: str) -> ChatRenderer:
    form = ChatFormat(tool_format=PROTOCOLS[protocol].tool_format)
    renderer = form(FolderTokenizer(BASE_MODEL)(()))
    assert isinstance(renderer, ChatRenderer)
    return renderer


@st.composite
def action(draw: st.DrawFn, renderer: ChatRenderer) -> np.ndarray:
    """Any ids, or those of a text, with the stop token or cut off before it."""
    (stop, *_) = renderer.stop_ids
    written = draw(st.one_of(
        st.lists(st.integers(0, 4000), max_size=12),
        TEXT.map(lambda text: renderer.codec.encode_escaped(text).tolist()),
    ))  # fmt: skip
    ids = [i for i in written if i not in renderer.stop_ids]
    return np.array([*ids, stop] if draw(st.booleans()) or not ids else ids, np.int32)


@pytest.mark.parametrize("protocol", ["boxed", "retool", "artist", "simpletir", "r1ci", "plain"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_each_prompt_extends_the_last_one_and_its_action(protocol: str, data: st.DataObject):
    renderer, tools = make_renderer(protocol), (python.schema,)
    builder = PromptBuilder(
        Agent("policy", renderer, FullHistory(), Sampling()), (user("Go."),), tools
    )
    turns: list[Turn] = []
    expected = np.zeros(0, np.int32)
    for i in range(4):
        prompt, parent = builder.action_prompt(turns)
        assert (parent is None) == (i == 0)
        np.testing.assert_array_equal(prompt[: len(expected)], expected)
        call = make_call(prompt, data.draw(action(renderer)))
        message = renderer.parse(call.action, tools)
        builder.add_call(call, message)
        expected = np.concatenate([call.prompt, call.action])
        answer = data.draw(TEXT)
        replies = [
            Message("tool", answer, tool_call_id=request.id) for request in message.tool_calls
        ]
        turns.append(Turn((), message, tuple(replies or [user(answer)]), 0.0, {}, False, False, {}))
