"""Recorded trajectories as tables: a row for each episode, turn or token, for Parquet and pandas.

records = trajectory_log.read(run_dir / "trajectories")
table(TokenRow, token_rows(record for record in records if record.step >= 100)).to_pandas()
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.storage.files import atomic_write
from agentrl_jax.storage.record_files import INSTALL_HINT
from agentrl_jax.trajectories import Call, Turn
from agentrl_jax.trajectory_record import CallTraining, TrajectoryRecord, TurnTraining

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_GROUP = 65_536  # of a Parquet file
Rewards = dict[str, float]  # named parts


class EpisodeRow(NamedTuple):
    """A trajectory; `trained_return` is that after reward transforms, None where not recorded."""

    phase: str
    step: int
    task: str
    group: int
    sample: int
    seat: int
    seed: int
    agent: str
    success: bool | None
    stop_reason: str
    error: str | None
    environment_return: float
    trained_return: float | None
    rewards: Rewards
    trained_rewards: Rewards
    turns: int
    calls: int
    action_tokens: int
    trained_tokens: int  # with a weight other than 0
    oldest_version: int | None
    newest_version: int | None


class TurnRow(NamedTuple):
    """A turn; `advantage` is the mean of its trained tokens', weighted as in the loss."""

    phase: str
    step: int
    task: str
    group: int
    sample: int
    seat: int
    turn: int
    action: str
    observation: str
    reward: float
    trained_reward: float | None
    return_to_go: float  # of trained rewards where they are recorded
    rewards: Rewards
    trained_rewards: Rewards
    advantage: float | None
    terminated: bool
    truncated: bool


class TokenRow(NamedTuple):
    """An action token; see `trajectory_record.CallTraining`."""

    phase: str
    step: int
    task: str
    group: int
    sample: int
    seat: int
    turn: int
    call: int  # of the turn
    position: int  # in the action
    token: int
    version: int
    sampler_logp: float
    entropy: float | None
    weight: float | None
    advantage: float | None
    logp: float | None
    ref_logp: float | None
    value: float | None
    value_target: float | None
    importance_weight: float | None


Row = EpisodeRow | TurnRow | TokenRow


def episode_rows(records: Iterable[TrajectoryRecord]) -> Iterator[EpisodeRow]:
    for record in records:
        t, training = record.trajectory, record.training
        versions = [int(v) for call in t.calls for v in call.version if v >= 0]
        calls = [call for turn in _turns_training(record) if turn for call in turn.calls if call]
        yield EpisodeRow(
            **_origin(record),
            seed=t.seed,
            agent=t.agent,
            success=t.success,
            stop_reason=t.stop_reason,
            error=t.error,
            environment_return=t.total_reward,
            trained_return=training.total_reward if training else None,
            rewards=t.reward_parts,
            trained_rewards=training.reward_parts if training else {},
            turns=len(t.turns),
            calls=len(t.calls),
            action_tokens=sum(len(call.action) for call in t.calls),
            trained_tokens=sum(int(np.count_nonzero(call.weight)) for call in calls),
            oldest_version=min(versions, default=None),
            newest_version=max(versions, default=None),
        )


def turn_rows(records: Iterable[TrajectoryRecord]) -> Iterator[TurnRow]:
    for record in records:
        t, trainings = record.trajectory, _turns_training(record)
        rewards = [x.reward if x else turn.reward for turn, x in zip(t.turns, trainings)]
        returns = np.cumsum(rewards[::-1])[::-1].tolist()
        for index, (turn, training) in enumerate(zip(t.turns, trainings)):
            yield TurnRow(
                **_origin(record),
                turn=index,
                action=turn.action.text,
                observation="\n".join(message.text for message in turn.observation),
                reward=turn.reward,
                trained_reward=training.reward if training else None,
                return_to_go=returns[index],
                rewards=dict(turn.rewards),
                trained_rewards=dict(training.rewards) if training else {},
                advantage=_mean_advantage(training) if training else None,
                terminated=turn.terminated,
                truncated=turn.truncated,
            )


