"""Chat records are read exactly, and written again byte for byte."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.chat_records import (
    FULL_RECORD,
    LOOK_UP,
    call_record,
    canonical_line,
    canonical_records,
)

from agentrl_jax.formats.chat_record import canonical_json, chat_line, chat_record, parse_chat_line
from agentrl_jax.formats.field_checks import FieldError
from agentrl_jax.messages import ImagePart, Message, TextPart, ToolCall, assistant, user
from agentrl_jax.storage import demonstration_file
from agentrl_jax.trajectories import Trajectory, Turn

QUESTION, ANSWER = {"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": "5"}


def line_of(*messages: Any, **fields: Any) -> str:
    return json.dumps({"messages": [*messages], **fields})


def error_of(line: str) -> str:
    with pytest.raises(FieldError) as caught:
        parse_chat_line(line)
    sentence = str(caught.value)
    assert "\n" not in sentence and len(sentence) < 300
    return sentence


def test_a_record_becomes_an_opening_and_turns():
    trajectory = parse_chat_line(canonical_line(FULL_RECORD))
    image = ImagePart("data:image/png;base64,iVBORw0KGgo=", "low")
    assert trajectory.opening == (
        Message("system", "Answer briefly."),
        user("Hello 👋"),
        assistant("Hello."),
        Message("user", (TextPart("How many live here?"), image)),
    )
    first, last = trajectory.turns
    assert first.action.tool_calls == (
        ToolCall("call_1", "look_up", '{"city":  "Z\\u00fcrich", "year": 2.0e3}'),
        ToolCall("call_2", "look_up", '{"city": "Bâle"}'),
    )
    assert [m.tool_call_id for m in first.observation] == ["call_2", "call_1"]
    assert last.action == assistant("447082, or “½ million”.") and last.observation == ()
    assert [turn.reward for turn in trajectory.turns] == [-0.25, 1.0]
    assert [turn.terminated for turn in trajectory.turns] == [False, True]
    assert (trajectory.task, trajectory.success) == ("cities/7", True)
    assert trajectory.tools == (LOOK_UP,) and trajectory.agent == "demonstration"
    assert not trajectory.truncated


def test_a_message_with_weight_0_is_observed_and_not_learned():
    not_learned = {**ANSWER, "content": "6", "weight": 0}
    trajectory = parse_chat_line(line_of(QUESTION, ANSWER, QUESTION, not_learned, QUESTION, ANSWER))
    assert trajectory.opening == (user("2 + 3?"),)
    assert [turn.action.text for turn in trajectory.turns] == ["5", "5"]
    assert trajectory.turns[0].observation == (user("2 + 3?"), assistant("6"), user("2 + 3?"))


def test_a_reward_counts_at_the_end_and_a_cut_conversation_is_truncated():
    line = line_of(QUESTION, ANSWER, QUESTION, ANSWER, reward=2, truncated=True)
    trajectory = parse_chat_line(line)
    assert [turn.reward for turn in trajectory.turns] == [0.0, 2.0]
    assert trajectory.truncated and trajectory.turns[1].truncated
    assert not trajectory.turns[1].terminated and trajectory.success is None


@given(canonical_records())
@settings(max_examples=100, deadline=None)
def test_the_canonical_form_is_written_as_it_was_read(record: dict[str, Any]):
    line = canonical_line(record)
    trajectory = parse_chat_line(line)
    assert canonical_json(chat_record(trajectory)) == line  # from the trajectory
    assert chat_line(trajectory) == line


def shuffled(value: Any, shuffle: Callable[[list], list]) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(x, shuffle) for key, x in shuffle(list(value.items()))}
    return [shuffled(x, shuffle) for x in value] if isinstance(value, list) else value


@given(canonical_records(), st.randoms(use_true_random=False), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_other_spelling_is_written_as_it_was_read(
    record: dict[str, Any], random: Any, ascii_only: bool, dense: bool
):
    def shuffle(items: list) -> list:
        return random.sample(items, len(items))

    for message in record["messages"]:
        if message["role"] == "assistant" and "weight" not in message:
            message["weight"] = 1
        if message["content"] is None:
            del message["content"]
    line = json.dumps(
        shuffled(record, shuffle),
        ensure_ascii=ascii_only,
        separators=(",", ":") if dense else (", ", ": "),
    )
    trajectory = parse_chat_line(line)
    assert chat_line(trajectory) == line
    stored = demonstration_file.decode(demonstration_file.encode(trajectory))
    assert chat_line(stored) == line


@given(canonical_records())
@settings(max_examples=40, deadline=None)
def test_a_trajectory_that_was_changed_is_written_as_it_is(record: dict[str, Any]):
    trajectory = parse_chat_line(canonical_line(record))
    last = trajectory.turns[-1]
    changed = trajectory.replace(
        turns=(
            *trajectory.turns[:-1],
            Turn((), assistant(last.action.text + "!"), (), last.reward, terminated=True),
        )
    )
    written = json.loads(chat_line(changed))
    trained = [m for m in written["messages"] if m["role"] == "assistant" and "weight" not in m]
    assert trained[-1] == {"role": "assistant", "content": last.action.text + "!"}
    assert written.get("metadata") == record.get("metadata")


def test_a_sampled_trajectory_is_written_with_its_metadata():
    turn = Turn((), assistant("5"), (user("right"),), 1.0, terminated=True, info={"forget": True})
    trajectory = Trajectory((user("2 + 3?"),), (turn,), "sums/1", success=True)
    assert chat_line(trajectory, {"step": 3}) == (
        '{"messages": [{"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": "5"}'
        ', {"role": "user", "content": "right"}], "task": "sums/1", "reward": 1.0, "success": true'
        ', "metadata": {"step": 3}}'
    )
    cut = trajectory.replace(stop_reason="tokens", success=None)
    assert chat_record(cut)["truncated"] is True and "success" not in chat_record(cut)


def test_what_openai_does_not_know_is_not_written():
    call = ToolCall("call_0", "add", "{", error="no JSON")
    action = Message("assistant", "I add.", (call,), raw_text="I add.<tool_call>{</tool_call>")
    turn = Turn((), action, (Message("tool", "malformed", tool_call_id="call_0"),), 0.0)
    record = chat_record(Trajectory((user("go"),), (turn,)))
    assert record["messages"][1] == {
        "role": "assistant", "content": "I add.", "tool_calls": [call_record("call_0", "add", "{")],
    }  # fmt: skip


def test_a_conversation_without_an_openai_form_is_refused():
    turn = Turn((), assistant("5"), (Message("tool", "?", tool_call_id="x"),), 0.0)
    with pytest.raises(FieldError, match=r"messages\[2\].tool_call_id: 'x' is no unanswered call"):
        chat_line(Trajectory((user("2 + 3?"),), (turn,)))
    with pytest.raises(FieldError, match="cannot be written as JSON"):
        chat_line(Trajectory((user("2"),), (Turn((), assistant("5"), (), float("nan")),)))


TOOL_CALL = {"role": "assistant", "tool_calls": [call_record("a", "add", "{}")]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "5"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[1]", "must be an object, not a list"),
        ("[" * 100_000, "not valid JSON"),
        ('{"messages": [], "messages": []}', "the key 'messages' stands twice"),
        ('{"messages": [], "reward": NaN}', "NaN is no number of JSON"),
        ('{"messages": [], "reward": 1e999}', "the number 1e999 is too large"),
        ('{"messages": [], "task": "\\ud800"}', "half of a surrogate pair"),
        ("{}", ", messages: is missing"),
        ('{"messages": {}}', ", messages: must be a list, not an object"),
        ('{"messages": []}', "no message of an assistant that is trained"),
        (line_of(QUESTION), "no message of an assistant that is trained"),
        (line_of(QUESTION, {**ANSWER, "weight": 0}), "no message of an assistant"),
        (line_of(ANSWER), ", messages[0].role: an assistant's message needs another before it"),
        (line_of("hi"), ", messages[0]: must be an object, not a text"),
        (line_of({"content": "x"}), ", messages[0].role: is missing"),
        (line_of({"role": "robot", "content": "x"}), ", messages[0].role: 'robot' is none of"),
        (line_of({"role": "user"}), ", messages[0].content: is missing"),
        (line_of({"role": "user", "content": None}), ", messages[0].content: is missing"),
        (line_of({"role": "user", "content": 3}), ", messages[0].content: must be a text"),
        (line_of({"role": "user", "content": []}), ", messages[0].content: is an empty list"),
        (
            line_of({"role": "user", "content": [{"type": "input_audio"}]}),
            ", messages[0].content[0].type: 'input_audio' is none of text, image_url and video_url",
        ),
        (
            line_of({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}),
            ", messages[0].content[0].image_url.url: is missing",
        ),
        (
            line_of({"role": "user", "content": [{"type": "video_url", "video_url": {}}]}),
            ", messages[0].content[0].video_url.url: is missing",
        ),
        (
            line_of(
                {
                    "role": "user",
                    "content": [{"type": "video_url", "video_url": {"url": "", "seconds": ["1"]}}],
                }
            ),
            ", messages[0].content[0].video_url.seconds: holds something that is no number",
        ),
        (
            line_of({"role": "system", "content": [FULL_RECORD["messages"][3]["content"][1]]}),
            ", messages[0].content: holds an image",
        ),
        (line_of(QUESTION, {"role": "assistant"}), ", messages[1].content: is missing"),
        (line_of({**QUESTION, "name": "Ann"}), ", messages[0].name: names are not supported"),
        (line_of({**QUESTION, "weight": 1}), ", messages[0].weight: belongs to an assistant"),
        (line_of(QUESTION, {**ANSWER, "weight": 0.5}), ", messages[1].weight: must be 0"),
        (line_of(QUESTION, {**ANSWER, "weight": True}), ", messages[1].weight: must be 0"),
        (
            line_of(QUESTION, {**ANSWER, "reasoning_content": "so"}),
            ", messages[1].reasoning_content: is not supported",
        ),
        (
            line_of(QUESTION, {**ANSWER, "function_call": {"name": "f"}}),
            ", messages[1].function_call: is not supported",
        ),
        (line_of(QUESTION, {**ANSWER, "tool_call_id": "a"}), ".tool_call_id: belongs to a tool"),
        (line_of(QUESTION, {"role": "tool", "content": "5"}), ".tool_call_id: is missing"),
        (line_of(QUESTION, RESULT), "[1].tool_call_id: 'a' is no unanswered call"),
        (line_of(QUESTION, TOOL_CALL, RESULT, RESULT), "[3].tool_call_id: 'a' is no unanswered"),
        (line_of(QUESTION, TOOL_CALL, QUESTION), "[2].role: the call 'a' has no result"),
        (
            line_of(QUESTION, TOOL_CALL, {**RESULT, "name": "sub"}),
            "[2].name: 'sub' is not what its call names",
        ),
        (line_of(QUESTION, {"role": "system", "content": "x"}), "[1].role: a system message must"),
        (
            line_of(QUESTION, {"role": "assistant", "tool_calls": [{}]}),
            ", messages[1].tool_calls[0].function: is missing",
        ),
        (
            line_of(QUESTION, {**TOOL_CALL, "tool_calls": [call_record("a", "f", "")] * 2}),
            ", messages[1].tool_calls: two calls have the id 'a'",
        ),
        (
            line_of(
                QUESTION,
                {**TOOL_CALL, "tool_calls": [call_record("a", "f", {})]},
            ),
            ".function.arguments: must be a text that holds JSON",
        ),
        (line_of(QUESTION, ANSWER, functions=[]), ", functions: is not a field of a chat record"),
        (line_of(QUESTION, ANSWER, reword=1), ", reword: is not a field of a chat record"),
        (line_of(QUESTION, ANSWER, reward="1"), ", reward: must be a number, not a text"),
        (line_of(QUESTION, ANSWER, reward=10**400), ", reward: must be a finite number"),
        (line_of(QUESTION, ANSWER, rewards=[1, 2]), ", rewards: hold 2 numbers for 1 trained"),
        (line_of(QUESTION, ANSWER, rewards=[1], reward=2), ", reward: is 2.0, but rewards sum"),
        (line_of(QUESTION, ANSWER, success=1), ", success: must be true or false, not a number"),
        (line_of(QUESTION, ANSWER, metadata=[]), ", metadata: must be an object, not a list"),
        (line_of(QUESTION, ANSWER, tools=[{}]), ", tools[0].type: must be function"),
        (line_of(QUESTION, ANSWER, tools=[LOOK_UP] * 2), ", tools[1].function.name: 'look_up' is"),
        (
            line_of(
                QUESTION,
                {**TOOL_CALL, "tool_calls": [call_record(i, "f", "") for i in "ab"]},
                parallel_tool_calls=False,
            ),
            ", messages[1].tool_calls: are several, but parallel_tool_calls is false",
        ),
        ('{"schema": 1, "turns": []}', "is of a trajectory log; export it"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(line: str, message: str):
    assert message in error_of(line)


def test_what_means_nothing_is_accepted():
    empty = {"refusal": None, "annotations": [], "audio": None, "function_call": None}
    line = line_of(
        {"role": "developer", "content": "rules"},
        {**QUESTION, "tool_calls": None},
        {**TOOL_CALL, "content": None, **empty},
        {**RESULT, "name": "add"},
        {**ANSWER, "tool_calls": [], "weight": 1},
        tools=None,
        success=None,
    )
    trajectory = parse_chat_line(line)
    assert trajectory.opening[0] == Message("system", "rules") and len(trajectory.turns) == 2
    assert chat_line(trajectory) == line
