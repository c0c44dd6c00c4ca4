"""Rows of tables become trajectories and pairs, in whichever columns they stand."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from support.chat_records import LOOK_UP, call_record, canonical_line, canonical_records

from agentrl_jax.errors import UserError
from agentrl_jax.formats.chat_record import chat_record, parse_chat_line
from agentrl_jax.formats.dataset_rows import (
    chat_of_columns,
    chat_of_line,
    is_preference,
    preference_of_columns,
)
from agentrl_jax.formats.field_checks import FieldError
from agentrl_jax.messages import Message, ToolCall, assistant, user
from agentrl_jax.training.demonstrations import open_source
from agentrl_jax.training.preferences import holds_preferences, open_preferences
from agentrl_jax.trajectories import Trajectory

QUESTION, ANSWER = {"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": "5"}
CHAT = {"messages": [QUESTION, ANSWER]}


def content(trajectory: Trajectory) -> Any:
    return trajectory.opening, [(t.action, t.observation) for t in trajectory.turns]


EXPECTED = ((user("2 + 3?"),), [(assistant("5"), ())])


@pytest.mark.parametrize(
    "columns",
    [
        CHAT,
        {**CHAT, "prompt": "2 + 3?", "prompt_id": "77", "score": 3.5, "tools": None, "task": None},
        {"messages": json.dumps(CHAT["messages"])},
        {"messages": [{**m, "tool_calls": None, "name": None} for m in CHAT["messages"]]},
        {"messages": {"role": ["user", "assistant"], "content": ["2 + 3?", "5"]}},
        {"conversations": [{"from": "human", "value": "2 + 3?"}, {"from": "gpt", "value": "5"}]},
        {"conversations": {"from": ["human", "gpt"], "value": ["2 + 3?", "5"]}, "system": ""},
    ],
)
def test_all_columns_of_a_chat_are_read(columns: dict[str, Any]):
    assert content(chat_of_columns(columns)) == EXPECTED


def without_nulls(x: Any) -> Any:
    if isinstance(x, dict):
        return {key: without_nulls(value) for key, value in x.items() if value is not None}
    return [without_nulls(value) for value in x] if isinstance(x, list) else x


@given(canonical_records().map(without_nulls))
@settings(max_examples=40, deadline=None)
def test_a_row_is_read_as_the_line_of_a_file_is(record: dict[str, Any]):
    expected = chat_record(parse_chat_line(canonical_line(record)).replace(record=""))
    assert chat_record(chat_of_columns({**record, "source": "elsewhere", "task_id": 3})) == expected
    texts = {key: json.dumps(record[key]) for key in ("messages", "tools") if key in record}
    assert chat_record(chat_of_columns({**record, **texts})) == expected


def test_the_arguments_of_a_call_may_be_an_object():
    call = call_record("a", "look_up", "")
    call["function"] |= {"arguments": {"city": "Zürich", "year": None}}
    messages = [QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]}]
    # A tool whose parameters have the names of a call's fields stays as it is.
    properties = {"name": {"type": "string"}, "arguments": {"type": "object"}}
    tool = {**LOOK_UP, "function": {"name": "look_up", "parameters": {"properties": properties}}}
    trajectory = chat_of_columns({"messages": messages, "tools": [tool]})
    assert trajectory.turns[0].action.tool_calls[0].arguments == '{"city": "Zürich"}'
    assert trajectory.tools == (tool,)


def test_calls_of_sharegpt_get_ids():
    columns = {
        "system": "Rules.",
        "conversations": [
            {"from": "human", "value": "go"},
            {"from": "function_call", "value": '{"name": "look_up", "arguments": {"city": "Ü"}}'},
            {"from": "observation", "value": "5"},
            {"from": "gpt", "value": "five"},
        ],
        "tools": json.dumps([LOOK_UP]),
    }
    trajectory = chat_of_columns(columns)
    assert trajectory.opening == (Message("system", "Rules."), user("go"))
    first, last = trajectory.turns
    assert first.action.tool_calls == (ToolCall("call_1", "look_up", '{"city": "Ü"}'),)
    assert first.observation == (Message("tool", "5", tool_call_id="call_1"),)
    assert last.action == assistant("five") and trajectory.tools == (LOOK_UP,)
    del columns["tools"]
    assert content(chat_of_line(json.dumps(columns))) == content(trajectory)
    with pytest.raises(FieldError, match="score: is no field of a ShareGPT conversation"):
        chat_of_line(json.dumps({**columns, "score": 1}))


def test_an_episode_of_tensorflow_datasets_is_read():
    turns = {
        "action": ["a", "b"],
        "observation": ["1", "2"],
        "reward": [0.0, 1.0],
        "terminated": [False, True],
        "truncated": [False, False],
        "forget": [True, False],
    }
    episode = {"opening": "go", "turns": turns, "task": "x#1", "success": 1, "return": 1.0}
    trajectory = chat_of_columns(episode)
    assert content(trajectory) == (
        (user("go"),), [(assistant("a"), (user("1"),)), (assistant("b"), (user("2"),))],
    )  # fmt: skip
    assert [t.reward for t in trajectory.turns] == [0.0, 1.0] and trajectory.success is True
    assert [t.info for t in trajectory.turns] == [{"forget": True}, {}]
    assert chat_of_columns({**episode, "success": -1}).success is None


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": "hello"}, ": needs a column messages or conversations, not text"),
        ({"messages": "hello"}, ", messages: not valid JSON"),
        ({"turns": [], "task": ""}, ", turns: is no episode"),
        ({"conversations": [{"from": "human"}]}, ", conversations[0].value: is missing"),
        ({"conversations": [{"from": "it", "value": ""}]}, ", conversations[0].from: 'it' is none"),
        (
            {"conversations": [{"from": "human", "value": ""}, {"from": "tool", "value": ""}]},
            ", conversations[1].tool_call_id: '' is no unanswered call",
        ),
        (
            {"conversations": [{"from": "function_call", "value": "look_up(3)"}]},
            ", conversations[0].value: not valid JSON",
        ),
    ],
)
def test_what_is_wrong_is_named(columns: dict[str, Any], message: str):
    with pytest.raises(FieldError) as caught:
        chat_of_columns(columns)
    assert message in str(caught.value)


def test_pairs_are_read_from_columns():
    pair = {"prompt": [QUESTION], "chosen": [ANSWER], "rejected": [{**ANSWER, "content": "6"}]}
    first, second = preference_of_columns(
        {**pair, "score_chosen": 9.0, "messages": None}
    ).trajectories
    assert (first.total_reward, second.total_reward) == (1.0, 0.0)
    assert content(first) == EXPECTED and second.turns[0].action.text == "6"
    text = {"prompt": "2 + 3?", "chosen": "{5}", "rejected": "[6]"}  # no JSON
    assert preference_of_columns(text).trajectories[1].turns[0].action.text == "[6]"
    assert is_preference(pair) and not is_preference(CHAT)
    with pytest.raises(FieldError, match="needs columns chosen and rejected, not messages"):
        preference_of_columns(CHAT)


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=2)


def numbered(i: int) -> dict[str, Any]:
    """A chat whose messages differ in their fields, so that the table fills in nulls."""
    calls = {"tool_calls": [call_record("a", "look_up", f'{{"n": {i}}}')]}
    result = {"role": "tool", "content": str(i), "tool_call_id": "a"}
    return {"messages": [QUESTION, {"role": "assistant", **calls}, result, ANSWER], "row": i}


def test_a_folder_of_parquet_files_is_read_split_by_split(tmp_path: Path):
    write_parquet(tmp_path / "data" / "train-00000-of-00002.parquet", list(map(numbered, range(3))))
    write_parquet(
        tmp_path / "data" / "train-00001-of-00002.parquet", list(map(numbered, range(3, 5)))
    )
    write_parquet(tmp_path / "data" / "test-00000-of-00001.parquet", [numbered(9)])
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n")
    train, test = open_source(tmp_path), open_source(Path(f"{tmp_path}#test"))
    arguments = [train[i].turns[0].action.tool_calls[0].arguments for i in range(len(train))]
    assert arguments == [f'{{"n": {i}}}' for i in range(5)] and len(test) == 1
    assert content(train[0])[0] == (user("2 + 3?"),) and train[0].turns[1].action == assistant("5")
    with pytest.raises(UserError, match=r"no .* file of the split 'dev'"):
        open_source(Path(f"{tmp_path}#dev"))


def test_a_wrong_row_is_named_by_its_file(tmp_path: Path):
    write_parquet(tmp_path / "a.parquet", [CHAT, {"messages": [QUESTION]}])
    source = open_source(tmp_path / "a.parquet")
    assert len(source) == 2 and content(source[0]) == EXPECTED
    with pytest.raises(UserError, match=r"a\.parquet, row 1: there is no message of an assistant"):
        source[1]


def test_pairs_are_found_in_folders(tmp_path: Path):
    pair = {"prompt": [QUESTION], "chosen": [ANSWER], "rejected": [QUESTION]}
    lines = "".join(json.dumps({**pair, "id": i}) + "\n" for i in range(2))
    (tmp_path / "validation.jsonl").write_text(lines)
    split = Path(f"{tmp_path}#validation")
    assert holds_preferences(split)
    with pytest.raises(UserError, match=r"validation.jsonl, line 1, rejected: must begin with"):
        open_preferences(split)[0]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"holds no preferences: name a \.jsonl"):
        open_preferences(tmp_path / "empty")