def token_rows(records: Iterable[TrajectoryRecord]) -> Iterator[TokenRow]:
    for record in records:
        turns = zip(record.trajectory.turns, _turns_training(record))
        for index, (turn, training) in enumerate(turns):
            for number, call in enumerate(turn.calls):
                used = training.calls[number] if training else None
                for position in range(len(call.action)):
                    yield TokenRow(
                        **_origin(record),
                        turn=index,
                        call=number,
                        position=position,
                        **_token_fields(call, used, position),
                    )


def _origin(record: TrajectoryRecord) -> dict[str, Any]:
    """What every row begins with."""
    t = record.trajectory
    return {
        "phase": record.phase,
        "step": record.step,
        "task": t.task,
        "group": t.group,
        "sample": t.sample,
        "seat": t.agent_index,
    }


def _token_fields(call: Call, used: CallTraining | None, position: int) -> dict[str, Any]:
    columns: dict[str, np.ndarray | None] = {
        "token": call.action,
        "version": call.version,
        "sampler_logp": call.sampler_logp,
        "entropy": call.entropy,
        **{name: getattr(used, name) if used else None for name in CallTraining.__annotations__},
    }
    return {
        name: None if column is None else column[position].item()
        for name, column in columns.items()
    }


def _turns_training(record: TrajectoryRecord) -> list[TurnTraining | None]:
    turns: tuple[Turn, ...] = record.trajectory.turns
    return list(record.training.turns) if record.training else [None] * len(turns)


def _mean_advantage(training: TurnTraining) -> float | None:
    calls = [call for call in training.calls if call is not None]
    if not calls:
        return None
    weight = np.concatenate([call.weight for call in calls])
    advantage = np.concatenate([call.advantage for call in calls])
    return float(np.average(advantage, weights=np.abs(weight)))


TABLES: dict[str, tuple[type[Row], Callable[[Iterable[TrajectoryRecord]], Iterator[Row]]]] = {
    "episodes": (EpisodeRow, episode_rows),
    "turns": (TurnRow, turn_rows),
    "tokens": (TokenRow, token_rows),
}


def table(row_type: type[Row], rows: Iterable[Row]) -> "pa.Table":
    """The rows as an Arrow table, whose `to_pandas` makes a DataFrame.

    Raises:
        UserError: pyarrow, of the extra `data`, is missing.
    """
    pa = _import_pyarrow()
    columns = list(zip(*rows)) or [()] * len(row_type._fields)
    schema = _schema(row_type)
    arrays = [
        pa.array(list(map(_arrow_value, column)), field.type)
        for column, field in zip(columns, schema)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def write_parquet(path: Path, records: Iterable[TrajectoryRecord], name: str) -> int:
    """Write one of `TABLES`, in row groups, and return its number of rows.

    Raises:
        UserError: pyarrow, of the extra `data`, is missing, or the file cannot be written.
    """
    pa = _import_pyarrow()
    from pyarrow import parquet

    row_type, make_rows = TABLES[name]
    rows, count = make_rows(records), 0
    try:
        with (
            atomic_write(path) as unfinished,
            parquet.ParquetWriter(unfinished, _schema(row_type)) as writer,
        ):
            while batch := list(islice(rows, ROWS_PER_GROUP)):
                writer.write_table(table(row_type, batch))
                count += len(batch)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"cannot write {path} ({error}): choose another file") from error
    return count


def _import_pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise UserError(f"tables need pyarrow: {INSTALL_HINT}") from error
    return pyarrow


def _schema(row_type: type[Row]) -> "pa.Schema":
    pa = _import_pyarrow()
    types = {
        int: pa.int64(),
        float: pa.float64(),
        str: pa.string(),
        bool: pa.bool_(),
        Rewards: pa.map_(pa.string(), pa.float64()),
    }
    types |= {kind | None: arrow for kind, arrow in types.items()}
    hints = get_type_hints(row_type)
    return pa.schema([(name, types[hints[name]]) for name in row_type._fields])


def _arrow_value(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value
