"""The memory of an episode is linear in its turns: while it is played, kept, and read back."""

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import numpy as np
from support.fake_engines import FakeEngine
from support.memory import measured

from agentrl_jax.engine import PromptImage
from agentrl_jax.launch.benchmarks import harness
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.storage import trajectory_log
from agentrl_jax.trajectories import Call, RandomKey, Sampling, Trajectory
from agentrl_jax.workers.pool import InlinePool

SHORT, LONG = 32, 128  # turns
NEW_TOKENS, OBSERVATION = 16, 12


class RandomLetters(FakeEngine):
    """Answers at once with random letters."""

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Sequence[PromptImage] = (),
    ) -> "Future[Call]":
        future, n = Future[Call](), sampling.budget
        action = np.random.default_rng(len(ids)).integers(97, 123, n).astype(np.int32)
        zeros = np.zeros(n, np.float32), np.zeros(n, np.int32)
        future.set_result(Call(ids, action, *zeros, sampling, "budget", key=key, parent=parent))
        return future


def play(turns: int) -> Trajectory:
    """An episode of so many turns."""
    agent = harness.make_agent(NEW_TOKENS, 1024)
    with Runtime({"policy": RandomLetters()}, {"policy": agent}, InlinePool()) as runtime:
        task = harness.make_task(turns, 8, OBSERVATION, 0)
        (group,) = runtime.collect(IndependentEpisodes(1), [task], (0, 0))
    return group.trajectories[0]


def test_an_episode_holds_what_its_turns_add(tmp_path: Path):
    path, play_bytes, read_bytes = tmp_path / "log.jsonl", [], []
    play(2)  # what is imported and cached once
    for turns in (SHORT, LONG):
        trajectory, *of_play = measured(lambda n=turns: play(n))
        trajectory_log.write(path, [trajectory], 0, "rl")
        records, *of_reading = measured(lambda: list(trajectory_log.read(path)))
        assert records[0].trajectory.calls[-1].prompt.nbytes == trajectory.calls[-1].prompt.nbytes
        path.unlink()
        play_bytes.append(of_play)
        read_bytes.append(of_reading)
    for (held_short, peak_short), (held_long, peak_long) in (play_bytes, read_bytes):
        assert held_long < 1.1 * LONG / SHORT * held_short, (play_bytes, read_bytes)
        assert peak_long < 1.1 * LONG / SHORT * peak_short, (play_bytes, read_bytes)
