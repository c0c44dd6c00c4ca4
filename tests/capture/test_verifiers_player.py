"""Tasksets of verifiers, played against the capture endpoint by its interpreter.

VERIFIERS_PYTHON names a Python that has the package (`pip install verifiers==0.4.0`), whose
requirements do not go together with those of this package.
"""

import os
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'agentrl_jax[serve]'")

from support.capture_server import AGENT, LineEngine, decode_text

from agentrl_jax.capture.strategy import CapturedEpisodes
from agentrl_jax.envs.programs import verifiers_player
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.workers.pool import InlinePool, Task

PYTHON = os.environ.get("VERIFIERS_PYTHON", "")
TASKSET = """
import verifiers.v1 as vf


class SumData(vf.TaskData):
    answer: str


class SumTask(vf.Task[SumData, vf.State, vf.TaskConfig]):
    @vf.reward(weight=2.0)
    async def right(self, trace) -> float:
        return float(trace.last_reply.strip() == self.data.answer)

    @vf.reward
    async def short(self, trace) -> float:
        return float(len(trace.last_reply) < 3)


class Sums(vf.Taskset[SumTask, vf.TasksetConfig]):
    def load(self):
        for i in range(4):
            data = SumData(prompt=f"{i} + 1 = ?", answer=str(i + 1))
            yield SumTask(data, self.config.task)


__all__ = ["Sums"]
"""


class Reward:
    def __init__(self, score: float, weight: float = 1.0) -> None:
        self.score, self.weight = score, weight


class Endless:
    """The environment of a taskset of three tasks."""

    taskset = ("a", "b", "c")


def test_a_seed_chooses_the_task():
    player = verifiers_player.Player(Endless(), max_tasks=1000)
    assert [player.task(seed) for seed in (0, 2, 1, 1001, 999)] == ["a", "c", "b", "b", "a"]
    assert [verifiers_player.Player(Endless(), 2).task(seed) for seed in (0, 1, 2)] == list("aba")


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="VERIFIERS_PYTHON names no interpreter with verifiers")
def test_a_taskset_is_played_and_its_rewards_are_named(tmp_path: Path):
    (tmp_path / "sums.py").write_text(TASKSET)
    options = f"--path={tmp_path}", "--concurrent=1"
    command = (PYTHON, "-I", verifiers_player.PATH, "sums", *options)
    strategy = CapturedEpisodes(command, pool_size=1, group_size=1, max_concurrent_episodes=1)
    engine, rewards = LineEngine("1", "2", "3", "33333"), []
    with Runtime({"policy": engine}, {"policy": AGENT}, InlinePool(), retries=0) as runtime:
        for seed in (0, 1, 1, 1):
            task = Task("tests/Nothing-v0", seed)
            (group,) = runtime.collect(strategy, [task], (0, seed))
            (trajectory,) = group.trajectories
            parts: dict[str, float] = {}
            for turn in trajectory.turns:
                parts |= turn.rewards
            rewards.append((parts, trajectory.success))
    assert rewards == [
        ({"right": 2.0, "short": 1.0}, True),
        ({"right": 2.0, "short": 1.0}, True),
        ({"right": 0.0, "short": 1.0}, False),
        ({"right": 0.0, "short": 0.0}, False),
    ]
    prompts = [decode_text(call.prompt) for call in engine.submitted_calls]
    assert "0 + 1 = ?" in prompts[0] and "1 + 1 = ?" in prompts[1]
