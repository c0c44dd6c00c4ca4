"""Environments with tools: what calls are answered, and whole episodes through a chat template."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from support.chat_families import FAMILIES
from support.fake_engines import FakeEngine
from support.fixtures import make_call
from support.untimed import without_times

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.context import FullHistory, LastMessages
from agentrl_jax.environment import make
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.learner.sequences import collate, token_identity
from agentrl_jax.messages import Message, ToolCall, action_from_json, assistant, user
from agentrl_jax.renderer import ChatRenderer, TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.teacher_forcing import add_demonstration_calls
from agentrl_jax.storage import demonstration_file, trajectory_json
from agentrl_jax.tool_environment import ToolEnvironment, tool_action
from agentrl_jax.tools import Tool, tool
from agentrl_jax.trajectories import Call, Group, RandomKey, Sampling, Trajectory
from agentrl_jax.workers.pool import InlinePool, Task, WorkerPool
from agentrl_jax.workers.process_pool import ProcessPool
from agentrl_jax.workers.validation import validate_reset

TASK = Task("agentrl_jax.envs:agentrl/PriceList-v0", 5)
RENDERERS = {
    name: ChatRenderer(family.tokenizer(), tool_format=family.tool_format)
    for name, family in FAMILIES.items()
    if family.knows_tools
}
RENDERER = RENDERERS["Qwen3"]


class Counter(ToolEnvironment):
    """Count to three, then say so."""

    horizon = 4

    def _tools(self) -> Sequence[Tool | Callable[..., Any]]:
        return self.add, tool(self.fail, max_characters=20)

    def add(self, amount: int) -> int:
        """Add.

        Args:
            amount: how much
        """
        self.count += amount
        return self.count

    def fail(self) -> None:
        """Fail."""
        raise EnvironmentFailure("the world is gone")

    def _reset(self, options: dict[str, Any]) -> Any:
        self.count = 0
        return (user("count"),), {"size": 3}

    def _step(self, text: str) -> Any:
        return (), float(self.count == 3), True, False, {"success": self.count == 3}


def calls(*named: tuple[str, dict[str, Any]]) -> Message:
    return Message(
        "assistant",
        tool_calls=tuple(
            ToolCall(f"id{i}", name, json.dumps(arguments))
            for i, (name, arguments) in enumerate(named)
        ),
    )


def test_calls_are_answered_in_order_and_a_message_without_is_the_answer():
    env = Counter()
    opening, info = env.reset(seed=0)
    assert opening == (user("count"),) and info["size"] == 3
    assert [t["function"]["name"] for t in info["tools"]] == ["add", "fail"]
    observation, reward, *over, info = env.step(
        calls(("add", {"amount": 1}), ("add", {"amount": 2}))
    )
    assert observation == (
        Message("tool", "1", tool_call_id="id0"),
        Message("tool", "3", tool_call_id="id1"),
    )
    assert reward == 0 and over == [False, False]
    counts = {"tool_calls": 2, "tool_errors": 0, "formatted": True, "void": False}
    assert info == {"rewards": {"task": 0.0}, **counts}
    info = {"rewards": {"task": 1.0}, "success": True, "void": False}
    assert env.step("done") == ((), 1.0, True, False, info)
    assert env.render() == 'count\n\nadd({"amount": 1})\nadd({"amount": 2})\n1\n3\ndone\n'


def test_broken_calls_are_answered_beside_good_ones():
    env = Counter()
    env.reset(seed=0)
    good = ToolCall("a", "add", '{"amount": 2}')
    broken = ToolCall("b", "", "{", "this is not valid JSON")
    unknown, wrong = ToolCall("c", "sub", "{}"), ToolCall("d", "add", '{"amount": "x"}')
    observation, *_, info = env.step(Message("assistant", "", (good, broken, unknown, wrong)))
    assert [(m.role, m.tool_call_id, m.text) for m in observation] == [
        ("tool", "a", "2"),
        ("tool", "b", "Error: this tool call cannot be read: this is not valid JSON"),
        ("tool", "c", "Error: there is no tool 'sub'; there are add, fail"),
        ("tool", "d", 'Error: amount must be an integer, not "x"'),
    ]
    assert (info["tool_calls"], info["tool_errors"], info["formatted"]) == (4, 3, False)


def test_calls_are_limited_and_an_endless_episode_is_truncated_without_success():
    env = Counter()
    env.reset(seed=0)
    observation, *_ = env.step(calls(*[("add", {"amount": 1})] * 10))
    assert env.count == 8 and observation[-1].text == "Error: at most 8 calls are run at a time"
    for _ in range(3):
        *_, terminated, truncated, info = env.step(calls(("add", {"amount": 1})))
    assert (terminated, truncated, info["success"]) == (False, True, False)


class Talk(Counter):
    """Answers do not end it."""

    def _step(self, text: str) -> Any:
        return (user("go on"),), 0.0, False, False, {}


def test_the_horizon_counts_turns_with_and_without_calls():
    env = Talk()
    env.reset(seed=0)
    actions = ["a", calls(("add", {"amount": 1})), "", "b"]
    ends = [env.step(action)[3:] for action in actions]
    assert [truncated for truncated, _ in ends] == [False, False, False, True]
    assert [info["void"] for _, info in ends] == [False, False, True, False]
    assert ends[-1][1]["success"] is False


def test_a_failure_of_the_environment_in_a_tool_is_not_the_policy_s():
    env = Counter()
    env.reset(seed=0)
    with pytest.raises(EnvironmentFailure, match="the world is gone"):
        env.step(calls(("fail", {})))


BAD_TYPE = [{"function": {"name": "f", "parameters": {"properties": {"x": {"type": 3}}}}}]


def test_tools_of_another_form_are_refused():
    for tools in (3, ["add"], [{"type": "function"}], [{"function": {"name": 3}}], BAD_TYPE):
        with pytest.raises(EnvironmentFailure, match="OpenAI's JSON format"):
            validate_reset(((user("go"),), {"tools": tools}))


class TextsEngine(FakeEngine):
    """Each call returns the next of some texts; an unfinished one lacks its stop."""

    def __init__(self, renderer: ChatRenderer, *texts: str) -> None:
        self.left, self.renderer = list(texts), renderer

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Any = (),
    ) -> "Future[Call]":
        action = self.renderer.action_ids(assistant(self.left.pop(0)))
        call = dataclasses.replace(make_call(ids, action), sampling=sampling, parent=parent)
        future: Future[Call] = Future()
        future.set_result(call)
        return future


def play(
    renderer: ChatRenderer, texts: Sequence[str], workers: WorkerPool | None = None, **agent: Any
) -> Trajectory:
    player = Agent("policy", renderer, agent.get("context", FullHistory()), Sampling(budget=200))
    engine = TextsEngine(renderer, *texts)
    with Runtime({"policy": engine}, {"policy": player}, workers or InlinePool()) as runtime:
        trajectory = runtime.run(runtime.episode(TASK, player, (0, 0, 0), 0))
    assert trajectory is not None
    return trajectory


def written(renderer: ChatRenderer, action: Message) -> str:
    return renderer.tool_format.render(action.text, action.tool_calls)


def expert_episode() -> Trajectory:
    with Runtime({}, {}, InlinePool()) as runtime:
        trajectory = runtime.run(runtime.scripted_episode(TASK, "expert", 0))
    assert trajectory is not None
    return trajectory


EXPERT = expert_episode()


def template_text(renderer: ChatRenderer, trajectory: Trajectory) -> str:
    """The conversation by the tokenizer's template, up to the last action."""
    messages = []
    for message in trajectory.messages[:-1]:
        data: dict[str, Any] = {"role": message.role, "content": message.text}
        if message.tool_calls:
            data["tool_calls"] = [
                {"function": {"name": c.name, "arguments": json.loads(c.arguments)}}
                for c in message.tool_calls
            ]
        messages.append(data)
    return renderer.codec.tokenizer.apply_chat_template(
        messages, tools=list(trajectory.tools), tokenize=False, add_generation_prompt=True
    )


