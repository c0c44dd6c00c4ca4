"""The clock of calls and turns."""

import time

import pytest

from agentrl_jax.clock import epoch_seconds


def test_the_clock_starts_with_the_date_and_never_goes_back(monkeypatch: pytest.MonkeyPatch):
    assert abs(epoch_seconds() - time.time()) < 0.5
    first = epoch_seconds()
    monkeypatch.setattr(time, "time", lambda: 0.0)  # the machine's date is set to 1970
    times = [first, *(epoch_seconds() for _ in range(1000))]
    assert times == sorted(times) and times[-1] - first < 1.0
    assert all(round(seconds, 6) == seconds for seconds in times)
