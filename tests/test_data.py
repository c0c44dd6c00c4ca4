"""Demonstration files and data sets give back what was written, say where they are broken, and are read on at the exact record."""

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
from agentrl_jax import data, records
from agentrl_jax.context import FullHistory
from agentrl_jax.episodes import scripted_calls
from agentrl_jax.errors import UserError
from agentrl_jax.hosts import Hosts
from agentrl_jax.messages import Message, assistant, user
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.rendering import TextRenderer
from agentrl_jax.runtime import Runtime
from agentrl_jax.shards import FACTS, Recipe, claim, fact_of, write_index
from agentrl_jax.speaking import Agent
from agentrl_jax.strategies import Scripted
from agentrl_jax.trajectories import Group, Sampling, Trajectory, Turn
from agentrl_jax.workers import InProcess, Task

AGENT = Agent("policy", TextRenderer(byte_tokenizer()), FullHistory(), Sampling())
RECORDS = 11

texts = st.text(max_size=12)


def told(trajectory: Trajectory) -> Any:
    """What a demonstration keeps of a trajectory."""
    turns = [
        (t.action.text, t.observation, t.reward, t.terminated, t.truncated, bool(t.info.get("forget", False))) for t in trajectory.turns
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
def test_a_record_is_decoded_to_what_was_encoded(turns: list, task: str, success: bool | None):
    made = tuple(
        Turn((), assistant(action), tuple(map(user, seen)), reward, terminated=end, truncated=cut, info={"forget": True} if forget else {})
        for action, seen, reward, end, cut, forget in turns
    )
    before = Trajectory((Message("system", "rules"), user(task)), made, task, success=success, agent="expert")
    after = records.decode(records.encode(before))
    assert told(after) == told(before) and after.agent == "demonstration" and after.calls == ()


@pytest.fixture(scope="module")
def demonstrations() -> list[Trajectory]:
    """Games of Wordle and walks through the maze; no two have the same task."""
    tasks = [Task("agentrl_jax.envs:agentrl/Wordle-v0", seed, {"words": 30}) for seed in range(RECORDS - 3)]
    tasks += [Task("agentrl_jax.envs:agentrl/MazePO-v0", seed) for seed in range(3)]
    with Runtime({}, {}, InProcess()) as runtime:
        groups = runtime.collect(Scripted("mixture"), tasks, (0, 0))
    return [group.trajectories[0] for group in groups]


@pytest.fixture(scope="module")
def file(demonstrations: list[Trajectory], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "deep" / "demonstrations.array_record"
    records.write(path, map(records.encode, demonstrations))
    return path


def put_shard(folder: Path, recipe: Recipe, shard: int, demonstrations: list[Trajectory]) -> None:
    some = [demonstrations[i] for i in recipe.episodes(shard)]
    records.write(recipe.shard_path(folder, shard), map(records.encode, some))
    write_index(recipe.shard_path(folder, shard), np.array(list(map(fact_of, some)), FACTS))


RECIPE = Recipe("agentrl_jax.envs:agentrl/Wordle-v0", "mixture", RECORDS, shards=4)


@pytest.fixture(scope="module")
def folder(demonstrations: list[Trajectory], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("set")
    claim(path, RECIPE)
    for shard in range(4):
        put_shard(path, RECIPE, shard, demonstrations)
    return path


@pytest.fixture(scope="module", params=["file", "folder"])
def path(request: pytest.FixtureRequest) -> Path:
    """The demonstrations as one file, and as a data set of four."""
    return request.getfixturevalue(request.param)


def test_a_file_gives_back_what_was_written_in_order(path: Path, demonstrations: list[Trajectory]):
    assert [told(t) for t in data.read(path)] == [told(t) for t in demonstrations]
    assert [told(t) for t in data.read(path, limit=4)] == [told(t) for t in demonstrations[:4]]
    assert len(data.read(path, limit=99)) == RECORDS
    assert data.returns(data.read(path)).tolist() == [t.total_reward for t in demonstrations]


def test_a_file_appears_under_its_name_only_when_it_is_whole(tmp_path: Path, demonstrations: list[Trajectory]):
    path = tmp_path / "half.array_record"

    def full_disk() -> Iterator[bytes]:
        yield records.encode(demonstrations[0])
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        records.write(path, full_disk())
    assert not path.exists()
    records.write(path, map(records.encode, demonstrations[:2]))
    assert len(data.read(path)) == 2 and [p.name for p in tmp_path.iterdir()] == [path.name]


def test_the_texts_end_every_message_with_its_stop(demonstrations: list[Trajectory]):
    game = demonstrations[0]
    seen = list(data.texts([game]))
    assert seen[0] == "Wordle:\n" and len(seen) == 1 + 2 * len(game.turns) and all(text.endswith("\n") for text in seen)
    assert "".join(seen) == "Wordle:\n" + "".join(turn.action.text + "\n" + turn.observation[0].text for turn in game.turns)


def opened(act: Callable[[Path], Any], path: Path) -> str:
    """The one sentence that a person reads."""
    with pytest.raises(UserError) as caught:
        act(path)
    sentence = str(caught.value)
    assert "\n" not in sentence and len(sentence) < 300
    return sentence


OPENERS = pytest.mark.parametrize("act", [data.open_source, data.read, lambda path: data.DemonstrationFeed(path, AGENT, 2, 0)])


@OPENERS
def test_a_missing_or_empty_file_is_one_sentence(act: Callable[[Path], Any], tmp_path: Path):
    assert "there is no demonstration file" in opened(act, tmp_path / "nothing")
    assert "there is no demonstration file" in opened(act, tmp_path)
    (tmp_path / "empty").write_bytes(b"")
    assert "is empty" in opened(act, tmp_path / "empty")
    records.write(tmp_path / "none.array_record", [])
    assert "holds no record" in opened(act, tmp_path / "none.array_record")


@OPENERS
@pytest.mark.parametrize("keep", [1, 100, 4096, 70_000, 0.5, -1, -100])
def test_a_file_that_was_cut_is_one_sentence(act: Callable[[Path], Any], file: Path, tmp_path: Path, keep: float):
    whole = file.read_bytes()
    cut = whole[: int(len(whole) * keep)] if isinstance(keep, float) else whole[: int(keep)]
    assert len(cut) < len(whole) or keep == 70_000
    (tmp_path / "cut").write_bytes(cut if len(cut) < len(whole) else cut[:-65_536])
    assert "corrupt or no ArrayRecord file" in opened(act, tmp_path / "cut")


def test_a_file_in_which_a_bit_flipped_is_one_sentence_or_the_same_records(file: Path, tmp_path: Path, demonstrations: list[Trajectory]):
    content, copy, found = file.read_bytes(), tmp_path / "flipped", 0
    filled = np.flatnonzero(np.frombuffer(content, np.uint8))
    for place in np.random.default_rng(0).choice(filled, 40):
        copy.write_bytes(content[:place] + bytes([content[place] ^ 8]) + content[place + 1 :])
        try:
            assert [told(t) for t in data.read(copy)] == [told(t) for t in demonstrations]
        except UserError as error:
            assert "is damaged" in str(error) or "corrupt or no ArrayRecord file" in str(error)
            found += 1
    assert found > 20


@OPENERS
@pytest.mark.parametrize("content", [b"hello", b"\x00" * 200_000, b'{"opening": []}\n' * 10_000, bytes(range(256)) * 600])
def test_a_file_of_another_kind_is_one_sentence(act: Callable[[Path], Any], tmp_path: Path, content: bytes):
    (tmp_path / "other").write_bytes(content)
    assert "corrupt or no ArrayRecord file" in opened(act, tmp_path / "other")


@pytest.mark.parametrize(
    "record",
    [b"", b"no JSON", b"\xff\xfe", b"[]", b"null", b"{}", b'{"opening": 1, "turns": [], "task": "", "success": null}',
     b'{"opening": [], "turns": [{"action": "a"}], "task": "", "success": null}',
     b'{"opening": [{}], "turns": [], "task": "", "success": null}'],
)  # fmt: skip
def test_a_record_of_another_kind_is_one_sentence(demonstrations: list[Trajectory], tmp_path: Path, record: bytes):
    records.write(tmp_path / "odd", [records.encode(demonstrations[0]), record])
    assert "a demonstration record is corrupt" in opened(data.read, tmp_path / "odd")
    assert len(data.read(tmp_path / "odd", limit=1)) == 1


def test_fewer_records_than_a_batch_are_one_sentence(path: Path):
    sentence = opened(lambda path: data.DemonstrationFeed(path, AGENT, RECORDS + 1, 0), path)
    assert sentence.endswith("holds 11 records, fewer than one batch of 12")


def names(batches: list[list[Group]]) -> list[str]:
    return [group.task for batch in batches for group in batch]


def some(feed: data.DemonstrationFeed, batches: int) -> list[list[Group]]:
    return [feed.next(step) for step in range(batches)]


def test_a_batch_is_a_group_a_demonstration_with_its_calls(path: Path, demonstrations: list[Trajectory]):
    by_task = {t.task: t for t in demonstrations}
    (batch,) = some(data.DemonstrationFeed(path, AGENT, 5, 0), 1)
    assert len(batch) == 5 and all(isinstance(group, Group) and len(group.trajectories) == 1 for group in batch)
    for group in batch:
        (trajectory,), expected = group.trajectories, scripted_calls(by_task[group.task], AGENT)
        assert told(trajectory) == told(expected) and len(trajectory.calls) == len(trajectory.turns)
        for a, b in zip(trajectory.calls, expected.calls):
            assert np.array_equal(a.ids, b.ids) and a.source == "demonstration"


def test_an_action_that_the_agent_could_never_say_is_refused(path: Path, demonstrations: list[Trajectory]):
    longest = max(len(call.action) for one in demonstrations for call in scripted_calls(one, AGENT).calls)
    enough, short = (dataclasses.replace(AGENT, sampling=Sampling(budget=longest - cut)) for cut in (0, 1))
    some(data.DemonstrationFeed(path, enough, 5, 0), 4)
    with pytest.raises(UserError, match=rf"takes {longest} tokens, an agent's budget is {longest - 1}: raise agent.budget"):
        some(data.DemonstrationFeed(path, short, 5, 0), 4)


def test_every_epoch_shows_every_record_once_in_an_order_of_its_own(path: Path, demonstrations: list[Trajectory]):
    seen = names(some(data.DemonstrationFeed(path, AGENT, 3, 0), RECORDS))  # three epochs: batches run over their ends
    epochs = [seen[i : i + RECORDS] for i in range(0, 3 * RECORDS, RECORDS)]
    everything = sorted(t.task for t in demonstrations)
    assert [sorted(epoch) for epoch in epochs] == [everything] * 3
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_the_order_follows_from_the_seed(path: Path):
    first, again, other = (names(some(data.DemonstrationFeed(path, AGENT, 4, seed), 6)) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("done", [0, 1, 3, 12])
def test_a_restored_feed_goes_on_at_the_exact_record(path: Path, done: int):
    feed = data.DemonstrationFeed(path, AGENT, 3, 5)
    some(feed, done)
    state = json.loads(json.dumps(feed.state()))
    expected = names(some(feed, 6))
    for before in (0, 4):  # a feed that has read ahead forgets it
        other = data.DemonstrationFeed(path, AGENT, 3, 5)
        some(other, before)
        other.load(state)
        assert names(some(other, 6)) == expected
    feed.load(state)
    assert names(some(feed, 6)) == expected


def test_taking_the_state_does_not_disturb_the_feed(path: Path):
    plain, watched = data.DemonstrationFeed(path, AGENT, 3, 5), data.DemonstrationFeed(path, AGENT, 3, 5)
    expected = names(some(plain, 8))
    seen = []
    for _ in range(8):
        watched.state()
        seen += names(some(watched, 1))
    assert seen == expected


def test_what_only_a_sampled_trajectory_has_is_not_written(demonstrations: list[Trajectory]):
    with_calls = scripted_calls(demonstrations[0], AGENT)
    named = dataclasses.replace(with_calls, seed=7, group=3, agent="policy")
    assert records.encode(named) == records.encode(demonstrations[0])


def test_the_best_share_is_drawn_from_by_return_and_of_equals_the_earlier(path: Path, demonstrations: list[Trajectory]):
    order = sorted(range(RECORDS), key=lambda i: (-demonstrations[i].total_reward, i))
    for share, count in ((0.3, 3), (0.5, 6), (1.0, RECORDS), (0.01, 1)):  # batches of one too
        seen = names(some(data.DemonstrationFeed(path, AGENT, 1, 0, best=share), 2 * count))
        assert sorted(seen) == sorted(2 * [demonstrations[i].task for i in order[:count]])
    assert len({t.total_reward for t in demonstrations}) > 2  # there is something to choose by
    with pytest.raises(UserError, match="best share"):
        data.DemonstrationFeed(path, AGENT, 1, 0, best=0.0)
    with pytest.raises(UserError, match="holds 3 records, fewer than one batch of 4"):
        data.DemonstrationFeed(path, AGENT, 4, 0, best=0.3)


def test_only_what_succeeded_is_drawn_from_where_that_is_asked(path: Path, demonstrations: list[Trajectory]):
    won = [t for t in demonstrations if t.success]
    assert 1 < len(won) < RECORDS
    for share, count in ((1.0, len(won)), (0.01, 1)):
        best = sorted(won, key=lambda t: -t.total_reward)[:count]
        seen = names(some(data.DemonstrationFeed(path, AGENT, 1, 0, best=share, won=True), count))
        assert sorted(seen) == sorted(t.task for t in best)


def test_the_order_is_that_of_grain_over_the_records(path: Path, demonstrations: list[Trajectory]):
    whole = grain.MapDataset.source([t.task for t in demonstrations]).seed(3).shuffle().repeat(4).batch(4, batch_fn=list)
    assert names(some(data.DemonstrationFeed(path, AGENT, 4, 3), 8)) == [task for i in range(8) for task in whole[i] or ()]


class Host(Hosts):
    """One of several that are not there."""

    def __init__(self, index: int, count: int) -> None:
        self.index, self.count = index, count


class Watched:
    """A source that notes what is read."""

    def __init__(self, source: Any) -> None:
        self.source, self.read = source, list[int]()

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, i: int) -> bytes:
        self.read.append(i)
        return self.source[i]


def test_hosts_read_disjoint_shares_of_the_same_batches(path: Path, monkeypatch: pytest.MonkeyPatch):
    def read(hosts: Hosts | None, batches: int, state: Any = None) -> tuple[list[list[str]], Any, list[int]]:
        source = Watched(data.open_source(path))
        with monkeypatch.context() as patch:
            patch.setattr(data, "open_source", lambda path: source)
            feed = data.DemonstrationFeed(path, AGENT, 5, 7, hosts)
        assert source.read == []  # nothing is read before it is asked for
        if state is not None:
            feed.load(state)
        return [names([feed.next(i)]) for i in range(batches)], feed.state(), source.read

    alone, _, _ = read(None, 6)
    shares = [read(Host(p, 2), 2) for p in (0, 1)]
    for i in range(2):
        assert [share[0][i] for share in shares] == [alone[i][0::2], alone[i][1::2]]
    assert shares[0][1] == shares[1][1]
    # A host of two reads no record of the other's: three of five, or two (a batch or two ahead).
    assert len(shares[0][2]) <= 3 * 5 and len(shares[1][2]) <= 2 * 5 and not set(shares[0][2][:6]) & set(shares[1][2][:4])
    # Three go on from where two were.
    later = [read(Host(p, 3), 4, shares[0][1])[0] for p in range(3)]
    assert [[share[i] for share in later] for i in range(4)] == [[batch[p::3] for p in range(3)] for batch in alone[2:]]


def test_the_best_of_a_data_set_are_found_in_its_index_alone(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data, "decode", lambda record: pytest.fail("a record was decoded"))
    data.DemonstrationFeed(folder, AGENT, 1, 0, best=0.5)


def broken(folder: Path, copy: Path, name: str, content: bytes | None) -> Path:
    """A copy of a data set in which one file is something else, or nothing."""
    shutil.copytree(folder, copy)
    (found,) = copy.glob(name)
    found.unlink()
    if content is not None:
        found.write_bytes(content)
    return copy


SHARD = "records-00002-of-00004"


@OPENERS
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("recipe.json", None, "no data set's"),
        ("recipe.json", b"", "missing or corrupt"),
        ("recipe.json", b"[1]", "missing or corrupt"),
        ("recipe.json", b'{"environment": "a"}', "missing or corrupt"),
        ("recipe.json", b'{"environment": "a", "player": "b", "records": "c"}', "missing or corrupt"),
        ("recipe.json", b'{"environment": "a", "player": "b", "records": -1}', "a data set needs records >= 1"),
        (f"{SHARD}.npy", None, "is not whole, 1 of its 4 shards"),
        (f"{SHARD}.array_record", None, "is not whole, 1 of its 4 shards"),
        (f"{SHARD}.array_record", b"", f"{SHARD}.array_record is empty"),
        (f"{SHARD}.array_record", b"\x00" * 200_000, f"{SHARD}.array_record is corrupt"),
    ],
)
def test_a_broken_data_set_is_one_sentence(
    act: Callable[[Path], Any], folder: Path, tmp_path: Path, name: str, content: bytes | None, said: str
):
    assert said in opened(act, broken(folder, tmp_path / "set", name, content))


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"x" * 500])
def test_a_broken_index_is_one_sentence(folder: Path, tmp_path: Path, content: bytes):
    copy = broken(folder, tmp_path / "set", f"{SHARD}.npy", content)
    assert f"{SHARD}.npy is missing or corrupt" in opened(lambda path: data.DemonstrationFeed(path, AGENT, 1, 0, best=0.5), copy)


def test_an_index_of_other_records_or_of_python_objects_is_one_sentence(folder: Path, tmp_path: Path, demonstrations: list[Trajectory]):
    path = RECIPE.shard_path(tmp_path / "set", 2)
    shutil.copytree(folder, tmp_path / "set")
    for facts in (np.zeros(1, FACTS), np.zeros(3), np.array([print, print, print])):
        np.save(path.with_suffix(".npy"), facts)
        assert "missing or corrupt" in opened(data.facts_in, tmp_path / "set")
    put_shard(tmp_path / "set", RECIPE, 2, demonstrations)
    records.write(path, [records.encode(demonstrations[0])])
    assert "holds 9 records, not 11" in opened(data.open_source, tmp_path / "set")