def test_the_expert_calls_both_tools_and_ends_with_an_answer():
    assert EXPERT.success and [len(t.action.tool_calls) for t in EXPERT.turns] == [1, 1, 1, 0]
    assert [t["function"]["name"] for t in EXPERT.tools] == ["look_up", "calculate"]
    ids = [call.id for turn in EXPERT.turns for call in turn.action.tool_calls]
    assert ids == ["call_0_0", "call_1_0", "call_2_0"]
    assert [t.observation[0].tool_call_id for t in EXPERT.turns[:-1]] == ids


@pytest.mark.parametrize("name", RENDERERS)
def test_a_rollout_is_the_template_s_text_of_the_conversation(name: str):
    renderer = RENDERERS[name]
    trajectory = play(renderer, [written(renderer, turn.action) for turn in EXPERT.turns])
    assert trajectory.success and trajectory.tools == EXPERT.tools
    prompt = renderer.codec.decode(tuple(trajectory.calls[-1].prompt.tolist()))
    assert prompt == template_text(renderer, trajectory)
    assert all(b.extends(a) for a, b in zip(trajectory.calls, trajectory.calls[1:]))
    group = Group("a", (trajectory,))
    assert len(collate([group]).sequences) == 1 and token_identity([group], collate([group])) == 1
    assert [turn.observation for turn in trajectory.turns] == [t.observation for t in EXPERT.turns]
    assert [turn.action.tool_calls for turn in trajectory.turns] == [
        turn.action.tool_calls for turn in EXPERT.turns
    ]


