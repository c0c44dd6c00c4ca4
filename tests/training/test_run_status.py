"""What the dashboard is told of a run: its queues, its slow environments, its last episode."""

import asyncio
import dataclasses
from pathlib import Path

import pytest
from support.fixtures import make_trajectory, make_turn

from agentrl_jax.messages import assistant, user
from agentrl_jax.reporting.live_status import EnvironmentTime, Queue
from agentrl_jax.reporting.reporter import SilentReporter
from agentrl_jax.rollout.engine_slots import EngineSlots, SlotUse
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.watchdog import Watchdog
from agentrl_jax.training.run_status import environment_times, excerpt_of, live_status
from agentrl_jax.trajectories import Trajectory, TurnTime
from agentrl_jax.workers.pool import InlinePool, Task


class TwoSlots:
    """As much of an engine as its slots need."""

    num_slots = 2

    def close(self) -> None: ...


def timed(task: str, *seconds: float) -> Trajectory:
    turns = [dataclasses.replace(make_turn([]), time=TurnTime(100.0, 100.0 + x)) for x in seconds]
    return make_trajectory(*turns).replace(task=task)


def test_environments_are_sorted_by_the_mean_of_their_steps():
    episodes = [timed("m:fast#1", 0.25), timed("slow#1", 1.0, 3.0), timed("m:fast#2", 0.75)]
    assert environment_times([*episodes, make_trajectory(make_turn([]))]) == [
        EnvironmentTime("slow", 2.0, 3.0),
        EnvironmentTime("fast", 0.5, 0.75),
    ]


def test_an_excerpt_is_the_end_of_the_conversation():
    turn = dataclasses.replace(make_turn([], 1.5), action=assistant("a"), observation=(user("b"),))
    trajectory = Trajectory((user("go"),), (turn,) * 6, task="m:env#3")
    excerpt = excerpt_of(trajectory)
    assert excerpt.title == "last episode: env#3, 6 turns, return 9.00, terminated"
    assert excerpt.messages == [("assistant", "a"), ("user", "b")] * 4


def test_slots_are_counted_while_episodes_hold_and_await_them():
    async def use() -> list[SlotUse]:
        slots, seen, release = EngineSlots({"policy": TwoSlots()}), [], asyncio.Event()  # type: ignore[dict-item]

        async def hold() -> None:
            async with slots.slot("policy"):
                await release.wait()

        tasks = [asyncio.create_task(hold()) for _ in range(5)]
        await asyncio.sleep(0.01)
        seen.append(slots.use()["policy"])
        tasks[-1].cancel()  # one that waits
        await asyncio.sleep(0.01)
        seen.append(slots.use()["policy"])
        release.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        return [*seen, slots.use()["policy"]]

    assert asyncio.run(use()) == [SlotUse(2, 2, 3), SlotUse(2, 2, 2), SlotUse(0, 2, 0)]


def test_a_snapshot_has_queues_and_the_last_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    reporter, watchdog = SilentReporter(tmp_path, 1), Watchdog(100.0, print)
    with Runtime({}, {}, InlinePool()) as runtime:
        monkeypatch.setattr(runtime, "slot_use", lambda: {"policy": SlotUse(2, 2, 3)})
        monkeypatch.setattr(runtime, "waits", watchdog.waits)
        assert live_status(runtime, reporter).excerpt is None
        for result in (timed("env#1", 0.5), timed("env#2", 0.5), None):
            with runtime.episode_counts.episode() as end:
                end.result = result
        with (
            watchdog.track_wait(Task("env", 7), 0, 0, lambda: "its environment (worker 3)"),
            watchdog.track_wait(Task("env", 8), 0, 0, lambda: "the engine 'policy'"),
            watchdog.track_wait(Task("env", 9), 0, 0, lambda: "the engine 'policy'"),
            watchdog.track_work("the trainer", lambda: "step 1"),
        ):
            status = live_status(runtime, reporter)
    watchdog.close()
    assert status.episodes == 3 and status.waits == []  # none has waited for a second
    assert status.queues == [
        Queue("episodes of policy", "2 of 2, 3 wait"),
        Queue("calls of engine 'policy'", "2"),
        Queue("steps of environments", "1"),
    ]
    assert status.excerpt is not None and "env#2" in status.excerpt.title
    assert status.environments == [EnvironmentTime("env", 0.5, 0.5)]
