"""`AdmissionQueue`: requests beyond an engine's capacity wait, for so long and so many."""

import asyncio

from agentrl_jax.capture.api_error import APIError
from agentrl_jax.capture.server_limits import ServerLimits


class AdmissionQueue:
    """Lets so many requests of one engine run at once, the others in the order of arrival."""

    def __init__(self, num_slots: int, limits: ServerLimits) -> None:
        # Twice the slots by default: a slot that falls free is taken without a wait for the event
        # loop, and the choices of a request differ in length.
        self._semaphore = asyncio.Semaphore(limits.running_requests or 2 * num_slots)
        self._limits = limits
        self._num_waiting = 0

    async def acquire(self) -> None:
        """Wait for a place; `release` gives it back.

        Raises:
            APIError: too many requests wait, or none ended within `queue_timeout`.
        """
        limits = self._limits
        if self._semaphore.locked() and self._num_waiting >= limits.max_queued_requests:
            raise APIError(
                f"{self._num_waiting:,} requests wait already: ask again later",
                code="rate_limit_exceeded",
                status=429,
                retry_after=limits.retry_after,
            )
        self._num_waiting += 1
        try:
            async with asyncio.timeout(limits.queue_timeout):
                await self._semaphore.acquire()
        except TimeoutError:
            raise APIError(
                f"no request ended within {limits.queue_timeout:g} s: ask again later",
                code="overloaded",
                status=503,
                retry_after=limits.retry_after,
            ) from None
        finally:
            self._num_waiting -= 1

    def release(self) -> None:
        self._semaphore.release()
