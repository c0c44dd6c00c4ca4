"""Demonstration files and datasets return what was written, name what is damaged, and are resumed
at the exact record.
"""

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grain
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.context import FullHistory
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, assistant, user
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import ScriptedEpisodes
from agentrl_jax.rollout.teacher_forcing import add_demonstration_calls
from agentrl_jax.storage import demonstration_file
from agentrl_jax.storage.dataset_folder import (
    INDEX_DTYPE,
    MANIFEST_FILE,
    DatasetManifest,
    bind_manifest,
    index_entry_of,
    write_index,
)
from agentrl_jax.storage.format_version import DATASET_FORMAT_VERSION
from agentrl_jax.training import demonstrations as data
from agentrl_jax.trajectories import Group, Sampling, Trajectory, Turn
from agentrl_jax.workers.pool import InlinePool, Task

AGENT = Agent("policy", TextRenderer(byte_tokenizer()), FullHistory(), Sampling())
RECORDS = 11

texts = st.text(max_size=12)


def record_content(trajectory: Trajectory) -> Any:
    """The part of a trajectory that a demonstration keeps."""
    turns = [
        (
            t.action.text,
            t.observation,
            t.reward,
            t.terminated,
            t.truncated,
            bool(t.info.get("forget", False)),
        )
        for t in trajectory.turns
    ]
    return trajectory.opening, turns, trajectory.task, trajectory.success


@given(
    turns=st.lists(
        st.tuples(
            texts,
            st.lists(texts, max_size=2),
            st.floats(allow_nan=False, allow_infinity=False),
            st.booleans(),
            st.booleans(),
            st.booleans(),
        ),
        max_size=4,
    ),
    task=texts,
    success=st.sampled_from([None, True, False]),
)
@settings(max_examples=100, deadline=None)
def test_a_record_is_decoded_to_the_encoded_trajectory(
    turns: list, task: str, success: bool | None
):
    turns_of_trajectory = tuple(
        Turn(
            (),
            assistant(action),
            tuple(map(user, observation)),
            reward,
            terminated=end,
            truncated=cut,
            info={"forget": True} if forget else {},
        )
        for action, observation, reward, end, cut, forget in turns
    )
    before = Trajectory(
        (Message("system", "rules"), user(task)),
        turns_of_trajectory,
        task,
        success=success,
        agent="expert",
    )
    after = demonstration_file.decode(demonstration_file.encode(before))
    assert (
        record_content(after) == record_content(before)
        and after.agent == "demonstration"
        and after.calls == ()
    )
    ended = bool(turns) and turns[-1][3]
    assert after.stop_reason == ("terminated" if ended else "truncated")


@pytest.fixture(scope="module")
def demonstrations() -> list[Trajectory]:
    """Episodes of Wordle and of a maze; all of different tasks."""
    tasks = [
        Task("agentrl_jax.envs:agentrl/Wordle-v0", seed, {"words": 30})
        for seed in range(RECORDS - 3)
    ]
    tasks += [Task("agentrl_jax.envs:agentrl/MazePO-v0", seed) for seed in range(3)]
    with Runtime({}, {}, InlinePool()) as runtime:
        groups = runtime.collect(ScriptedEpisodes("mixture"), tasks, (0, 0))
    return [group.trajectories[0] for group in groups]


