"""A client's messages are plain text; what the model sampled keeps its tokens as it comes back."""

from typing import Any

import numpy as np
from support.chat_families import FAMILIES
from support.fake_engines import FakeEngine
from support.fixtures import make_call

from agentrl_jax.capture.agent_table import AgentTable
from agentrl_jax.capture.call_tree import CallTree, PreparedRequest
from agentrl_jax.capture.requests import parse_chat_request
from agentrl_jax.context import FullHistory
from agentrl_jax.messages import assistant, user
from agentrl_jax.renderer import ChatRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.trajectories import Sampling

RENDERER = ChatRenderer(FAMILIES["Qwen3"].tokenizer())
AGENT = Agent("policy", RENDERER, FullHistory(), Sampling(budget=12))
THINK, END_THINK = RENDERER.codec.tokenizer.convert_tokens_to_ids(["<think>", "</think>"])
THOUGHT = "<think>\nso\n</think>\n\n"
SAMPLED = f"{THOUGHT}left"


def call_tree(max_calls: int = 0) -> CallTree:
    table = AgentTable({"policy": AGENT}, {"policy": FakeEngine()}, max_calls=max_calls)
    return CallTree(table)


def prepare(tree: CallTree, *messages: tuple[str, str]) -> PreparedRequest:
    body: Any = [{"role": role, "content": text} for role, text in messages]
    request = parse_chat_request({"model": "policy", "messages": body})
    return tree.prepare(request, tree.make_prompt(request))


def answer(tree: CallTree, *messages: tuple[str, str], word: str = "left") -> str:
    """The answer to a request, for which the model samples a thought and a word."""
    prepared = prepare(tree, *messages)
    action = [THINK, *b"\nso\n", END_THINK, *f"\n\n{word}".encode(), *RENDERER.stop_ids]
    call = make_call(prepared.prompt.ids, np.array(action, np.int32))
    return tree.add(prepared, 0, call).message.text


def prompt_ids(tree: CallTree, *messages: tuple[str, str]) -> list[int]:
    return prepare(tree, *messages).prompt.ids.tolist()


def test_a_client_s_assistant_message_is_plain_text():
    ids = prompt_ids(call_tree(), ("user", "a"), ("assistant", SAMPLED), ("user", "b"))
    assert THINK not in ids and "<think>\nso\n</think>" in RENDERER.codec.decode(tuple(ids))


def test_a_sampled_message_that_is_rendered_anew_is_the_model_s_own():
    tree = call_tree()
    assert answer(tree, ("user", "a")) == SAMPLED
    sampled = assistant(SAMPLED).replace(raw_text=SAMPLED)
    # Qwen3's template strips earlier thoughts, so this prompt extends no call.
    ids = prompt_ids(tree, ("user", "a"), ("assistant", SAMPLED), ("user", "b"))
    assert ids == RENDERER.render([user("a"), sampled, user("b")]).ids.tolist()
    assert "so" not in RENDERER.codec.decode(tuple(ids))
    edited = prompt_ids(tree, ("user", "A"), ("assistant", SAMPLED), ("user", "b"))
    assert edited == RENDERER.render([user("A"), sampled, user("b")]).ids.tolist()
    # Another text than the sampled one is the client's.
    other = SAMPLED.replace("left", "right")
    assert "so" in RENDERER.codec.decode(
        tuple(prompt_ids(tree, ("user", "a"), ("assistant", other), ("user", "b")))
    )


def test_a_forgotten_message_is_plain_text():
    tree = call_tree(max_calls=1)
    answer(tree, ("user", "a"))
    answer(tree, ("user", "b"), word="right")
    for word, is_shown in (("left", True), ("right", False)):
        ids = prompt_ids(tree, ("user", "a"), ("assistant", THOUGHT + word), ("user", "e"))
        assert ("so" in RENDERER.codec.decode(tuple(ids))) == is_shown and THINK not in ids
