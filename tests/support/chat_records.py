"""Hypothesis strategies for chat records, and a record that has everything."""

import json
from typing import Any

from hypothesis import strategies as st

# No surrogates, which UTF-8 cannot write; quotes, line separators and escapes are frequent.
texts = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]), st.sampled_from('"\\\n\r\t\u2028\u0000é✓𝄞{}')
    ),
    max_size=12,
)
names = st.text(st.sampled_from("abc_"), min_size=1, max_size=6)
numbers = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.one_of(texts, st.integers(), numbers, st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
json_objects = st.dictionaries(texts, json_values, max_size=3)
images = st.tuples(texts, st.none() | texts).map(
    lambda image: {
        "type": "image_url",
        "image_url": {"url": image[0]} | ({"detail": image[1]} if image[1] is not None else {}),
    }
)
seconds = st.lists(st.floats(0, 100) | st.integers(0, 100), min_size=1, max_size=3)
videos = st.tuples(texts, st.none() | seconds).map(
    lambda video: {
        "type": "video_url",
        "video_url": {"url": video[0]} | ({"seconds": video[1]} if video[1] is not None else {}),
    }
)
text_parts = texts.map(lambda text: {"type": "text", "text": text})
user_contents = st.one_of(
    texts, st.lists(st.one_of(text_parts, images, videos), min_size=1, max_size=3)
)
assistant_contents = st.one_of(texts, st.lists(text_parts, min_size=1, max_size=2))


def call_record(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


@st.composite
def exchanges(draw: st.DrawFn, number: int) -> list[dict[str, Any]]:
    """What a user says, and an assistant's answers, perhaps with calls and their results."""
    messages: list[dict[str, Any]] = []
    if number == 0 or draw(st.booleans()):
        messages.append({"role": "user", "content": draw(user_contents)})
    count = draw(st.integers(0, 2))
    calls = [
        call_record(
            f"call_{number}_{i}", draw(names), draw(st.one_of(texts, json_objects.map(json.dumps)))
        )
        for i in range(count)
    ]
    content = draw(assistant_contents)
    answer: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        answer |= {"content": content or None, "tool_calls": calls}
    if draw(st.booleans()) and number:
        answer["weight"] = 0
    messages.append(answer)
    results = [
        {"role": "tool", "content": draw(user_contents), "tool_call_id": call["id"]}
        for call in draw(st.permutations(calls))
    ]
    return [*messages, *results]


@st.composite
def canonical_records(draw: st.DrawFn) -> dict[str, Any]:
    """Chat records in canonical form: with a reward, and without what is a default."""
    messages = [{"role": "system", "content": draw(texts)}] if draw(st.booleans()) else []
    for number in range(draw(st.integers(1, 3))):
        messages += draw(exchanges(number))
    record: dict[str, Any] = {"messages": messages}
    tools = draw(st.lists(names, max_size=2, unique=True))
    if tools:
        record["tools"] = [
            {"type": "function", "function": {"name": name, "parameters": draw(json_objects)}}
            for name in tools
        ]
    if draw(st.booleans()):
        record["parallel_tool_calls"] = True
    if task := draw(texts):
        record["task"] = task
    actions = [m for m in messages if m["role"] == "assistant" and m.get("weight") != 0]
    rewards = draw(
        st.lists(numbers.map(lambda x: x / 8), min_size=len(actions), max_size=len(actions))
    )
    record["reward"] = float(sum(rewards))
    if any(rewards[:-1]):
        record["rewards"] = rewards
    if draw(st.booleans()):
        record["success"] = draw(st.booleans())
    if draw(st.booleans()):
        record["truncated"] = True
    if draw(st.booleans()):
        record["metadata"] = draw(json_objects)
    return record


def canonical_line(record: dict[str, Any]) -> str:
    """The record as the documentation says that it is written."""
    return json.dumps(record, ensure_ascii=False)


LOOK_UP = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "The population of a city. “Größe”",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "year": {"type": "integer", "default": 2020},
            },
            "required": ["city"],
        },
    },
}
# Has every field in canonical form.
FULL_RECORD = {
    "messages": [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "Hello 👋"},
        {"role": "assistant", "content": "Hello.", "weight": 0},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "How many live here?"},
                {
                    "type": "image_url",
                    "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"},
                },
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                call_record("call_1", "look_up", '{"city":  "Z\\u00fcrich", "year": 2.0e3}'),
                call_record("call_2", "look_up", '{"city": "Bâle"}'),
            ],
        },
        {"role": "tool", "content": "201818", "tool_call_id": "call_2"},
        {"role": "tool", "content": '{"n": 447082}', "tool_call_id": "call_1"},
        {"role": "assistant", "content": "447082, or “½ million”."},
    ],
    "tools": [LOOK_UP],
    "parallel_tool_calls": True,
    "task": "cities/7",
    "reward": 0.75,
    "rewards": [-0.25, 1.0],
    "success": True,
    "metadata": {"z": 1, "a": [1.0, 1e-07, 12345678901234567890, None], "ü": "\u2028"},
}
