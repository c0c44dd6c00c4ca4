"""Tables of recorded trajectories: what a row holds, and that Parquet and pandas give it back."""

from pathlib import Path

import numpy as np
import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.formats.record_tables import (
    EpisodeRow,
    TokenRow,
    TurnRow,
    episode_rows,
    table,
    token_rows,
    turn_rows,
    write_parquet,
)
from agentrl_jax.launch.data_files import DataFile
from agentrl_jax.messages import assistant, user
from agentrl_jax.storage import trajectory_log
from agentrl_jax.storage.trajectory_recorder import TrajectoryRecorder
from agentrl_jax.trajectories import Call, Sampling, Trajectory, Turn
from agentrl_jax.trajectory_record import (
    CallTraining,
    TrajectoryRecord,
    TrajectoryTraining,
    TurnTraining,
)


def floats(*values: float) -> np.ndarray:
    return np.asarray(values, np.float32)


def call(version: int) -> Call:
    ids, versions = np.asarray([5, 6], np.int32), np.full(2, version, np.int32)
    return Call(ids, ids, floats(-0.5, -0.25), versions, Sampling(), "stop")


def records() -> list[TrajectoryRecord]:
    """One that was trained on, and one that a filter left out."""
    turns = (
        Turn((call(2),), assistant("a"), (user("x"), user("y")), 1.0, {"right": 1.0}),
        Turn((call(3),), assistant("b"), (), 2.0, {"right": 2.0}, terminated=True),
    )
    trajectory = Trajectory((user("go"),), turns, "maze#4", group=7, success=True)
    used = CallTraining(floats(0.0, 0.5), floats(9.0, -0.5), ref_logp=floats(-1.0, -2.0))
    training = TrajectoryTraining(
        (TurnTraining(0.25, {"right": 0.25}, (used,)), TurnTraining(0.5, {}, (None,)))
    )
    return [
        TrajectoryRecord("rl", 3, trajectory, training),
        TrajectoryRecord("rl", 3, trajectory.replace(sample=1)),
    ]


def test_an_episode_is_a_row():
    trained, filtered = episode_rows(records())
    assert (trained.environment_return, trained.trained_return) == (3.0, 0.75)
    assert (trained.rewards, trained.trained_rewards) == ({"right": 3.0}, {"right": 0.25})
    assert (trained.action_tokens, trained.trained_tokens) == (4, 1)
    assert (trained.oldest_version, trained.newest_version) == (2, 3)
    assert (filtered.sample, filtered.trained_return, filtered.trained_tokens) == (1, None, 0)


def test_a_turn_has_the_return_from_it_on_and_the_advantage_of_its_trained_tokens():
    first, second, third, _ = turn_rows(records())
    assert (first.return_to_go, second.return_to_go) == (0.75, 0.5)  # after transforms
    assert (first.advantage, second.advantage) == (-0.5, None)
    assert first.observation == "x\ny" and second.terminated
    assert third.return_to_go == 3.0 and third.trained_reward is None  # the environment's


def test_a_token_has_what_the_loss_was_given():
    rows = list(token_rows(records()))
    assert len(rows) == 8
    assert rows[1]._asdict() == {
        "phase": "rl", "step": 3, "task": "maze#4", "group": 7, "sample": 0, "seat": 0, "turn": 0,
        "call": 0, "position": 1, "token": 6, "version": 2, "sampler_logp": -0.25, "entropy": None,
        "weight": 0.5, "advantage": -0.5, "logp": None, "ref_logp": -2.0, "value": None,
        "value_target": None, "importance_weight": None,
    }  # fmt: skip
    assert rows[2].weight is None


@pytest.mark.parametrize(
    ("name", "row_type", "rows"),
    [
        ("episodes", EpisodeRow, episode_rows),
        ("turns", TurnRow, turn_rows),
        ("tokens", TokenRow, token_rows),
    ],
)
def test_tables_hold_the_rows(name: str, row_type: type, rows: object, tmp_path: Path):
    from pyarrow import parquet

    expected = list(rows(records()))  # type: ignore[operator]
    frame = table(row_type, expected).to_pandas()
    assert list(frame.columns) == list(row_type._fields) and len(frame) == len(expected)
    recorder = TrajectoryRecorder(tmp_path / "run", 0, 10**6, print)
    recorder.put(records())
    recorder.close()
    out = tmp_path / "table.parquet"
    message = DataFile(export=str(out), source=str(tmp_path / "run"), table=name).run()
    assert message == f"{len(expected)} {name} in {out}"
    stored = parquet.read_table(out).to_pylist(maps_as_pydicts="strict")
    assert stored == [row._asdict() for row in expected]
    assert len(table(row_type, [])) == 0


def test_a_log_of_many_rows_is_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from pyarrow import parquet

    monkeypatch.setattr("agentrl_jax.formats.record_tables.ROWS_PER_GROUP", 3)
    assert write_parquet(tmp_path / "t.parquet", records(), "tokens") == 8
    assert parquet.ParquetFile(tmp_path / "t.parquet").num_row_groups == 3


def test_other_files_and_tables_are_refused(tmp_path: Path):
    trajectory_log.write(tmp_path / "log.jsonl", [records()[0].trajectory], 0, "rl")
    for source, name, out in (
        ("log.jsonl", "steps", "t.parquet"),
        ("log.jsonl", "turns", "t.csv"),
        ("other.jsonl", "turns", "t.parquet"),
    ):
        file = DataFile(export=str(tmp_path / out), source=str(tmp_path / source), table=name)
        with pytest.raises(UserError, match=r"--table|a table is one of episodes, turns, tokens"):
            file.run()
