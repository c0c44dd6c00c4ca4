"""Metrics of a step that depend on the clock or the machine: rates and memory."""

import resource
import sys
from collections.abc import Mapping
from typing import Any

import jax

GIB = 2.0**30


def rate_metrics(metrics: Mapping[str, Any], seconds: float) -> dict[str, float]:
    """Tokens per second, of all processes together: trained ones by the seconds of the step and of
    its update, sampled ones by those of its collection.

    With asynchronous rollouts the seconds of the collection are those that the trainer waited.

    Args:
        metrics: of the step, with `tokens` and `rollout/tokens` where there are any.
        seconds: of the step.
    """
    trained, sampled = metrics.get("tokens"), metrics.get("rollout/tokens")
    rates = {
        "time/tokens_per_second": (trained, seconds),
        "time/update_tokens_per_second": (trained, metrics.get("time/update")),
        "time/collect_tokens_per_second": (sampled, metrics.get("time/collect")),
    }
    return {name: tokens / s for name, (tokens, s) in rates.items() if tokens and s}


def memory_metrics() -> dict[str, float]:
    """The peaks since the process began, in GiB: of the device with the highest, with what programs
    may use of it, where devices count their memory, and of this process.
    """
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    fullest = max(stats, key=lambda x: x.get("peak_bytes_in_use", 0))
    names = {"peak_bytes_in_use": "time/memory_peak", "bytes_limit": "time/memory_limit"}
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {
        "time/host_memory_peak": host / GIB,
        **{name: fullest[key] / GIB for key, name in names.items() if key in fullest},
    }
