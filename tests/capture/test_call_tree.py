"""Prompts of an episode's calls share their memory where they extend each other."""

import itertools

import numpy as np
from support.chat_families import FAMILIES
from support.fake_engines import FakeEngine
from support.fixtures import make_call

from agentrl_jax.capture.agent_table import AgentTable
from agentrl_jax.capture.call_tree import CallTree
from agentrl_jax.capture.requests import parse_chat_request
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
