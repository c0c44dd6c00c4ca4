"""The recorder writes on its thread, in order, drops nothing, and reports what fails."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.messages import assistant, user
from agentrl_jax.storage import trajectory_log, trajectory_recorder
from agentrl_jax.storage.trajectory_recorder import TrajectoryRecorder
from agentrl_jax.trajectories import Call, Sampling, Trajectory, Turn
from agentrl_jax.trajectory_record import (
    CallTraining,
    TrajectoryRecord,
    TrajectoryTraining,
    TurnTraining,
    UtteranceTraining,
)

FLOATS = np.asarray([0.5, -1.25, 0.0], np.float32)


def call() -> Call:
    ids = np.asarray([1, 2, 3], np.int32)
    return Call(ids, ids, FLOATS, ids, Sampling(), "stop")


def record(step: int, info: object = None) -> TrajectoryRecord:
    turn = Turn((call(), call()), assistant("a"), (), 1.0, info={"x": info})
    training = CallTraining(FLOATS, 2 * FLOATS, FLOATS)
    utterance = UtteranceTraining(np.asarray([4, 5, 6], np.int32), training)
    used = TurnTraining(0.25, {"format": 0.25}, (None, training), (utterance,))
    return TrajectoryRecord(
        "rl", step, Trajectory((user("go"),), (turn,)), TrajectoryTraining((used,))
    )


def recorder(run_dir: Path) -> TrajectoryRecorder:
    return TrajectoryRecorder(run_dir, 2, 10**6, print)


def test_records_are_read_back_with_what_training_used(tmp_path: Path):
    writer = recorder(tmp_path)
    for step in range(20):
        writer.put([record(step), record(step)])
    assert [x.step for x in writer.read()] == [step for step in range(20) for _ in range(2)]
    assert writer.sync() == {"trajectories/2-000000.jsonl": 40}
    writer.close()
    back = next(trajectory_log.read(tmp_path / "trajectories")).training
    assert back is not None and back.total_reward == 0.25
    (turn,) = back.turns
    assert turn.rewards == {"format": 0.25} and turn.calls[0] is None
    (utterance,) = turn.utterances
    assert utterance.action.dtype == np.int32 and utterance.action.tolist() == [4, 5, 6]
    for used in (turn.calls[1], utterance.training):
        assert used is not None and used.value is None and used.logp is not None
        for column, expected in ((used.weight, FLOATS), (used.advantage, 2 * FLOATS)):
            assert column.dtype == np.float32 and column.tolist() == expected.tolist()


def test_a_writer_that_is_behind_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    gate, write = threading.Event(), trajectory_log.record_line

    def slow(x: TrajectoryRecord, *images: Any) -> str:
        assert gate.wait(10)
        return write(x, *images)

    monkeypatch.setattr(trajectory_log, "record_line", slow)
    monkeypatch.setattr(trajectory_recorder, "MAX_PENDING", 1)
    writer, done = recorder(tmp_path), threading.Event()

    def put_all() -> None:
        for step in range(4):
            writer.put([record(step)])
        done.set()

    threading.Thread(target=put_all).start()
    assert not done.wait(0.1)  # one is being written, one waits, the third has no room
    gate.set()
    assert done.wait(10)
    assert [x.step for x in writer.read()] == [0, 1, 2, 3]
    writer.close()


def test_what_cannot_be_written_stops_the_run(tmp_path: Path):
    writer = recorder(tmp_path)
    writer.put([record(0, info=object())])
    with pytest.raises(UserError, match="cannot be written as JSON"):
        writer.flush()
    (tmp_path / "trajectories").rmdir() if (tmp_path / "trajectories").exists() else None
    (tmp_path / "trajectories").write_text("a file")
    writer.put([record(1)])
    with pytest.raises(UserError, match="cannot write the trajectories of"):
        writer.sync()
    writer.close()
