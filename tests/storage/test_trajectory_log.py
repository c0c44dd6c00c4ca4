"""The trajectory log returns exactly what was written, and names damaged lines."""

import dataclasses
import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from agentrl_jax.errors import UserError
from agentrl_jax.images.loading import data_url
from agentrl_jax.messages import ImagePart, Message, TextPart, ToolCall, assistant, user
from agentrl_jax.storage import jsonl, trajectory_json, trajectory_log
from agentrl_jax.trajectories import (
    Call,
    CallTime,
    Sampling,
    StopReason,
    Trajectory,
    Turn,
    TurnTime,
)

floats32 = st.floats(width=32, allow_nan=False)
json_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
urls = st.one_of(
    st.text(),
    st.binary(max_size=9).map(lambda encoded: data_url(encoded)),
    st.text(max_size=3).map(lambda text: f"stored:{text}"),
    st.text(max_size=3).map(lambda text: f"stored:url,{text}"),
    st.text("AQ=", max_size=5).map(lambda text: f"data:image/png;base64,{text}"),
)
image_parts = st.builds(ImagePart, urls, st.none() | st.text())
contents = st.text() | st.lists(
    st.builds(TextPart, st.text()) | image_parts, min_size=1, max_size=3
).map(tuple)
messages = st.tuples(
    st.sampled_from(["system", "user", "assistant", "tool"]),
    contents,
    st.lists(st.builds(ToolCall, st.text(), st.text(), st.text()), max_size=2).map(tuple),
    st.none() | st.text(),
)
samplings = st.fixed_dictionaries(
    {
        "budget": st.integers(1, 10**9),
        "temperature": st.floats(0, 5),
        "top_k": st.integers(0, 99),
        "top_p": st.floats(0, 1, exclude_min=True),
        "min_p": st.floats(0, 1),
        "stop_ids": st.lists(st.integers(0, 9), max_size=2).map(tuple),
        "stop_strings": st.lists(st.text(), max_size=2).map(tuple),
    }
)


# Trajectories are built here and not by hypothesis strategies: checked annotations draw random
# numbers, which a strategy must not.


def array(draw: Any, dtype: type, n: int, elements: Any = None) -> np.ndarray:
    return draw(arrays.arrays(dtype, n, elements=elements))


# microseconds since 1970, which a float holds exactly enough
moments = st.integers(0, 2 * 10**15).map(lambda microseconds: round(microseconds / 1e6, 6))
call_times = st.builds(CallTime, moments, moments, moments, moments, st.none() | st.integers(0, 99))


def make_call(draw: Any, earlier: list[Call]) -> Call:
    """A call without a parent, or one that extends its parent, or one that does not."""
    n = draw(st.integers(0, 4))
    prompt = array(draw, np.int32, draw(st.integers(0, 4)))
    parent = draw(st.sampled_from([None, *earlier]))
    if parent is not None and draw(st.booleans()):
        prompt = np.concatenate([parent.ids, prompt])
    return Call(
        prompt=prompt,
        action=array(draw, np.int32, n),
        sampler_logp=array(draw, np.float32, n, floats32),
        version=array(draw, np.int32, n),
        sampling=Sampling(**draw(samplings)),
        finish_reason=draw(st.sampled_from(["stop", "budget", "context"])),
        source=draw(st.sampled_from(["sampled", "demonstration", "patch", "scripted"])),
        key=tuple(draw(st.lists(st.integers(), max_size=3))),
        entropy=array(draw, np.float32, n, floats32) if draw(st.booleans()) else None,
        image_spans=tuple(
            draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=2))
        ),
        images=tuple(draw(st.lists(image_parts, max_size=2))),
        parent=parent,
        time=draw(st.none() | call_times),
    )


def make_trajectory(draw: Any) -> Trajectory:
    earlier: list[Call] = []
    turns = []
    for _ in range(draw(st.integers(0, 3))):
        first = len(earlier)
        for _ in range(draw(st.integers(0, 2))):
            earlier.append(make_call(draw, earlier))
        turns.append(
            Turn(
                calls=tuple(earlier[first:]),
                action=Message(*draw(messages)),
                observation=tuple(Message(*m) for m in draw(st.lists(messages, max_size=2))),
                reward=draw(st.floats(allow_nan=False)),
                rewards=draw(st.dictionaries(st.text(), st.floats(allow_nan=False), max_size=2)),
                terminated=draw(st.booleans()),
                truncated=draw(st.booleans()),
                info=draw(st.dictionaries(st.text(), json_data, max_size=3)),
                time=draw(st.none() | st.builds(TurnTime, moments, moments)),
            )
        )
    return Trajectory(
        opening=tuple(Message(*m) for m in draw(st.lists(messages, max_size=2))),
        turns=tuple(turns),
        task=draw(st.text()),
        group=draw(st.integers()),
        sample=draw(st.integers()),
        agent_index=draw(st.integers(0, 3)),
        seed=draw(st.integers()),
        agent=draw(st.text()),
        success=draw(st.sampled_from([None, True, False])),
        stop_reason=draw(st.sampled_from(get_args(StopReason))),
        error=draw(st.none() | st.text()),
        parent=draw(st.none() | st.integers()),
        branch_turn=draw(st.none() | st.integers()),
    )