@pytest.fixture(scope="module")
def file(demonstrations: list[Trajectory], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "deep" / "demonstrations.array_record"
    demonstration_file.write(path, map(demonstration_file.encode, demonstrations))
    return path


def put_shard(
    folder: Path, manifest: DatasetManifest, shard: int, demonstrations: list[Trajectory]
) -> None:
    trajectories = [demonstrations[i] for i in manifest.episodes(shard)]
    demonstration_file.write(
        manifest.shard_path(folder, shard), map(demonstration_file.encode, trajectories)
    )
    write_index(
        manifest.shard_path(folder, shard),
        np.array(list(map(index_entry_of, trajectories)), INDEX_DTYPE),
    )


MANIFEST = DatasetManifest("agentrl_jax.envs:agentrl/Wordle-v0", "mixture", RECORDS, shards=4)


@pytest.fixture(scope="module")
def folder(demonstrations: list[Trajectory], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dataset")
    bind_manifest(path, MANIFEST)
    for shard in range(4):
        put_shard(path, MANIFEST, shard, demonstrations)
    return path


@pytest.fixture(scope="module", params=["file", "folder"])
def path(request: pytest.FixtureRequest) -> Path:
    """The demonstrations as one file, and as a dataset of four shards."""
    return request.getfixturevalue(request.param)


def test_a_file_returns_the_written_records_in_order(path: Path, demonstrations: list[Trajectory]):
    assert [record_content(t) for t in data.read(path)] == [
        record_content(t) for t in demonstrations
    ]
    assert [record_content(t) for t in data.read(path, limit=4)] == [
        record_content(t) for t in demonstrations[:4]
    ]
    assert len(data.read(path, limit=99)) == RECORDS
    assert data.total_rewards(data.read(path)).tolist() == [t.total_reward for t in demonstrations]


def test_a_file_appears_under_its_name_only_when_it_is_complete(
    tmp_path: Path, demonstrations: list[Trajectory]
):
    path = tmp_path / "half.array_record"

    def full_disk() -> Iterator[bytes]:
        yield demonstration_file.encode(demonstrations[0])
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        demonstration_file.write(path, full_disk())
    assert not path.exists()
    demonstration_file.write(path, map(demonstration_file.encode, demonstrations[:2]))
    assert len(data.read(path)) == 2 and [p.name for p in tmp_path.iterdir()] == [path.name]


def test_the_texts_end_every_message_with_a_line_feed(demonstrations: list[Trajectory]):
    episode = demonstrations[0]
    texts = list(data.message_texts([episode]))
    assert (
        texts[0] == "Wordle:\n"
        and len(texts) == 1 + 2 * len(episode.turns)
        and all(text.endswith("\n") for text in texts)
    )
    assert "".join(texts) == "Wordle:\n" + "".join(
        turn.action.text + "\n" + turn.observation[0].text for turn in episode.turns
    )


def error_message(act: Callable[[Path], Any], path: Path) -> str:
    """The message of the UserError, which is one sentence."""
    with pytest.raises(UserError) as caught:
        act(path)
    sentence = str(caught.value)
    assert "\n" not in sentence and len(sentence) < 300
    return sentence


OPENERS = pytest.mark.parametrize(
    "act", [data.open_source, data.read, lambda path: data.DemonstrationIterator(path, AGENT, 2, 0)]
)


@OPENERS
def test_a_missing_or_empty_file_is_reported_in_one_sentence(
    act: Callable[[Path], Any], tmp_path: Path
):
    assert "there is no demonstration file" in error_message(act, tmp_path / "nothing")
    assert "there is no demonstration file" in error_message(act, tmp_path)
    (tmp_path / "empty").write_bytes(b"")
    assert "is empty" in error_message(act, tmp_path / "empty")
    demonstration_file.write(tmp_path / "none.array_record", [])
    assert "holds no record" in error_message(act, tmp_path / "none.array_record")


@OPENERS
@pytest.mark.parametrize("length", [1, 100, 4096, 70_000, 0.5, -1, -100])
def test_a_truncated_file_is_reported_in_one_sentence(
    act: Callable[[Path], Any], file: Path, tmp_path: Path, length: float
):
    content = file.read_bytes()
    end = int(len(content) * length) if isinstance(length, float) else int(length)
    truncated = content[:end]
    assert len(truncated) < len(content) or length == 70_000
    (tmp_path / "cut").write_bytes(
        truncated if len(truncated) < len(content) else truncated[:-65_536]
    )
    assert "corrupt or no ArrayRecord file" in error_message(act, tmp_path / "cut")


def test_a_flipped_bit_is_reported_in_one_sentence_or_changes_no_record(
    file: Path, tmp_path: Path, demonstrations: list[Trajectory]
):
    content, copy, errors = file.read_bytes(), tmp_path / "flipped", 0
    nonzero_bytes = np.flatnonzero(np.frombuffer(content, np.uint8))
    for i in np.random.default_rng(0).choice(nonzero_bytes, 40):
        copy.write_bytes(content[:i] + bytes([content[i] ^ 8]) + content[i + 1 :])
        try:
            assert [record_content(t) for t in data.read(copy)] == [
                record_content(t) for t in demonstrations
            ]
        except UserError as error:
            assert "is damaged" in str(error) or "corrupt or no ArrayRecord file" in str(error)
            errors += 1
    assert errors > 20


@OPENERS
@pytest.mark.parametrize(
    "content", [b"hello", b"\x00" * 200_000, b'{"opening": []}\n' * 10_000, bytes(range(256)) * 600]
)
def test_a_file_of_another_kind_is_reported_in_one_sentence(
    act: Callable[[Path], Any], tmp_path: Path, content: bytes
):
    (tmp_path / "other").write_bytes(content)
    assert "corrupt or no ArrayRecord file" in error_message(act, tmp_path / "other")


@pytest.mark.parametrize(
    "record",
    [b"", b"no JSON", b"\xff\xfe", b"[]", b"null", b"{}",
     b'{"opening": 1, "turns": [], "task": "", "success": null}',
     b'{"opening": [], "turns": [{"action": "a"}], "task": "", "success": null}',
     b'{"opening": [{}], "turns": [], "task": "", "success": null}'],
)  # fmt: skip
def test_a_record_of_another_kind_is_reported_in_one_sentence(
    demonstrations: list[Trajectory], tmp_path: Path, record: bytes
):
    demonstration_file.write(
        tmp_path / "odd", [demonstration_file.encode(demonstrations[0]), record]
    )
    assert "a demonstration record is corrupt" in error_message(data.read, tmp_path / "odd")
    assert len(data.read(tmp_path / "odd", limit=1)) == 1


def test_fewer_records_than_a_batch_are_reported_in_one_sentence(path: Path):
    sentence = error_message(
        lambda path: data.DemonstrationIterator(path, AGENT, RECORDS + 1, 0), path
    )
    assert sentence.endswith("holds 11 records, fewer than one batch of 12")


def task_names(batches: list[list[Group]]) -> list[str]:
    return [group.task for batch in batches for group in batch]


def take(iterator: data.DemonstrationIterator, batches: int) -> list[list[Group]]:
    return [iterator.next(step) for step in range(batches)]


def test_a_batch_has_one_group_per_demonstration_with_its_calls(
    path: Path, demonstrations: list[Trajectory]
):
    by_task = {t.task: t for t in demonstrations}
    (batch,) = take(data.DemonstrationIterator(path, AGENT, 5, 0), 1)
    assert len(batch) == 5 and all(
        isinstance(group, Group) and len(group.trajectories) == 1 for group in batch
    )
    for group in batch:
        (trajectory,), expected = (
            group.trajectories,
            add_demonstration_calls(by_task[group.task], AGENT),
        )
        assert record_content(trajectory) == record_content(expected) and len(
            trajectory.calls
        ) == len(trajectory.turns)
        for a, b in zip(trajectory.calls, expected.calls):
            assert np.array_equal(a.ids, b.ids) and a.source == "demonstration"


def test_an_action_longer_than_the_budget_is_refused(path: Path, demonstrations: list[Trajectory]):
    longest = max(
        len(call.action)
        for trajectory in demonstrations
        for call in add_demonstration_calls(trajectory, AGENT).calls
    )
    enough, short = (
        dataclasses.replace(AGENT, sampling=Sampling(budget=longest - cut)) for cut in (0, 1)
    )
    take(data.DemonstrationIterator(path, enough, 5, 0), 4)
    with pytest.raises(
        UserError,
        match=rf"takes {longest} tokens, an agent's budget is {longest - 1}: raise agent.budget",
    ):
        take(data.DemonstrationIterator(path, short, 5, 0), 4)


def test_every_epoch_has_every_record_once_in_a_new_order(
    path: Path, demonstrations: list[Trajectory]
):
    tasks = task_names(
        take(data.DemonstrationIterator(path, AGENT, 3, 0), RECORDS)
    )  # three epochs: batches run over their ends
    epochs = [tasks[i : i + RECORDS] for i in range(0, 3 * RECORDS, RECORDS)]
    everything = sorted(t.task for t in demonstrations)
    assert [sorted(epoch) for epoch in epochs] == [everything] * 3
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_the_order_is_a_function_of_the_seed(path: Path):
    first, repeated, other = (
        task_names(take(data.DemonstrationIterator(path, AGENT, 4, seed), 6)) for seed in (1, 1, 2)
    )
    assert first == repeated != other


@pytest.mark.slow
@pytest.mark.parametrize("num_batches", [0, 1, 3, 12])
def test_a_restored_iterator_resumes_at_the_exact_record(path: Path, num_batches: int):
    iterator = data.DemonstrationIterator(path, AGENT, 3, 5)
    take(iterator, num_batches)
    state = json.loads(json.dumps(iterator.state()))
    expected = task_names(take(iterator, 6))
    for before in (0, 4):  # what an iterator has prefetched is dropped
        other = data.DemonstrationIterator(path, AGENT, 3, 5)
        take(other, before)
        other.load(state)
        assert task_names(take(other, 6)) == expected
    iterator.load(state)
    assert task_names(take(iterator, 6)) == expected


def test_reading_the_state_does_not_change_the_iterator(path: Path):
    plain, observed = (
        data.DemonstrationIterator(path, AGENT, 3, 5),
        data.DemonstrationIterator(path, AGENT, 3, 5),
    )
    expected = task_names(take(plain, 8))
    tasks = []
    for _ in range(8):
        observed.state()
        tasks += task_names(take(observed, 1))
    assert tasks == expected


def test_fields_that_only_sampled_trajectories_have_are_not_written(
    demonstrations: list[Trajectory],
):
    with_calls = add_demonstration_calls(demonstrations[0], AGENT)
    sampled = dataclasses.replace(with_calls, seed=7, group=3, agent="policy")
    assert demonstration_file.encode(sampled) == demonstration_file.encode(demonstrations[0])


def test_top_fraction_selects_by_return_and_ties_by_position(
    path: Path, demonstrations: list[Trajectory]
):
    order = sorted(range(RECORDS), key=lambda i: (-demonstrations[i].total_reward, i))
    for fraction, count in ((0.3, 3), (0.5, 6), (1.0, RECORDS), (0.01, 1)):  # batches of one too
        tasks = task_names(
            take(data.DemonstrationIterator(path, AGENT, 1, 0, top_fraction=fraction), 2 * count)
        )
        assert sorted(tasks) == sorted(2 * [demonstrations[i].task for i in order[:count]])
    assert len({t.total_reward for t in demonstrations}) > 2  # the returns differ
    with pytest.raises(UserError, match="top_fraction"):
        data.DemonstrationIterator(path, AGENT, 1, 0, top_fraction=0.0)
    with pytest.raises(UserError, match="holds 3 records, fewer than one batch of 4"):
        data.DemonstrationIterator(path, AGENT, 4, 0, top_fraction=0.3)


def test_successful_only_selects_successful_episodes(path: Path, demonstrations: list[Trajectory]):
    successful = [t for t in demonstrations if t.success]
    assert 1 < len(successful) < RECORDS
    for fraction, count in ((1.0, len(successful)), (0.01, 1)):
        best = sorted(successful, key=lambda t: -t.total_reward)[:count]
        tasks = task_names(
            take(
                data.DemonstrationIterator(
                    path, AGENT, 1, 0, top_fraction=fraction, successful_only=True
                ),
                count,
            )
        )
        assert sorted(tasks) == sorted(t.task for t in best)


def test_a_cut_demonstration_did_not_succeed(tmp_path: Path):
    turn = Turn((), assistant("a"), (user("o"),), 1.0, terminated=True)
    cut = dataclasses.replace(turn, terminated=False)
    silent = [Trajectory((user("go"),), (last,), str(i)) for i, last in enumerate((turn, cut))]
    known = [trajectory.replace(success=True) for trajectory in silent]
    paths = [tmp_path / "silent.array_record", tmp_path / "known.array_record"]
    for path, trajectories in zip(paths, (silent, known)):
        demonstration_file.write(path, map(demonstration_file.encode, trajectories))
    fields = [data.record_fields(path)["success"].tolist() for path in paths]
    assert fields == [[-1, 0], [1, 1]]
    ended = np.array([(1.0, 1, -1), (2.0, 3, -1)], INDEX_DTYPE)
    with pytest.raises(UserError, match="successful_only needs demonstrations that say"):
        data.select_records(ended, 1.0, True)


def test_the_order_is_that_of_a_grain_dataset(path: Path, demonstrations: list[Trajectory]):
    dataset = (
        grain.MapDataset.source([t.task for t in demonstrations])
        .seed(3)
        .shuffle()
        .repeat(4)
        .batch(4, batch_fn=list)
    )
    assert task_names(take(data.DemonstrationIterator(path, AGENT, 4, 3), 8)) == [
        task for i in range(8) for task in dataset[i] or ()
    ]


class FakeProcessGroup(ProcessGroup):
    """One of several processes, without the others."""

    def __init__(self, index: int, count: int) -> None:
        self.index, self.count = index, count


class RecordingSource:
    """A source that records the indices that are read."""

    def __init__(self, source: Any) -> None:
        self.source, self.read = source, list[int]()

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, i: int) -> bytes:
        self.read.append(i)
        return self.source[i]


def test_processes_read_disjoint_parts_of_the_same_batches(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    def read(
        process_group: ProcessGroup | None, batches: int, state: Any = None
    ) -> tuple[list[list[str]], Any, list[int]]:
        source = RecordingSource(data.open_source(path))
        with monkeypatch.context() as patch:
            patch.setattr(data, "open_source", lambda path: source)
            iterator = data.DemonstrationIterator(path, AGENT, 5, 7, process_group)
        assert source.read == []  # nothing is read before the first batch
        if state is not None:
            iterator.load(state)
        return (
            [task_names([iterator.next(i)]) for i in range(batches)],
            iterator.state(),
            source.read,
        )

    alone, _, _ = read(None, 6)
    parts = [read(FakeProcessGroup(p, 2), 2) for p in (0, 1)]
    for i in range(2):
        assert [part[0][i] for part in parts] == [alone[i][0::2], alone[i][1::2]]
    assert parts[0][1] == parts[1][1]
    # A process reads no record of the other: three of five, or two (a batch or two ahead).
    assert (
        len(parts[0][2]) <= 3 * 5
        and len(parts[1][2]) <= 2 * 5
        and not set(parts[0][2][:6]) & set(parts[1][2][:4])
    )
    # Three processes resume where two stopped.
    later = [read(FakeProcessGroup(p, 3), 4, parts[0][1])[0] for p in range(3)]
    assert [[part[i] for part in later] for i in range(4)] == [
        [batch[p::3] for p in range(3)] for batch in alone[2:]
    ]


def test_the_best_records_of_a_dataset_are_selected_by_its_index_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(data, "decode", lambda record: pytest.fail("a record was decoded"))
    data.DemonstrationIterator(folder, AGENT, 1, 0, top_fraction=0.5)


def damaged_copy(folder: Path, copy: Path, name: str, content: bytes | None) -> Path:
    """A copy of a dataset in which one file has other content, or is missing."""
    shutil.copytree(folder, copy)
    (path,) = copy.glob(name)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    return copy


SHARD = "records-00002-of-00004"


@OPENERS
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("recipe.json", None, "a folder without a manifest"),
        ("recipe.json", b"", "missing or corrupt"),
        ("recipe.json", b"[1]", "missing or corrupt"),
        ("recipe.json", b'{"format_version": 1, "environment": "a"}', "missing or corrupt"),
        (
            "recipe.json",
            b'{"format_version": 1, "environment": "a", "player": "b", "records": "c"}',
            "missing or corrupt",
        ),
        (
            "recipe.json",
            b'{"format_version": 1, "environment": "a", "player": "b", "records": -1}',
            "a dataset needs records >= 1",
        ),
        (f"{SHARD}.npy", None, "is not complete, 1 of its 4 shards"),
        (f"{SHARD}.array_record", None, "is not complete, 1 of its 4 shards"),
        (f"{SHARD}.array_record", b"", f"{SHARD}.array_record is empty"),
        (f"{SHARD}.array_record", b"\x00" * 200_000, f"{SHARD}.array_record is corrupt"),
    ],
)
def test_a_damaged_dataset_is_reported_in_one_sentence(
    act: Callable[[Path], Any],
    folder: Path,
    tmp_path: Path,
    name: str,
    content: bytes | None,
    message: str,
):
    assert message in error_message(act, damaged_copy(folder, tmp_path / "dataset", name, content))


