"""The league: which snapshots are kept, who is drawn, and that a run that was killed goes on with the same opponents."""

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hand_made import ScriptedEngine

from agentrl_jax import loop
from agentrl_jax.algorithms.methods.dialogue import mars
from agentrl_jax.algorithms.strategies.league import League, closest, hardest
from agentrl_jax.algorithms.strategies.self_play import SelfPlay
from agentrl_jax.configs.small import KUHN, rates, small
from agentrl_jax.errors import UserError
from agentrl_jax.experiment import Experiment, Rollouts
from agentrl_jax.launch.methods.exploiting import exploitability
from agentrl_jax.messages import assistant
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.rendering import TextRenderer
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Group, Trajectory, Turn
from agentrl_jax.workers import InProcess


class Weights(ScriptedEngine):
    """Remembers what is published."""

    def __init__(self) -> None:
        super().__init__(TextRenderer(byte_tokenizer()), "p")
        self.held_weights: list[tuple[float, int]] = []

    def publish(self, params: Any, version: int, recompute: bool = False) -> None:
        self.held_weights.append((float(params["w"][0]), version))


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[Callable[[League], Runtime]]:
    """Lets a league listen to a runtime of two engines. The weights of version v are all v."""
    with contextlib.ExitStack() as runtimes:

        def join(league: League) -> Runtime:
            runtime = runtimes.enter_context(Runtime({"policy": Weights(), "opponent": Weights()}, {}, InProcess()))
            league.listen(runtime, tmp_path / "league", seed=7)
            return runtime

        yield join


def play(league: League, runtime: Runtime, versions: range, score: float = 0.5) -> list[int]:
    """The opponents of these versions; all games of a step end with this score."""
    drawn = []
    for version in versions:
        runtime.publish({"w": jnp.full(2, version, jnp.float32)}, version)
        drawn.append(league.drawn)
        league.learn([league.tell([group(score)] * 2)])
    return drawn


def sent(runtime: Runtime) -> list[tuple[float, int]]:
    engine = runtime.engines["opponent"]
    assert isinstance(engine, Weights)
    return engine.held_weights


def group(score: float) -> Group:
    reward = {0.0: -1.0, 0.5: 0.0, 1.0: 2.0}[score]
    return Group("game#0", (Trajectory((), (Turn((), assistant("p"), (), reward),)),))


def test_the_start_and_then_every_so_manyth_weights_are_kept_and_the_oldest_go(joined: Callable, tmp_path: Path):
    league = League(every=3, most=2)
    run = joined(league)
    drawn = play(league, run, range(11))
    assert list(league.scores) == [6, 9] and {int(path.name) for path in (tmp_path / "league").iterdir()} == {6, 9}
    assert all(version in {0, 3, 6, 9} and version <= at for at, version in enumerate(drawn))
    assert sent(run) == [(v, v) for i, v in enumerate(drawn) if i == 0 or v != drawn[i - 1]]


def test_a_checkpoints_snapshots_stay_until_two_later_ones_do_without_them(joined: Callable, tmp_path: Path):
    league = League(every=1, most=1)
    run = joined(league)
    play(league, run, range(1))
    league.state()  # names 0
    play(league, run, range(1, 4))
    assert sorted(int(path.name) for path in (tmp_path / "league").iterdir()) == [0, 3]
    league.state()  # names 3
    league.state()
    play(league, run, range(4, 5))
    assert sorted(int(path.name) for path in (tmp_path / "league").iterdir()) == [3, 4]


def test_with_every_0_the_start_is_a_fixed_opponent(joined: Callable):
    league = League(every=0)
    run = joined(league)
    assert play(league, run, range(5, 12)) == [5] * 7 and sent(run) == [(5.0, 5)]


def test_scores_are_moving_averages_of_what_the_policy_made_of_each(joined: Callable):
    league = League(every=0, rate=0.25)
    play(league, joined(league), range(3), score=1.0)
    assert league.scores == {0: 1 - 0.5 * 0.75**3}
    league.learn([[0.0, 0], [0.0, 0]])  # nobody played
    assert league.scores == {0: 1 - 0.5 * 0.75**3}
    league.learn([[1.0, 1], [0.0, 3]])  # of two processes
    assert league.scores[0] == pytest.approx(0.75 * (1 - 0.5 * 0.75**3) + 0.25 * 0.25)