def assert_same(a: Trajectory, b: Trajectory) -> None:
    """Equal in every field, arrays bit for bit, and parents are the same calls of the same
    trajectory.
    """
    for x, y in ((a, b), *zip(a.turns, b.turns, strict=True), *zip(a.calls, b.calls, strict=True)):
        for field in dataclasses.fields(x):
            old, new = getattr(x, field.name), getattr(y, field.name)
            if isinstance(old, np.ndarray):
                assert old.dtype == new.dtype and old.tobytes() == new.tobytes(), field.name
            elif field.name not in ("turns", "calls") and not isinstance(old, Call):
                assert old == new and type(old) is type(new), field.name
    for x, y in zip(a.calls, b.calls, strict=True):
        assert (x.parent is None) == (y.parent is None)
        if x.parent is not None:
            assert [c is x.parent for c in a.calls] == [c is y.parent for c in b.calls]


def read(path: Path) -> list[Trajectory]:
    return [record.trajectory for record in trajectory_log.read(path)]


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(0, 10**6), st.text())
def test_trajectories_are_read_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, step: int, phase: str
):
    written = [make_trajectory(data.draw) for _ in range(data.draw(st.integers(0, 2)))]
    path = tmp_path_factory.mktemp("log") / "trajectories.jsonl"
    trajectory_log.write(path, written, step, phase)
    lines = list(trajectory_log.read(path))
    assert path.read_bytes().count(b"\n") == len(lines) == len(written)
    for old, record in zip(written, lines):
        assert (record.phase, record.step, record.training) == (phase, step, None)
        assert_same(old, record.trajectory)
        assert_same(
            old,
            trajectory_json.decode(
                json.loads(json.dumps(trajectory_json.encode(old), allow_nan=False))
            ),
        )


@settings(max_examples=200, deadline=None)
@given(arrays.arrays(np.uint32, 8))
def test_every_float32_is_read_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, bits: np.ndarray
):
    logp = bits.view(np.float32)
    # the payload of a NaN is not preserved
    logp = np.where(np.isnan(logp), np.float32(np.nan), logp)
    path = tmp_path_factory.mktemp("log") / "trajectories.jsonl"
    trajectory_log.write(path, [episode(1, logp=logp)], 0, "rl")
    (back,) = read(path)
    assert back.calls[0].sampler_logp.tobytes() == logp.tobytes()


def episode(turns: int, logp: np.ndarray | None = None, info: Any = None) -> Trajectory:
    """`turns` calls, each extending the last by three observed tokens."""
    logp = np.zeros(4, np.float32) if logp is None else logp
    n, episode_turns, call = len(logp), [], None
    for turn in range(turns):
        added = np.arange(3, dtype=np.int32) + turn
        prompt = added if call is None else np.concatenate([call.ids, added])
        call = Call(
            prompt,
            np.full(n, turn, np.int32),
            logp,
            np.zeros(n, np.int32),
            Sampling(),
            "stop",
            parent=call,
        )
        episode_turns.append(
            Turn((call,), assistant("left"), (user("wall"),), -1.0, info=info or {})
        )
    return Trajectory((user("go"),), tuple(episode_turns), task="agentrl/Maze-v0#3", seed=3)


def test_a_line_grows_linearly_with_the_episode(tmp_path: Path):
    sizes = []
    for turns in (50, 100):
        trajectory_log.write(tmp_path / f"{turns}.jsonl", [episode(turns)], 0, "rl")
        sizes.append((tmp_path / f"{turns}.jsonl").stat().st_size)
    assert sizes[1] < 2.1 * sizes[0]
    (back,) = read(tmp_path / "100.jsonl")
    assert len(back.calls[-1].prompt) == 99 * 7 + 3


def test_a_line_is_strict_json_with_the_documented_fields(tmp_path: Path):
    trajectory_log.write(
        tmp_path / "t.jsonl",
        [episode(2, info={"inf": float("inf"), "visited": np.arange(2), "legal": np.True_})],
        4,
        "rl",
    )

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    line = json.loads((tmp_path / "t.jsonl").read_text(), parse_constant=refuse)
    assert (line["schema"], line["phase"], line["step"], line["task"], line["return"]) == (
        2,
        "rl",
        4,
        "agentrl/Maze-v0#3",
        -2.0,
    )
    assert line["seat"] == 0 and "agent_index" not in line
    assert line["opening"] == [{"role": "user", "content": "go"}]
    first, second = (turn["calls"][0] for turn in line["turns"])
    assert (first["parent"], first["prompt"], second["parent"], second["added"]) == (
        None,
        [0, 1, 2],
        0,
        [1, 2, 3],
    )
    (back,) = read(tmp_path / "t.jsonl")
    assert back.turns[0].info == {"inf": float("inf"), "visited": [0, 1], "legal": True}


