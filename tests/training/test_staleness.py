"""The staleness queue: no group is too old, lost or used twice, and no step waits for ever."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.rollout.virtual_clock import VirtualLoop
from agentrl_jax.training.staleness import InFlight, StalenessQueue, select_groups
from agentrl_jax.trajectories import Group


def flight(start_index: int, version: int, finish_index: int = -1) -> InFlight:
    return InFlight(
        start_index,
        version,
        0.0,
        finish_index=finish_index,
        group=Group(str(start_index), ()) if finish_index >= 0 else None,
    )


def start_indices(flights: Any) -> Any:
    return None if flights is None else [flight.start_index for flight in flights]


def test_groups_are_taken_in_the_order_of_their_finish():
    flights = [flight(0, 0), flight(1, 0, 1), flight(2, 0, 2), flight(3, 0, 0)]
    assert start_indices(select_groups(flights, 2, 0, 1)) == [1, 3]
    assert start_indices(select_groups(flights[:3], 2, 0, 1)) == [1, 2]
    assert select_groups(flights[:2], 2, 0, 1) is None


def test_a_step_waits_for_groups_that_may_not_be_used_later():
    flights = [flight(0, 0), flight(2, 0, 5), flight(4, 1, 0), flight(5, 1, 1)]
    assert select_groups(flights, 2, 1, 1) is None  # 0 and 2 started under 0: step 1 is their last
    flights[0] = flight(0, 0, 6)
    assert start_indices(select_groups(flights, 2, 1, 1)) == [0, 2]


def test_a_step_leaves_room_for_the_groups_that_the_next_one_must_take():
    flights = [flight(i, 0, -1 if i < 3 else i) for i in range(4)] + [
        flight(i, 1, i) for i in range(4, 6)
    ]
    # staleness 2: steps 1 and 2 must use all four that started under 0, so step 1 must take two of
    # them, and only one has finished
    assert select_groups(flights, 2, 1, 2) is None
    flights[2] = flight(2, 0, 9)
    assert start_indices(select_groups(flights, 2, 1, 2)) == [2, 3]


def test_without_staleness_a_step_takes_exactly_its_own_groups():
    flights = [flight(i, 3, 3 - i) for i in range(4)]
    assert start_indices(select_groups(flights, 4, 3, 0)) == [0, 1, 2, 3]
    assert select_groups([*flights[:3], flight(3, 3)], 4, 3, 0) is None


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 4), st.integers(0, 4), st.integers(1, 9), st.integers(1, 3), st.integers(0, 5),
    st.lists(st.sampled_from([0.0, 0.1, 1.0, 3.0, 40.0]), min_size=1), st.floats(0, 5),
)  # fmt: skip
def test_every_task_is_used_once_and_never_too_old_whatever_its_duration(
    count: int,
    staleness: int,
    steps: int,
    publish_every: int,
    drain_every: int,
    durations: list[float],
    update_seconds: float,
):
    """The invariant, with weights published every few steps and drains at some of them."""
    staleness = max(staleness, publish_every - 1)
    drain_every *= publish_every
    loop, used, open_at_drain = VirtualLoop(), list[tuple[int, int, int]](), list[int]()

    async def play(start_index: int) -> Group:
        await asyncio.sleep(durations[start_index % len(durations)])
        return Group(str(start_index), ())

    async def run() -> None:
        queue = StalenessQueue(count, staleness, steps, play, drain_every=drain_every)
        for step in range(steps):
            if drain_every and step % drain_every == 0:
                open_at_drain.append(sum(queue.counts.values()))
            taken = await asyncio.wait_for(queue.take(step), 1e6)
            assert len(taken) == count and [f.start_index for f in taken] == sorted(
                f.start_index for f in taken
            )
            used.extend((f.start_index, f.version, step) for f in taken)
            await asyncio.sleep(update_seconds)
            if (step + 1) % publish_every == 0:
                if drain_every and (step + 1) % drain_every == 0:
                    open_at_drain.append(sum(queue.counts.values()))
                queue.set_version(step + 1)
        assert queue.counts == {"in_flight": 0, "waiting": 0}

    loop.run_until_complete(run())
    loop.close()
    assert sorted(start_index for start_index, _, _ in used) == list(range(count * steps))
    assert all(0 <= step - version <= staleness for _, version, step in used)
    assert drain_every == 0 or (not open_at_drain[0] and not any(open_at_drain[1::2]))


def test_slow_tasks_are_overtaken_and_still_used():
    loop = VirtualLoop()
    order: list[list[int]] = []

    async def play(start_index: int) -> Group:
        await asyncio.sleep(2.5 if start_index == 0 else 1.0 + start_index / 100)
        return Group("", ())

    async def run() -> None:
        queue = StalenessQueue(2, 2, 4, play)
        for step in range(4):
            order.append([f.start_index for f in await queue.take(step)])
            queue.set_version(step + 1)

    loop.run_until_complete(run())
    loop.close()
    assert order == [[1, 2], [3, 4], [0, 5], [6, 7]]


def test_an_error_of_an_episode_is_raised_by_take():
    loop = VirtualLoop()

    async def play(start_index: int) -> Group:
        await asyncio.sleep(start_index)
        raise RuntimeError("episode failed")

    queue = StalenessQueue(2, 1, 4, play)
    with pytest.raises(RuntimeError, match="episode failed"):
        loop.run_until_complete(queue.take(0))
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
