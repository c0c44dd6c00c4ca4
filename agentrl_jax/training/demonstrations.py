"""Demonstrations from files and datasets, read through grain and resumable at the exact record."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grain
import numpy as np

from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.formats.dataset_rows import chat_of_columns, chat_of_line
from agentrl_jax.formats.record_source import IndexedSource
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.teacher_forcing import add_demonstration_calls
from agentrl_jax.storage.dataset_folder import (
    INDEX_DTYPE,
    MANIFEST_FILE,
    dataset_index,
    index_entry_of,
    read_complete_manifest,
)
from agentrl_jax.storage.demonstration_file import decode
from agentrl_jax.tool_formats import HermesToolFormat
from agentrl_jax.training.data_files import open_parsed
from agentrl_jax.training.shuffled_batches import ShuffledBatches
from agentrl_jax.trajectories import Group, Trajectory


class DemonstrationFile:
    """An `IndexedSource` of the demonstrations of ArrayRecord files, one after another."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Open the files.

        Raises:
            UserError: one is missing, empty or damaged.
        """
        self._records = _open_files(paths)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> Trajectory:
        try:
            record = self._records[index]
        except RuntimeError as error:  # the record's checksum is wrong
            reason = str(error).partition(";")[0]
            raise UserError(
                f"the demonstration {index} is damaged ({reason:.100}): write its file again"
            ) from error
        return decode(record)


def open_source(path: Path) -> IndexedSource[Trajectory]:
    """Demonstrations by index.

    They are in an ArrayRecord file, the shards of a dataset folder, a JSONL file of chat records, a
    Parquet or Arrow file, a dataset folder of Hugging Face, or a dataset of tensorflow_datasets
    (docs/data_formats.md).

    Args:
        path: the file or folder, or "tfds:name/config"; "folder#test" names another split than
            train.

    Raises:
        UserError: there is none, it is empty or damaged, or of another format version.
    """
    if (path / MANIFEST_FILE).is_file():
        manifest = read_complete_manifest(path)
        shards = [manifest.shard_path(path, shard) for shard in range(manifest.shards)]
        source = DemonstrationFile(shards)
        if len(source) != manifest.records:
            raise UserError(
                f"the dataset {path} holds {len(source)} records, not {manifest.records}: "
                "delete it and write it again"
            )
        return source
    parsed = open_parsed(path, chat_of_line, chat_of_columns)
    if parsed is None and path.is_dir():
        raise UserError(
            f"there is no demonstration file {path}: it is a folder without a manifest and without "
            "a file of another program"
        )
    return parsed or DemonstrationFile([path])


def _open_files(paths: Sequence[Path]) -> Any:
    for path in paths:
        if not path.is_file():
            raise UserError(
                f"there is no demonstration file {path}: "
                "check the path, or leave it empty to have one written"
            )
        if path.stat().st_size == 0:
            raise UserError(f"the demonstration file {path} is empty: delete it and write it again")
    try:
        source: Any = grain.sources.ArrayRecordDataSource(list(map(str, paths)))
        count = len(source)
    except Exception as error:
        if len(paths) > 1:  # name the damaged one
            for path in paths:
                _open_files([path])
        raise UserError(
            f"the demonstration file {paths[0]} is corrupt or no ArrayRecord file: write it again"
        ) from error
    if count == 0:
        raise UserError(f"the demonstration file {paths[0]} holds no record: write it again")
    return source


def read(path: Path, limit: int | None = None) -> list[Trajectory]:
    """The demonstrations of a source, or its first `limit`."""
    source = open_source(path)
    return [source[i] for i in range(min(len(source), limit or len(source)))]


def record_fields(path: Path) -> np.ndarray:
    """Return, turns and success of each record, [records] of `INDEX_DTYPE`.

    A dataset written here has them in its index; of any other source, all records are parsed.
    """
    if (path / MANIFEST_FILE).is_file():
        return dataset_index(path)
    return np.array(list(map(index_entry_of, read(path))), INDEX_DTYPE)


def select_records(fields: np.ndarray, top_fraction: float, successful_only: bool) -> np.ndarray:
    """The indices of the records that filtered behavior cloning uses, ascending.

    Args:
        fields: of `record_fields`, [records].
        top_fraction: of the candidates, those with the highest returns; ties go to the earlier.
        successful_only: whether only successful episodes are candidates.

    Raises:
        UserError: the fraction is wrong, or no record says whether it succeeded.
    """
    if not 0 < top_fraction <= 1:
        raise UserError(
            f"top_fraction of the demonstrations is above 0 and at most 1, not {top_fraction}"
        )
    if successful_only and (fields["success"] < 0).all():
        raise UserError(
            "successful_only needs demonstrations that say whether they succeeded, and none does: "
            "select by return instead, with top_fraction"
        )
    indices = np.flatnonzero(fields["success"] == 1) if successful_only else np.arange(len(fields))
    order = indices[np.argsort(-fields["return"][indices], kind="stable")]
    return np.sort(order[: max(1, round(top_fraction * len(order)))])


class DemonstrationIterator(ShuffledBatches):
    """Endless shuffled batches of demonstrations with their calls, one group per demonstration."""

    def __init__(
        self,
        path: Path,
        agent: Agent,
        batch: int,
        seed: int,
        process_group: ProcessGroup | None = None,
        top_fraction: float = 1.0,
        successful_only: bool = False,
    ) -> None:
        """Open the demonstrations.

        Args:
            path: see `open_source`.
            agent: whose renderer and context make the calls.
            batch: demonstrations per step, over all processes.
            seed: of the shuffle.
            process_group: of the run; None: this process alone.
            top_fraction: see `select_records`.
            successful_only: see `select_records`.
        """
        demonstrations = open_source(path)
        indices: Sequence[int] = range(len(demonstrations))
        if top_fraction != 1 or successful_only:
            fields = record_fields(path)
            indices = select_records(fields, top_fraction, successful_only).tolist()
        if len(indices) < batch:
            raise UserError(
                f"the demonstration file {path} holds {len(indices)} records, "
                f"fewer than one batch of {batch}"
            )

        def load_group(index: int) -> Group:
            trajectory = add_demonstration_calls(demonstrations[index], agent)
            check_budget(trajectory, agent)
            return Group(trajectory.task, (trajectory,))

        super().__init__(indices, batch, seed, load_group, process_group)


def check_budget(trajectory: Trajectory, agent: Agent) -> None:
    """Raises UserError where an action is longer than the agent can sample."""
    for turn in trajectory.turns:
        length, budget = len(turn.calls[-1].action), agent.sampling.budget
        if length > budget:
            raise UserError(
                f"the demonstrated action {turn.action.full_text!r} takes {length} tokens, "
                f"an agent's budget is {budget}: raise agent.budget"
            )


def total_rewards(trajectories: Sequence[Trajectory]) -> np.ndarray:
    """The return of each trajectory, float64 [n]."""
    return np.asarray([t.total_reward for t in trajectories], np.float64)


def message_texts(trajectories: Sequence[Trajectory]) -> Iterator[str]:
    """The texts of all messages, each with a line feed at its end, as a renderer writes them.

    Tools are JSON, and tool calls are in the format of Hermes.
    """
    for trajectory in trajectories:
        texts = [json.dumps(tool["function"], ensure_ascii=False) for tool in trajectory.tools]
        texts += [HermesToolFormat().render(m.text, m.tool_calls) for m in trajectory.messages]
        yield from (text if text.endswith("\n") else text + "\n" for text in texts)
