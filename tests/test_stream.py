"""What may start and what a step takes: nothing too old, nothing lost, nothing twice, and no step waits for ever."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.stream import Flight, Stream, chosen
from agentrl_jax.trajectories import Group
from agentrl_jax.virtual_clock import VirtualLoop


def flight(number: int, version: int, place: int = -1) -> Flight:
    return Flight(number, version, 0.0, place=place, group=Group(str(number), ()) if place >= 0 else None)


def numbers(flights: Any) -> Any:
    return None if flights is None else [one.number for one in flights]


def test_what_finished_first_is_taken_whoever_started_first():
    flights = [flight(0, 0), flight(1, 0, 1), flight(2, 0, 2), flight(3, 0, 0)]
    assert numbers(chosen(flights, 2, 0, 1)) == [1, 3]
    assert numbers(chosen(flights[:3], 2, 0, 1)) == [1, 2]
    assert chosen(flights[:2], 2, 0, 1) is None


def test_what_may_be_used_no_later_is_waited_for():
    old = [flight(0, 0), flight(2, 0, 5), flight(4, 1, 0), flight(5, 1, 1)]
    assert chosen(old, 2, 1, 1) is None  # 0 and 2 started under 0: step 1 is their last
    old[0] = flight(0, 0, 6)
    assert numbers(chosen(old, 2, 1, 1)) == [0, 2]


def test_a_step_leaves_room_for_what_the_next_one_must_take():
    flights = [flight(i, 0, -1 if i < 3 else i) for i in range(4)] + [flight(i, 1, i) for i in range(4, 6)]
    # staleness 2: steps 1 and 2 must use all four that started under 0, so step 1 must take two of them, and one alone is there
    assert chosen(flights, 2, 1, 2) is None
    flights[2] = flight(2, 0, 9)
    assert numbers(chosen(flights, 2, 1, 2)) == [2, 3]


def test_without_staleness_a_step_takes_exactly_its_own():
    flights = [flight(i, 3, 3 - i) for i in range(4)]
    assert numbers(chosen(flights, 4, 3, 0)) == [0, 1, 2, 3]
    assert chosen([*flights[:3], flight(3, 3)], 4, 3, 0) is None


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 4), st.integers(0, 4), st.integers(1, 9), st.integers(1, 3), st.integers(0, 5),
    st.lists(st.sampled_from([0.0, 0.1, 1.0, 3.0, 40.0]), min_size=1), st.floats(0, 5),
)  # fmt: skip
def test_every_task_is_used_once_and_never_too_old_however_long_it_takes(
    count: int, staleness: int, steps: int, every: int, fence: int, times: list[float], training: float
):
    """The invariant, with weights published every few steps and a fence that fits them."""
    staleness = max(staleness, every - 1)
    fence *= every
    loop, used, open_at_fence = VirtualLoop(), list[tuple[int, int, int]](), list[int]()

    async def play(number: int) -> Group:
        await asyncio.sleep(times[number % len(times)])
        return Group(str(number), ())

    async def run() -> None:
        stream = Stream(count, staleness, steps, play, fence=fence)
        for step in range(steps):
            if fence and step % fence == 0:
                open_at_fence.append(sum(stream.state.values()))
            taken = await asyncio.wait_for(stream.take(step), 1e6)
            assert len(taken) == count and [f.number for f in taken] == sorted(f.number for f in taken)
            used.extend((f.number, f.version, step) for f in taken)
            await asyncio.sleep(training)
            if (step + 1) % every == 0:
                if fence and (step + 1) % fence == 0:
                    open_at_fence.append(sum(stream.state.values()))
                stream.renew(step + 1)
        assert stream.state == {"in_flight": 0, "waiting": 0}

    loop.run_until_complete(run())
    loop.close()
    assert sorted(number for number, _, _ in used) == list(range(count * steps))
    assert all(0 <= step - version <= staleness for _, version, step in used)
    assert fence == 0 or (not open_at_fence[0] and not any(open_at_fence[1::2]))


def test_slow_tasks_are_overtaken_and_still_used():
    loop = VirtualLoop()
    order: list[list[int]] = []

    async def play(number: int) -> Group:
        await asyncio.sleep(2.5 if number == 0 else 1.0 + number / 100)
        return Group("", ())

    async def run() -> None:
        stream = Stream(2, 2, 4, play)
        for step in range(4):
            order.append([f.number for f in await stream.take(step)])
            stream.renew(step + 1)

    loop.run_until_complete(run())
    loop.close()
    assert order == [[1, 2], [3, 4], [0, 5], [6, 7]]


def test_what_a_play_raises_reaches_whoever_takes():
    loop = VirtualLoop()

    async def play(number: int) -> Group:
        await asyncio.sleep(number)
        raise RuntimeError("out of paper")

    stream = Stream(2, 1, 4, play)
    with pytest.raises(RuntimeError, match="out of paper"):
        loop.run_until_complete(stream.take(0))
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