@pytest.mark.parametrize("name", RENDERERS)
def test_demonstrations_are_the_calls_that_a_policy_would_have_made(name: str):
    renderer = RENDERERS[name]
    agent = Agent("policy", renderer, FullHistory(), Sampling(budget=200))
    record = demonstration_file.encode(EXPERT)
    demonstration = add_demonstration_calls(demonstration_file.decode(record), agent)
    rollout = play(renderer, [written(renderer, turn.action) for turn in EXPERT.turns])
    assert [c.ids.tolist() for c in demonstration.calls] == [c.ids.tolist() for c in rollout.calls]
    assert demonstration.tools == EXPERT.tools
    assert [t.action for t in demonstration.turns] == [t.action for t in EXPERT.turns]


def test_a_worker_process_sends_tools_and_runs_calls():
    texts = [written(RENDERER, turn.action) for turn in EXPERT.turns]
    trajectories = play(RENDERER, texts, ProcessPool(1)), play(RENDERER, texts)
    in_process, inline = (without_times(trajectory_json.encode(t)) for t in trajectories)
    assert in_process == inline


def test_a_malformed_call_costs_a_turn_and_its_record_is_read_back():
    good = [written(RENDERER, turn.action) for turn in EXPERT.turns]
    broken = 'I see.\n<tool_call>\n{"name": "look_up", "arguments": {"item": \n</tool_call>'
    trajectory = play(RENDERER, [broken, *good])
    first = trajectory.turns[0]
    assert trajectory.success and first.info["tool_errors"] == 1 and not first.info["formatted"]
    assert first.action.text == "I see." and first.action.raw_text == broken
    assert "cannot be read: this is not valid JSON" in first.observation[0].text
    read = trajectory_json.decode(trajectory_json.encode(trajectory))
    assert read.messages == trajectory.messages and read.tools == trajectory.tools
    agent = Agent("policy", RENDERER, FullHistory(), Sampling(budget=200))
    again = add_demonstration_calls(
        demonstration_file.decode(demonstration_file.encode(read)), agent
    )
    assert [c.ids.tolist() for c in again.calls] == [c.ids.tolist() for c in trajectory.calls]


def test_a_context_that_forgets_is_rendered_anew_with_the_tools():
    texts = [written(RENDERER, turn.action) for turn in EXPERT.turns]
    trajectory = play(RENDERER, texts, context=LastMessages(2, keep_opening=True))
    prompt = RENDERER.codec.decode(tuple(trajectory.calls[-1].prompt.tolist()))
    assert "# Tools" in prompt and prompt.count("<tool_response>") == 1
    assert trajectory.calls[-1].parent is None


def test_a_plain_transcript_refuses_an_environment_with_tools():
    renderer: Any = TextRenderer(FAMILIES["Qwen3"].tokenizer())
    with pytest.raises(UserError, match="does not support tools: use a chat renderer"):
        play(renderer, ["x"])
    with pytest.raises(UserError, match="does not support tool calls: use a chat renderer"):
        renderer.action_ids(EXPERT.turns[0].action)


def test_actions_are_plain_data_between_processes():
    assert action_from_json("x") == assistant("x")
    env = make("agentrl/PriceList-v0")
    env.reset(seed=0)
    (answer,), *_ = env.step(tool_action("calculate", expression="2*3+4"))
    assert (answer.role, answer.text) == ("tool", "10")
