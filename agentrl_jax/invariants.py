"""`Invariants`: statements about a run that must hold in every step, checked as it goes on."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ParamSpec

import numpy as np

from agentrl_jax.call_checksum import call_checksum

P = ParamSpec("P")


@dataclass(frozen=True)
class InvariantCheck:
    """The result of one check."""

    name: str  # of the invariant, as docs/invariants.md lists it
    holds: bool
    detail: str  # one sentence with the numbers


class Invariants:
    """Makes checks and collects the violations, until the trainer takes them.

    Nothing is checked before `enabled` is set, so that rollouts and updates outside of a training
    run take no time for it.
    """

    def __init__(self) -> None:
        self.enabled = False
        self.seconds = 0.0  # spent on checks so far
        self._violations: list[InvariantCheck] = []
        self._deferred: list[Callable[[], InvariantCheck]] = []

    def check(
        self, invariant: Callable[P, InvariantCheck], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Check an invariant of these arguments now; from any thread."""
        if not self.enabled:
            return
        with self.timed():
            result = invariant(*args, **kwargs)
        if not result.holds:
            self._violations.append(result)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count what is done within as time spent on checks; from any thread."""
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start

    def call_checksum(
        self,
        prompt: np.ndarray,
        action: np.ndarray,
        sampler_logp: np.ndarray,
        version: np.ndarray,
        temperature: float,
    ) -> int:
        """`trajectories.call_checksum` for the engines; 0 while nothing is checked."""
        if not self.enabled:
            return 0
        start = time.perf_counter()
        checksum = call_checksum(prompt, action, sampler_logp, version, temperature)
        self.seconds += time.perf_counter() - start
        return checksum

    def defer(
        self, invariant: Callable[P, InvariantCheck], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Check an invariant of numbers on the device when the step is reported."""
        if self.enabled:
            self._deferred.append(lambda: invariant(*args, **kwargs))

    def take_deferred(self) -> list[Callable[[], InvariantCheck]]:
        """The checks of `defer` since the last call, to be made later; they wait for the device."""
        deferred, self._deferred = self._deferred, []
        return deferred

    def take_violations(self) -> list[InvariantCheck]:
        """The violations since the last call."""
        violations, self._violations = self._violations, []
        return violations
