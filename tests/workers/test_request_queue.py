"""Which of the requests of a worker is blamed when the worker is gone."""

import asyncio

import pytest

from agentrl_jax.errors import EnvironmentFailure
from agentrl_jax.workers.request_queue import RequestQueue

BLAMED = EnvironmentFailure("it had too much memory", "memory")
OTHERS = EnvironmentFailure("it was replaced", "lost")


@pytest.mark.parametrize(
    "current, num_answered, kinds",
    [
        (-1, 0, ["memory", "lost", "lost"]),  # it died before it read a request
        (0, 0, ["memory", "lost", "lost"]),
        (1, 0, ["lost", "memory", "lost"]),  # the reply to the first was not written yet
        (1, 1, ["answered", "memory", "lost"]),
        (0, 1, ["answered", "lost", "lost"]),  # between a reply and the next request
        (2, 3, ["answered", "answered", "answered"]),
    ],
)
def test_only_the_request_in_progress_is_blamed(current: int, num_answered: int, kinds: list[str]):
    async def outcome(future: "asyncio.Future[str]") -> str:
        try:
            return await future
        except EnvironmentFailure as failure:
            return failure.kind

    async def run() -> list[str]:
        queue = RequestQueue(lambda seconds: None, lambda: (current, 0.0))
        futures = [queue.add(10.0, env_id)[1] for env_id in range(3)]
        if num_answered:
            queue.resolve([{"id": i, "value": "answered"} for i in range(num_answered)])
        queue.fail(BLAMED, OTHERS)
        return [await outcome(future) for future in futures]

    assert asyncio.run(run()) == kinds
