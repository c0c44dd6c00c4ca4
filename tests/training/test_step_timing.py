"""Rates, memory and traces of steps."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.training.profiling import ProfiledSteps, StepProfiler, parse_profiled_steps
from agentrl_jax.training.step_timing import memory_metrics, rate_metrics


def test_rates_are_of_the_seconds_in_which_the_tokens_were_sampled_or_trained():
    metrics = {"tokens": 600.0, "rollout/tokens": 400.0, "time/update": 2.0, "time/collect": 4.0}
    assert rate_metrics(metrics, 8.0) == {
        "time/tokens_per_second": 75.0,
        "time/update_tokens_per_second": 300.0,
        "time/collect_tokens_per_second": 100.0,
    }
    assert rate_metrics({"tokens": 10.0, "time/update": 0.0}, 5.0) == {"time/tokens_per_second": 2}
    assert rate_metrics({}, 5.0) == {}


def test_memory_is_in_gib_and_of_devices_only_where_they_count_it():
    metrics = memory_metrics()
    assert metrics.keys() == {"time/host_memory_peak"}  # a CPU device counts none
    assert 0.05 < metrics["time/host_memory_peak"] < 64  # of a process with JAX in it


def test_steps_to_profile_are_parsed_or_refused():
    assert parse_profiled_steps("") is None
    assert parse_profiled_steps("10:12") == ProfiledSteps(10, 12)
    assert parse_profiled_steps("rl:3:3") == ProfiledSteps(3, 3, "rl")
    for text in ("3", "3:2", "a:b", "rl:1:2:3", "-1:2", "rl:1"):
        with pytest.raises(UserError, match="names no steps"):
            parse_profiled_steps(text)


@pytest.mark.parametrize(
    ("profiled", "expected"),
    [
        (ProfiledSteps(1, 2), ["start 1", "stop 2"]),
        (ProfiledSteps(0, 1, "rl"), ["start 0", "stop 1"]),
        (ProfiledSteps(2, 9), ["start 2", "stop end"]),  # the phase ends before
        (ProfiledSteps(0, 1, "sft"), []),
        (None, []),
    ],
)
def test_a_trace_begins_and_ends_with_its_steps(
    profiled: ProfiledSteps | None, expected: list[str], monkeypatch: pytest.MonkeyPatch
):
    place, events = ["begin"], list[str]()
    monkeypatch.setattr(jax.profiler, "start_trace", lambda _: events.append(f"start {place[-1]}"))
    monkeypatch.setattr(jax.profiler, "stop_trace", lambda: events.append(f"stop {place[-1]}"))
    with StepProfiler(profiled, Path("unused"), "rl") as profiler:
        for step in range(4):
            place.append(str(step))
            with profiler.around(step):
                pass
        place.append("end")
    assert events == expected


def test_a_trace_is_written_also_of_a_step_that_fails(tmp_path: Path):
    with (
        pytest.raises(ValueError, match="the step failed"),
        StepProfiler(ProfiledSteps(0, 0), tmp_path, "rl") as profiler,
        profiler.around(0),
    ):
        jnp.ones(3).sum().block_until_ready()
        raise ValueError("the step failed")
    assert list(tmp_path.rglob("*.xplane.pb"))
