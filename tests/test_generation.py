"""Data sets: the records that runs make of the same tasks, whoever plays them, and exactly those after any interruption."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from small_runs import rollouts, small_run

from agentrl_jax import data, generation, records
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.experiment import DemonstrationConfig, Demonstrations
from agentrl_jax.locks import alone
from agentrl_jax.run import Run
from agentrl_jax.runtime import Runtime
from agentrl_jax.shards import FIRST_WORLD, Recipe, fact_of, facts_of
from agentrl_jax.strategies import Scripted
from agentrl_jax.worker import Worlds
from agentrl_jax.workers import InProcess, Task

WORDLE = Recipe("agentrl_jax.envs:agentrl/Wordle-v0", "mixture", 11, {"words": 30}, seed=5, first=4, shards=3)


def raw(folder: Path) -> list[bytes]:
    source = data.open_source(folder)
    return [source[i] for i in range(len(source))]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def wordle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wordle") / "set"
    generation.write(folder, WORDLE)
    return folder


def test_the_shards_divide_the_episodes():
    assert [list(WORDLE.episodes(shard)) for shard in range(3)] == [[4, 5, 6], [7, 8, 9, 10], [11, 12, 13, 14]]
    assert [dataclasses.replace(WORDLE, records=n, shards=0).shards for n in (1, 10_000, 10_001)] == [1, 1, 2]
    assert Recipe("a", "b", 9).world(7) == FIRST_WORLD + 7
    for wrong in ({"records": 0}, {"shards": 12}, {"shards": -1}, {"seed": -1}, {"first": -1}):
        with pytest.raises(UserError, match="a data set needs"):
            dataclasses.replace(WORDLE, **wrong)


@pytest.mark.parametrize(
    "recipe",
    [
        WORDLE,
        Recipe("agentrl_jax.envs:agentrl/MazePO-v0", "mixture", 3),
        Recipe("agentrl_jax.envs:agentrl/TextNav-v0", "mixture", 6, seed=1, shards=2),
        Recipe("agentrl_jax.envs:agentrl/TwentyQuestions-v0", "mixture", 2, seed=2),
        Recipe("agentrl_jax.envs:agentrl/CarDealer-v0", "mixture", 4, seed=3),
    ],
    ids=lambda recipe: recipe.environment.rpartition("/")[2],
)
def test_the_records_are_those_of_the_runtime(recipe: Recipe, tmp_path: Path):
    last = recipe.first + recipe.records
    tasks = [Task(recipe.environment, recipe.world(i), recipe.options) for i in range(last)]
    with Runtime({}, {}, InProcess()) as runtime:
        groups = runtime.collect(Scripted(recipe.player), tasks, (recipe.seed, -1))
    played = [group.trajectories[0] for group in groups[recipe.first :]]
    generation.write(tmp_path / "set", recipe)
    assert raw(tmp_path / "set") == list(map(records.encode, played))
    facts = facts_of(tmp_path / "set")
    assert list(map(tuple, facts.tolist())) == list(map(fact_of, played))
    assert facts["return"].tolist() == [t.total_reward for t in played]


def test_a_run_writes_the_same_and_trains_on_a_folder(tmp_path: Path):
    generation.write(tmp_path / "set", Recipe("letters:tests/Letters-v0", "random", 8, shards=3))
    with Run(small_run(rollouts()), tmp_path / "own", quiet=True) as run:
        assert run.demonstrations is not None and raw(run.demonstrations) == raw(tmp_path / "set")
    given = DemonstrationConfig(path=str(tmp_path / "set"))
    with Run(dataclasses.replace(small_run(rollouts()), demonstrations=given), tmp_path / "run", quiet=True) as run:
        feed = Demonstrations(batch=1, won=True).open(run)
        seen = {feed.next(step)[0].task for step in range(8)}
    assert seen == {t.task for t in data.read(tmp_path / "set") if t.success} and 0 < len(seen) < 8


def test_a_set_goes_on_where_another_ends(wordle: Path, tmp_path: Path):
    for name, first, count in (("train", 4, 7), ("validation", 11, 4)):
        generation.write(tmp_path / name, dataclasses.replace(WORDLE, first=first, records=count, shards=2))
    assert raw(tmp_path / "train") + raw(tmp_path / "validation") == raw(wordle)
    generation.write(tmp_path / "other", dataclasses.replace(WORDLE, seed=6))
    assert not set(raw(tmp_path / "other")) & set(raw(wordle))


def test_two_processes_write_what_one_writes(wordle: Path, tmp_path: Path):
    told: list[int] = []
    generation.write(tmp_path / "set", WORDLE, 2, told.append)
    assert files(tmp_path / "set") == files(wordle) and sorted(told) == [3, 4, 4]


@pytest.mark.parametrize("stop", range(11))
def test_a_set_that_was_interrupted_anywhere_is_gone_on_with(stop: int, wordle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder, play, played, ends = tmp_path / "set", generation.play, list[int](), [stop]

    def noted(worlds: Worlds, recipe: Recipe, episode: int) -> tuple:
        played.append(episode)
        if ends and len(played) > ends[0]:
            raise KeyboardInterrupt
        return play(worlds, recipe, episode)

    monkeypatch.setattr(generation, "play", noted)
    with pytest.raises(KeyboardInterrupt):
        generation.write(folder, WORDLE)
    there = [shard for shard in range(3) if shard not in WORDLE.missing(folder)]
    assert there == [shard for shard in range(3) if WORDLE.episodes(shard)[-1] < 4 + stop]
    with pytest.raises(UserError, match=f"{3 - len(there)} of its 3 shards are missing"):
        data.open_source(folder)
    del played[:], ends[:]
    generation.write(folder, WORDLE)
    assert played == [i for shard in range(3) if shard not in there for i in WORDLE.episodes(shard)]
    assert files(folder) == files(wordle)
    del played[:]
    generation.write(folder, WORDLE)
    assert played == []


def test_an_index_comes_after_its_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wordle: Path):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(generation, "write_index", lambda path, facts: (_ for _ in ()).throw(KeyboardInterrupt))
        generation.write(tmp_path / "set", WORDLE)
    assert WORDLE.shard_path(tmp_path / "set", 0).exists() and WORDLE.missing(tmp_path / "set") == [0, 1, 2]
    generation.write(tmp_path / "set", WORDLE)
    assert files(tmp_path / "set") == files(wordle)


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_command_that_is_ended_leaves_no_process_and_is_gone_on_with(tmp_path: Path, end: signal.Signals):
    recipe = Recipe("agentrl_jax.envs:agentrl/MazePO-v0", "mixture", 1500, shards=150)
    code = (
        "import sys\nfrom agentrl_jax import generation\nfrom agentrl_jax.shards import Recipe\nfrom pathlib import Path\n"
        f"if __name__ == '__main__': generation.write(Path(sys.argv[1]), {recipe!r}, 2)"
    )
    (tmp_path / "write.py").write_text(code)
    command, environment = [sys.executable, str(tmp_path / "write.py")], {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    writing = subprocess.Popen([*command, str(tmp_path / "set")], env=environment)
    until = time.monotonic() + 60
    while len(recipe.missing(tmp_path / "set")) > 147 and time.monotonic() < until:
        time.sleep(0.01)
    children = Path(f"/proc/{writing.pid}/task/{writing.pid}/children").read_text().split()
    writing.send_signal(end)
    writing.wait()
    assert 0 < len(recipe.missing(tmp_path / "set")) <= 147 and len(children) >= 2 and writing.returncode != 0
    while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)
    for name in ("set", "whole"):
        subprocess.run([*command, str(tmp_path / name)], env=environment, check=True)
    found, expected = files(tmp_path / "set"), files(tmp_path / "whole")
    assert {name: found[name] for name in expected} == expected
    assert all(re.fullmatch(r".*\.unfinished", name) for name in found.keys() - expected.keys())


def test_another_recipe_player_or_option_is_one_sentence(wordle: Path, tmp_path: Path):
    with pytest.raises(UserError, match=r"holds another data set \(it differs in player, seed\): name another folder"):
        generation.write(wordle, dataclasses.replace(WORDLE, player="expert", seed=1))
    for change, said in (
        ({"player": "nobody"}, "Wordle has no player 'nobody', only random"),
        ({"options": {"colour": 1}}, "does not take the options"),
        ({"environment": "agentrl/Nope-v0"}, "no environment is called"),
    ):
        with pytest.raises(UserError, match=said):
            generation.write(tmp_path / "set", dataclasses.replace(WORDLE, **change))
    assert not (tmp_path / "set").exists()
    with alone(wordle, "at work"), pytest.raises(UserError, match="another command is writing a data set in"):
        generation.write(wordle, WORDLE)


def test_a_world_that_fails_is_replaced_and_then_given_up(monkeypatch: pytest.MonkeyPatch, wordle: Path):
    play, left, made = Worlds.play, [2], list[object]()

    def sometimes(self: Worlds, *arguments: object) -> object:
        left[0] -= 1
        if left[0] >= 0:
            made.append(self._of(generation.WORLD))
            raise [EnvironmentFailure, ValueError, KeyError][left[0]]("the world is on fire")
        return play(self, *arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Worlds, "play", sometimes)
    record, facts = generation.play(Worlds(lambda: None), WORDLE, 4)
    assert record == raw(wordle)[0] and facts == tuple(facts_of(wordle)[0].tolist())
    assert len(set(made)) == 2  # each attempt has a world of its own
    left[0] = 3
    with pytest.raises(UserError, match=r"episode 4 failed in 3 fresh worlds .*on fire"):
        generation.play(Worlds(lambda: None), WORDLE, 4)


def test_a_process_that_dies_is_one_sentence_and_the_set_is_gone_on_with(tmp_path: Path):
    recipe = Recipe("naughty:Naughty-v0", "random", 4, {"how": "die", "path": str(tmp_path / "resets")}, shards=2)
    with pytest.raises(UserError, match=r"a process that was writing .* died: the same command goes on"):
        generation.write(tmp_path / "set", recipe, 2)
    generation.write(tmp_path / "set", recipe)  # the first world alone dies
    assert [t.total_reward for t in data.read(tmp_path / "set")] == [3.0] * 4


def test_the_index_is_what_the_records_say(wordle: Path):
    told = np.array([(t.total_reward, len(t.turns), int(bool(t.success))) for t in data.read(wordle)])
    assert np.array_equal(told, np.array(facts_of(wordle).tolist()))