def test_draws_follow_the_weights_and_the_seed(joined: Callable):
    league = League(weigh=hardest)
    joined(league)
    league.scores = {0: 1.0, 10: 0.5, 20: 0.0}
    drawn = [league.draw(version) for version in range(2000)]
    counts = Counter(drawn)
    assert counts[0] == 0 and counts[20] / 2000 == pytest.approx(0.8, abs=0.04)  # 1 : .25
    assert drawn == [league.draw(version) for version in range(2000)]
    assert closest(np.array([0.0, 0.5, 1.0])).tolist() == [0.0, 0.25, 0.0]
    league.scores = {0: 1.0, 10: 1.0}
    assert {league.draw(version) for version in range(50)} == {0, 10}  # nothing to tell them apart by


def test_its_state_is_plain_data_that_gives_the_same_draws(joined: Callable):
    league = League(every=2, most=3, weigh=closest)
    run = joined(league)
    play(league, run, range(7), score=1.0)
    again = League(every=2, most=3, weigh=closest)
    other = joined(again)
    again.load(json.loads(json.dumps(league.state())))
    assert play(again, other, range(7, 16)) == play(league, run, range(7, 16)) and again.scores == league.scores


@pytest.mark.parametrize("fields", [{"every": -1}, {"most": 0}, {"rate": 0.0}])
def test_settings_that_make_no_sense_are_errors(fields: dict[str, Any]):
    with pytest.raises(UserError, match="a league needs"):
        League(**fields)


def test_games_against_itself_tell_nothing_of_an_opponent():
    (against,) = group(1.0).trajectories
    itself = (against.replace(sample=1), against.replace(sample=1, seat=1))
    assert League().tell([Group("t", (against, *itself))]) == League().tell([Group("t", (against,))]) == [1.0, 1]
    assert League().tell([Group("t", itself)]) == [0, 0]


def tiny(steps: int = 6) -> Experiment:
    algorithm = mars(**rates(KUHN, rewards=None))
    strategy = SelfPlay(4, opponents=League(every=2, most=2, weigh=closest), share=0.5)
    experiment = small("league", KUHN, algorithm, Rollouts(tasks=4, strategy=strategy), steps=steps)
    assert experiment.demonstrations and experiment.sft and experiment.rl
    experiment.policy = DecoderConfig(layers=1, width=16, hidden=32, heads=2, kv_heads=1, head_size=8)
    experiment.demonstrations.episodes, experiment.sft.steps, experiment.rl.checkpoint_every = 100, 5, 2
    experiment.evaluation.episodes, experiment.engine.rows = 8, 16
    return experiment


@pytest.mark.slow
def test_a_run_that_is_stopped_anywhere_goes_on_with_the_same_opponents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    loop.train(tiny(), whole, quiet=True)
    report = loop.report

    def crash(run: Any, phase: str, pending: Any) -> None:
        if phase == "rl" and pending is not None and pending[0] == 4:
            raise ZeroDivisionError
        report(run, phase, pending)

    monkeypatch.setattr(loop, "report", crash)
    with pytest.raises(ZeroDivisionError):
        loop.train(tiny(), broken, quiet=True)
    monkeypatch.setattr(loop, "report", report)
    loop.train(tiny(), broken, quiet=True)

    def metrics(run_dir: Path) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
        return [{key: value for key, value in line.items() if not key.startswith("time/")} for line in lines]

    assert metrics(broken) == metrics(whole)
    assert (broken / "trajectories.jsonl").read_text() == (whole / "trajectories.jsonl").read_text()
    for run_dir in (broken, whole):
        assert {path.name for path in (run_dir / "league").iterdir()} >= {"4", "6"}
    assert exploitability.of(broken) == exploitability.of(whole) > 0