def test_times_are_written_to_the_microsecond_and_left_out_where_nothing_was_measured(
    tmp_path: Path,
):
    (turn, second) = episode(2).turns
    times = CallTime(1e9, 1e9 + 0.1234564, 1e9 + 0.25, 1e9 + 1.5, slot=3)
    call = dataclasses.replace(turn.calls[0], time=times)
    remote = dataclasses.replace(call, time=dataclasses.replace(times, slot=None))
    timed = dataclasses.replace(turn, calls=(call, remote), time=TurnTime(1e9 + 2, 1e9 + 2.0000004))
    trajectory_log.write(tmp_path / "t.jsonl", [episode(1).replace(turns=(timed, second))], 0, "rl")
    first, last = json.loads((tmp_path / "t.jsonl").read_text())["turns"]
    assert first["time"] == {"environment": [1000000002.0, 1000000002.0]}
    seconds = {
        "submitted": 1000000000.0,
        "admitted": 1000000000.123456,
        "prefilled": 1000000000.25,
        "finished": 1000000001.5,
    }
    assert [call["time"] for call in first["calls"]] == [{**seconds, "slot": 3}, seconds]
    assert "time" not in last and "time" not in last["calls"][0]


def test_a_parent_outside_the_trajectory_is_dropped_but_its_tokens_are_kept(tmp_path: Path):
    complete = episode(3)
    trajectory_log.write(
        tmp_path / "t.jsonl", [complete.replace(turns=complete.turns[1:])], 0, "rl"
    )
    (back,) = read(tmp_path / "t.jsonl")
    assert back.calls[0].parent is None and back.calls[1].parent is back.calls[0]
    assert [c.prompt.tolist() for c in back.calls] == [
        c.prompt.tolist() for c in complete.calls[1:]
    ]


def test_info_that_json_cannot_hold_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"agentrl/Maze-v0#3 .* plain data"):
        trajectory_log.write(tmp_path / "t.jsonl", [episode(1, info={"state": object()})], 0, "rl")
    assert not (tmp_path / "t.jsonl").exists()


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        ('{"schema": 2, "phase"\n', "line 2: not a JSON object"),
        ("[1]\n", "line 2: not a JSON object"),
        ('{"schema": 99}\n', "line 2: schema 99"),
        ('{"phase": "rl"}\n', "line 2: schema None"),
        (
            '{"schema": 2, "phase": "rl", "step": 0, "return": 0.0, "opening": []}\n',
            "line 2: not a trajectory",
        ),
        ("[" * 100_000 + "\n", "line 2: not a JSON object"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, damaged: str, message: str):
    path = tmp_path / "trajectories.jsonl"
    trajectory_log.write(path, [episode(1)], 0, "rl")
    with path.open("a") as file:
        file.write(damaged)
    trajectory_log.write(path, [episode(1)], 1, "rl")
    lines = trajectory_log.read(path)
    next(lines)
    with pytest.raises(UserError, match=rf"trajectories\.jsonl, {message}"):
        next(lines)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(UserError, match=r"cannot read .*nothing\.jsonl"):
        list(trajectory_log.read(tmp_path / "nothing.jsonl"))
    with pytest.raises(UserError, match="cannot write"):
        trajectory_log.write(tmp_path / "no" / "folder.jsonl", [], 0, "rl")


def test_filtering_keeps_the_selected_lines_and_drops_a_truncated_one(tmp_path: Path):
    path = tmp_path / "trajectories.jsonl"
    for step in range(4):
        trajectory_log.write(path, [episode(2)], step, "rl")
    content = path.read_bytes()
    path.write_bytes(content[:-40])
    assert [record.step for record in trajectory_log.read(path)] == [0, 1, 2]
    jsonl.filter_lines(path, lambda line: line["step"] < 3)
    assert path.read_bytes() == b"".join(content.splitlines(keepends=True)[:3])
    assert [p.name for p in tmp_path.iterdir()] == ["trajectories.jsonl"]
    jsonl.filter_lines(path, lambda line: line["step"] < 1)
    assert [record.step for record in trajectory_log.read(path)] == [0]
    jsonl.filter_lines(tmp_path / "absent.jsonl", lambda line: True)
    assert not (tmp_path / "absent.jsonl").exists()


def test_filtering_changes_nothing_where_a_line_is_damaged(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0}\n{"st\n{"step": 2}\n')
    with pytest.raises(UserError, match="line 2"):
        jsonl.filter_lines(path, lambda line: True)
    assert path.read_text() == '{"step": 0}\n{"st\n{"step": 2}\n'
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_repair_drops_only_a_truncated_last_line(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    jsonl.repair(path)
    for text, repaired in (
        ("", ""),
        ('{"a": 1}\n', '{"a": 1}\n'),
        ('{"a": 1}\n{"a"', '{"a": 1}\n'),
        ('{"a": 1}', '{"a": 1}\n'),
    ):
        path.write_text(text)
        jsonl.repair(path)
        assert path.read_text() == repaired


def test_decoding_other_data_is_refused():
    with pytest.raises(UserError, match="not a trajectory"):
        trajectory_json.decode({"turns": [{}]})
