"""The league: which snapshots are stored, which opponents are drawn, and that a resumed run has the
same opponents.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from support.fixtures import ScriptedEngine
from support.interruptions import interrupted_at
from support.untimed import untimed_log

from agentrl_jax.algorithms.methods.multi_turn import mars
from agentrl_jax.algorithms.strategies.league import (
    League,
    closest_match_weights,
    hardest_first_weights,
)
from agentrl_jax.algorithms.strategies.self_play import SelfPlay
from agentrl_jax.configs.small import KUHN, small_experiment, training_settings
from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks.claims.exploitability import exploitability
from agentrl_jax.messages import assistant
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import TextRenderer
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.storage import jsonl
from agentrl_jax.training import loop
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.sources import Rollouts
from agentrl_jax.trajectories import Group, Trajectory, Turn
from agentrl_jax.workers.pool import InlinePool


class Weights(ScriptedEngine):
    """Records the published weights."""

    def __init__(self) -> None:
        super().__init__(TextRenderer(byte_tokenizer()), "p")
        self.held_weights: list[tuple[float, int]] = []

    def publish(self, params: Any, version: int, recompute: bool = False) -> None:
        self.held_weights.append((float(params["w"][0]), version))


@pytest.fixture
def subscribed(tmp_path: Path) -> Iterator[Callable[[League], Runtime]]:
    """Subscribes a league to a runtime of two engines. All weights of version v equal v."""
    with contextlib.ExitStack() as runtimes:

        def join(league: League) -> Runtime:
            runtime = runtimes.enter_context(
                Runtime({"policy": Weights(), "opponent": Weights()}, {}, InlinePool())
            )
            league.subscribe(runtime, tmp_path / "league", seed=7)
            return runtime

        yield join


def play(league: League, runtime: Runtime, versions: range, score: float = 0.5) -> list[int]:
    """The opponents at these versions; all games of a step end with this score."""
    opponents = []
    for version in versions:
        runtime.publish({"w": jnp.full(2, version, jnp.float32)}, version)
        opponents.append(league.current_opponent)
        league.update([league.summarize([group(score)] * 2)])
    return opponents


def published_weights(runtime: Runtime) -> list[tuple[float, int]]:
    engine = runtime.engines["opponent"]
    assert isinstance(engine, Weights)
    return engine.held_weights


def group(score: float) -> Group:
    reward = {0.0: -1.0, 0.5: 0.0, 1.0: 2.0}[score]
    return Group("game#0", (Trajectory((), (Turn((), assistant("p"), (), reward),)),))


def test_snapshots_are_the_first_weights_and_every_nth_and_the_oldest_are_deleted(
    subscribed: Callable, tmp_path: Path
):
    league = League(every=3, max_snapshots=2)
    run = subscribed(league)
    opponents = play(league, run, range(11))
    assert list(league.scores) == [6, 9] and {
        int(path.name) for path in (tmp_path / "league").iterdir()
    } == {6, 9}
    assert all(version in {0, 3, 6, 9} and version <= at for at, version in enumerate(opponents))
    assert published_weights(run) == [
        (v, v) for i, v in enumerate(opponents) if i == 0 or v != opponents[i - 1]
    ]


def test_a_checkpoints_snapshots_are_deleted_once_two_later_checkpoints_lack_them(
    subscribed: Callable, tmp_path: Path
):
    league = League(every=1, max_snapshots=1)
    run = subscribed(league)
    play(league, run, range(1))
    league.state()  # refers to 0
    play(league, run, range(1, 4))
    assert sorted(int(path.name) for path in (tmp_path / "league").iterdir()) == [0, 3]
    league.state()  # refers to 3
    league.state()
    play(league, run, range(4, 5))
    assert sorted(int(path.name) for path in (tmp_path / "league").iterdir()) == [3, 4]


def test_with_every_0_the_first_weights_are_a_fixed_opponent(subscribed: Callable):
    league = League(every=0)
    run = subscribed(league)
    assert play(league, run, range(5, 12)) == [5] * 7 and published_weights(run) == [(5.0, 5)]


def test_scores_are_moving_averages_of_game_outcomes(subscribed: Callable):
    league = League(every=0, ema_rate=0.25)
    play(league, subscribed(league), range(3), score=1.0)
    assert league.scores == {0: 1 - 0.5 * 0.75**3}
    league.update([[0.0, 0], [0.0, 0]])  # no games
    assert league.scores == {0: 1 - 0.5 * 0.75**3}
    league.update([[1.0, 1], [0.0, 3]])  # from two processes
    assert league.scores[0] == pytest.approx(0.75 * (1 - 0.5 * 0.75**3) + 0.25 * 0.25)


def test_draws_follow_the_weights_and_the_seed(subscribed: Callable):
    league = League(opponent_weights=hardest_first_weights)
    subscribed(league)
    league.scores = {0: 1.0, 10: 0.5, 20: 0.0}
    opponents = [league.draw_opponent(version) for version in range(2000)]
    counts = Counter(opponents)
    assert counts[0] == 0 and counts[20] / 2000 == pytest.approx(0.8, abs=0.04)  # 1 : .25
    assert opponents == [league.draw_opponent(version) for version in range(2000)]
    assert closest_match_weights(np.array([0.0, 0.5, 1.0])).tolist() == [0.0, 0.25, 0.0]
    league.scores = {0: 1.0, 10: 1.0}
    assert {league.draw_opponent(version) for version in range(50)} == {
        0,
        10,
    }  # without any difference between them


def test_the_state_is_plain_data_that_gives_the_same_draws(subscribed: Callable):
    league = League(every=2, max_snapshots=3, opponent_weights=closest_match_weights)
    run = subscribed(league)
    play(league, run, range(7), score=1.0)
    again = League(every=2, max_snapshots=3, opponent_weights=closest_match_weights)
    other = subscribed(again)
    again.load(json.loads(json.dumps(league.state())))
    assert (
        play(again, other, range(7, 16)) == play(league, run, range(7, 16))
        and again.scores == league.scores
    )


@pytest.mark.parametrize("fields", [{"every": -1}, {"max_snapshots": 0}, {"ema_rate": 0.0}])
def test_invalid_settings_are_errors(fields: dict[str, Any]):
    with pytest.raises(UserError, match="a league needs"):
        League(**fields)


def test_games_against_the_current_policy_change_no_score():
    (against,) = group(1.0).trajectories
    itself = (against.replace(sample=1), against.replace(sample=1, agent_index=1))
    assert (
        League().summarize([Group("t", (against, *itself))])
        == League().summarize([Group("t", (against,))])
        == [1.0, 1]
    )
    assert League().summarize([Group("t", itself)]) == [0, 0]


def tiny(steps: int = 6) -> Experiment:
    algorithm = mars(**training_settings(KUHN, rewards=None))
    strategy = SelfPlay(
        4,
        opponents=League(every=2, max_snapshots=2, opponent_weights=closest_match_weights),
        opponent_fraction=0.5,
    )
    experiment = small_experiment(
        "league", KUHN, algorithm, Rollouts(tasks=4, strategy=strategy), steps=steps
    )
    assert experiment.demonstrations
    experiment.policy = DecoderConfig(
        layers=1, width=16, hidden=32, heads=2, kv_heads=1, head_size=8
    )
    experiment.demonstrations.episodes, experiment.phases["sft"].steps = 100, 5
    experiment.phases["rl"].checkpoint_every = 2
    experiment.evaluation.episodes, experiment.engine.rows = 8, 16
    return experiment


@pytest.mark.slow
def test_a_stopped_run_resumes_with_the_same_opponents(tmp_path: Path):
    unbroken, broken = tmp_path / "whole", tmp_path / "broken"
    loop.train(tiny(), unbroken, quiet=True)
    with interrupted_at("rl", 4):
        loop.train(tiny(), broken, quiet=True)
    loop.train(tiny(), broken, quiet=True)

    def metrics(run_dir: Path) -> list[dict[str, Any]]:
        lines = [line for _, line in jsonl.read_lines(run_dir / "metrics.jsonl")]
        return [
            {key: value for key, value in line.items() if not key.startswith("time/")}
            for line in lines
        ]

    assert metrics(broken) == metrics(unbroken)
    assert untimed_log(broken) == untimed_log(unbroken)
    for run_dir in (broken, unbroken):
        assert {path.name for path in (run_dir / "league/rl").iterdir()} >= {"4", "6"}
    assert exploitability.compute(broken) == exploitability.compute(unbroken) > 0
