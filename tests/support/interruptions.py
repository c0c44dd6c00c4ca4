"""Interrupting a run between two checkpoints."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from agentrl_jax.errors import Interrupted
from agentrl_jax.reporting.reporter import Reporter


@contextlib.contextmanager
def interrupted_at(phase: str, step: int) -> Iterator[None]:
    """The run inside is interrupted as it reports a step of a phase, before its checkpoint."""
    report = Reporter.step

    def interrupt(reporter: Reporter, name: str, index: int, metrics: Any, seconds: float) -> None:
        if (name, index) == (phase, step):
            raise Interrupted
        report(reporter, name, index, metrics, seconds)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Reporter, "step", interrupt)
        yield
