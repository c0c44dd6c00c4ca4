"""Prompts of an episode's calls share their memory where they extend each other."""

import itertools

import numpy as np
import pytest
from support.chat_families import FAMILIES
from support.fake_engines import FakeEngine
from support.fixtures import make_call
from support.memory import measured

from agentrl_jax.capture.agent_table import AgentTable
from agentrl_jax.capture.call_tree import CallTree
from agentrl_jax.capture.requests import parse_chat_request, parse_text_request
from agentrl_jax.context import FullHistory
from agentrl_jax.renderer import ChatRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.trajectories import Call, Sampling

RENDERER = ChatRenderer(FAMILIES["Qwen2.5"].tokenizer())
AGENT = Agent("policy", RENDERER, FullHistory(), Sampling(budget=12))


def conversation(tree: CallTree, name: str, turns: int) -> list[Call]:
    """The calls of a conversation."""
    messages, calls = [{"role": "user", "content": name}], list[Call]()
    for turn in range(turns):
        request = parse_chat_request({"model": "policy", "messages": messages})
        prepared = tree.prepare(request, tree.make_prompt(request))
        action = np.array([*f"move {turn}".encode(), *RENDERER.stop_ids], np.int32)
        calls.append(make_call(prepared.prompt.ids, action))
        text = tree.add(prepared, 0, calls[-1]).message.text
        messages += [
            {"role": "assistant", "content": text},
            {"role": "user", "content": f"state {turn}"},
        ]
    return calls


def continued_text(tree: CallTree, text: str, turns: int) -> list[Call]:
    """The calls of a text that is completed again and again."""
    calls = list[Call]()
    for turn in range(turns):
        request = parse_text_request({"model": "policy", "prompt": text})
        prepared = tree.prepare(request, tree.make_prompt(request))
        action = np.array([*f"move {turn}".encode()], np.int32)
        calls.append(make_call(prepared.prompt.ids, action))
        text += tree.add(prepared, 0, calls[-1]).message.text + f" state {turn} "
    return calls


def test_the_prompts_of_a_conversation_take_memory_for_what_they_add():
    tree = CallTree(AgentTable({"policy": AGENT}, {"policy": FakeEngine()}))
    calls = conversation(tree, "go", 64)
    assert all(call.extends(parent) for parent, call in itertools.pairwise(calls))
    owners = {id(x): x for call in calls if (x := call.prompt.base) is not None}
    memory, longest = sum(x.nbytes for x in owners.values()), calls[-1].prompt.nbytes
    assert memory < 5 * longest < sum(call.prompt.nbytes for call in calls) / 4


def test_branches_of_a_conversation_keep_their_own_prompts():
    tree = CallTree(AgentTable({"policy": AGENT}, {"policy": FakeEngine()}))
    first = [call.prompt.tolist() for call in conversation(tree, "go", 6)]
    node = tree.nodes[2]
    request = parse_chat_request(
        {
            "model": "policy",
            "messages": [
                {"role": message.role, "content": message.text} for message in node.history
            ]
            + [{"role": "user", "content": "elsewhere"}],
        }
    )
    branch = tree.prepare(request, tree.make_prompt(request))
    assert branch.prompt.parent is node
    assert branch.prompt.ids[: node.call.length].tolist() == node.call.ids.tolist()
    assert [node.call.prompt.tolist() for node in tree.nodes] == first
    assert branch.buffer is not tree.nodes[-1].buffer


@pytest.mark.parametrize("play", [conversation, continued_text])
def test_an_episode_takes_memory_for_what_its_calls_add(play):
    def make_tree(turns: int) -> CallTree:
        tree = CallTree(AgentTable({"policy": AGENT}, {"policy": FakeEngine()}))
        play(tree, "go", turns)
        return tree

    make_tree(2)  # what is cached once
    (_, short, _), (_, long, _) = (measured(lambda n=n: make_tree(n)) for n in (32, 128))
    assert long < 1.1 * 128 / 32 * short


def test_a_text_is_continued_by_text_and_by_token_ids():
    tree = CallTree(AgentTable({"policy": AGENT}, {"policy": FakeEngine()}))
    calls = continued_text(tree, "go", 3)
    assert all(call.extends(parent) for parent, call in itertools.pairwise(calls))
    last = tree.nodes[-1]
    assert last.text is not None and "".join(last.text).startswith("gomove 0")
    ids = [*last.call.ids.tolist(), 5]
    request = parse_text_request({"model": "policy", "prompt": ids})
    prompt = tree.make_prompt(request)
    assert prompt.parent is last and prompt.ids.tolist() == ids
    assert prompt.text is not None
    assert "".join(prompt.text) == RENDERER.codec.decode(tuple(ids))
    history = [*(message.text for message in last.history), RENDERER.codec.decode((5,))]
    assert [message.text for message in prompt.history] == history