@pytest.mark.parametrize(
    ("version", "description"),
    [(None, "no format version"), (DATASET_FORMAT_VERSION + 1, "format version 2")],
)
def test_a_dataset_of_another_format_version_is_refused(
    folder: Path, tmp_path: Path, version: int | None, description: str
):
    manifest = json.loads((folder / MANIFEST_FILE).read_text()) | {"format_version": version}
    manifest = {key: value for key, value in manifest.items() if value is not None}
    content = json.dumps(manifest).encode()
    copy = damaged_copy(folder, tmp_path / "dataset", MANIFEST_FILE, content)
    expected = f"the dataset {copy} has {description}, and this version of the package reads only"
    for act in (data.open_source, lambda path: bind_manifest(path, MANIFEST)):
        assert error_message(act, copy).startswith(expected)
    assert (copy / MANIFEST_FILE).read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"x" * 500])
def test_a_damaged_index_is_reported_in_one_sentence(folder: Path, tmp_path: Path, content: bytes):
    copy = damaged_copy(folder, tmp_path / "dataset", f"{SHARD}.npy", content)
    assert f"{SHARD}.npy is missing or corrupt" in error_message(
        lambda path: data.DemonstrationIterator(path, AGENT, 1, 0, top_fraction=0.5), copy
    )


def test_an_index_of_other_records_or_of_python_objects_is_reported_in_one_sentence(
    folder: Path, tmp_path: Path, demonstrations: list[Trajectory]
):
    path = MANIFEST.shard_path(tmp_path / "dataset", 2)
    shutil.copytree(folder, tmp_path / "dataset")
    for entries in (np.zeros(1, INDEX_DTYPE), np.zeros(3), np.array([print, print, print])):
        np.save(path.with_suffix(".npy"), entries)
        assert "missing or corrupt" in error_message(data.record_fields, tmp_path / "dataset")
    put_shard(tmp_path / "dataset", MANIFEST, 2, demonstrations)
    demonstration_file.write(path, [demonstration_file.encode(demonstrations[0])])
    assert "holds 9 records, not 11" in error_message(data.open_source, tmp_path / "dataset")
