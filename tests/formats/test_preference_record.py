"""Preference records of every form become pairs, and are written in OpenAI's form."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.chat_records import LOOK_UP, call_record, canonical_line, names, texts, user_contents

from agentrl_jax.formats.field_checks import FieldError
from agentrl_jax.formats.preference_record import (
    parse_preference_line,
    preference_line,
    preference_record,
)
from agentrl_jax.messages import Message, assistant, user
from agentrl_jax.trajectories import Group, Trajectory, Turn

QUESTION = {"role": "user", "content": "2 + 3?"}
GOOD, BAD = ({"role": "assistant", "content": text} for text in ("5", "6"))
OPENAI = {
    "input": {"messages": [QUESTION]},
    "preferred_output": [GOOD],
    "non_preferred_output": [BAD],
}


def content(group: Group) -> list[Any]:
    """What a pair says."""
    return [
        (t.opening, [(x.action, x.observation, x.reward) for x in t.turns], t.tools, t.task)
        for t in group.trajectories
    ]


STRAY = {"role": "tool", "content": "", "tool_call_id": "a"}
EXPECTED = [
    ((user("2 + 3?"),), [(assistant(text), (), reward)], (), "")
    for text, reward in (("5", 1.0), ("6", 0.0))
]


@pytest.mark.parametrize(
    "record",
    [
        OPENAI,
        {"prompt": [QUESTION], "chosen": [GOOD], "rejected": [BAD]},
        {"prompt": "2 + 3?", "chosen": "5", "rejected": "6"},
        {"chosen": [QUESTION, GOOD], "rejected": [QUESTION, BAD]},
        {"prompt": "2 + 3?", "chosen": [QUESTION, GOOD], "rejected": [QUESTION, BAD]},
    ],
)
def test_all_forms_give_the_same_pair(record: dict[str, Any]):
    group = parse_preference_line(json.dumps(record))
    assert content(group) == EXPECTED
    assert json.loads(preference_line(*group.trajectories)) == OPENAI


def test_the_prompt_is_the_opening_and_outputs_may_have_several_turns():
    call = {"role": "assistant", "content": None, "tool_calls": [call_record("a", "look_up", "{}")]}
    result = {"role": "tool", "content": "5", "tool_call_id": "a"}
    record = {
        "input": {"messages": [QUESTION, BAD, QUESTION], "tools": [LOOK_UP]},
        "preferred_output": [call, result, GOOD],
        "non_preferred_output": [BAD],
        "task": "sums/1",
    }
    first, second = parse_preference_line(canonical_line(record)).trajectories
    assert first.opening == second.opening == (user("2 + 3?"), assistant("6"), user("2 + 3?"))
    assert [turn.reward for turn in first.turns] == [0.0, 1.0] and second.total_reward == 0.0
    assert first.tools == (LOOK_UP,) and first.task == "sums/1"
    assert canonical_line(preference_record(first, second)) == canonical_line(record)


answers_of_one = texts.map(lambda text: {"role": "assistant", "content": text})


@given(
    st.lists(st.tuples(user_contents, texts), max_size=2),
    user_contents,
    st.lists(answers_of_one, min_size=2, max_size=2, unique_by=lambda message: message["content"]),
    st.lists(names, max_size=1),
    texts,
    st.sampled_from([None, True, False]),
)
@settings(max_examples=100, deadline=None)
def test_the_canonical_form_is_written_as_it_was_read(
    history: list, question: Any, answers: list, tools: list[str], task: str, parallel: bool | None
):
    messages: list[dict[str, Any]] = []
    for earlier, answer in history:
        messages.append({"role": "user", "content": earlier})
        messages.append({"role": "assistant", "content": answer})
    messages.append({"role": "user", "content": question})
    record: dict[str, Any] = {"input": {"messages": messages}}
    if tools:
        record["input"]["tools"] = [{"type": "function", "function": {"name": x}} for x in tools]
    if parallel is not None:
        record["input"]["parallel_tool_calls"] = parallel
    record["preferred_output"], record["non_preferred_output"] = [answers[0]], [answers[1]]
    if task:
        record["task"] = task
    line = canonical_line(record)
    pair = parse_preference_line(line).trajectories
    assert canonical_line(preference_record(*pair)) == line == preference_line(*pair)
    spelled = json.dumps(record, separators=(",", ":"))
    assert preference_line(*parse_preference_line(spelled).trajectories) == spelled


def sampled(*texts: str, reward: float) -> Trajectory:
    """Actions, each answered with its length."""
    turns = tuple(Turn((), assistant(text), (user(str(len(text))),), 0.0) for text in texts)
    last = Turn((), assistant("end"), (), reward, terminated=True)
    return Trajectory((user("go"),), (*turns, last), "task#1", group=3)


def test_sampled_trajectories_share_the_input_up_to_where_they_differ():
    record = preference_record(sampled("a", "b", reward=1.0), sampled("a", "cc", reward=0.5))
    assert [m["content"] for m in record["input"]["messages"]] == ["go", "a", "1"]
    assert [m["content"] for m in record["preferred_output"]] == ["b", "1", "end"]
    assert [m["content"] for m in record["non_preferred_output"]] == ["cc", "2", "end"]
    assert record["task"] == "task#1"
    first = sampled("a", reward=1.0)
    other_reply = Turn((), assistant("a"), (user("?"),), 0.0)
    second = first.replace(turns=(other_reply, *first.turns[1:]))
    record = preference_record(first, second)  # the environments answered differently
    assert [m["content"] for m in record["input"]["messages"]] == ["go"]
    longer = preference_record(sampled("a", "end", reward=1.0), sampled("a", reward=0.0))
    assert [m["content"] for m in longer["input"]["messages"]] == ["go", "a", "1"]


def test_what_makes_no_pair_is_refused():
    equal = sampled("a", reward=1.0), sampled("a", reward=0.0)
    elsewhere = sampled("a", reward=0.0).replace(opening=(Message("user", "stop"),))
    for pair in (equal, (equal[0], elsewhere)):
        with pytest.raises(FieldError, match="one prompt and two different answers"):
            preference_line(*pair)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, "preferred_output: is missing"),
        ({**OPENAI, "input": 1}, ", input: must be an object, not a number"),
        ({**OPENAI, "input": {}}, ", input.messages: is missing"),
        ({**OPENAI, "input": {"messages": [QUESTION], "n": 2}}, ", input.n: is not supported"),
        ({**OPENAI, "input": {"messages": []}}, ", preferred_output[0].role: an assistant's"),
        ({**OPENAI, "reward": 1}, ", reward: is not a field of a preference record"),
        ({**OPENAI, "preferred_output": []}, ", preferred_output: must begin with a message"),
        ({**OPENAI, "preferred_output": [QUESTION]}, ", preferred_output: must begin with"),
        ({**OPENAI, "preferred_output": "5"}, ", preferred_output: must be a list, not a text"),
        (
            {**OPENAI, "non_preferred_output": [GOOD, STRAY]},
            ", non_preferred_output[1].tool_call_id: 'a' is no unanswered call",
        ),
        ({"chosen": "5"}, ", rejected: is missing"),
        ({"chosen": "5", "rejected": "6"}, ", prompt: must be a text"),
        ({"prompt": "2", "chosen": "5", "rejected": [BAD]}, ", chosen: must be a list, not a text"),
        ({"chosen": [GOOD], "rejected": [BAD]}, ", chosen[0].role: an assistant's message needs"),
        (
            {"prompt": "1 + 1?", "chosen": [QUESTION, GOOD], "rejected": [QUESTION, BAD]},
            ", prompt: is no message that chosen and rejected both begin with",
        ),
        ({"prompt": "2", "chosen": "5", "rejected": "6", "score": 1}, ", score: is not a field"),
        ({**OPENAI, "metadata": 3}, ", metadata: must be an object"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(record: dict[str, Any], message: str):
    with pytest.raises(FieldError) as caught:
        parse_preference_line(json.dumps(record))
    assert message in str(caught.value)
