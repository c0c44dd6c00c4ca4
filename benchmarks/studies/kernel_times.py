"""Where an accelerator's time goes in one repeat of a benchmark, by kernel.

python -m benchmarks.studies.kernel_times update --preset=qwen3_0_6b --share_prompt=0
"""

import importlib
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.profiler import ProfileData

from agentrl_jax.launch import cli, dataclass_flags
from agentrl_jax.launch.bench import MODULES, bench_class

SHOWN = 30


def kernel_seconds(folder: Path) -> tuple[dict[str, list[float]], float]:
    """Seconds of each call of every kernel in a folder of profiles, by name, and the seconds from
    the first kernel's start to the last one's end.
    """
    seconds: dict[str, list[float]] = defaultdict(list)
    starts, ends = [], []
    for path in folder.rglob("*.xplane.pb"):
        for plane in ProfileData.from_file(str(path)).planes:
            if not plane.name.startswith("/device:"):
                continue
            for line in plane.lines:
                if not line.name.startswith("Stream"):
                    continue
                for event in line.events:
                    seconds[event.name].append(event.duration_ns / 1e9)
                    starts.append(event.start_ns)
                    ends.append(event.start_ns + event.duration_ns)
    return seconds, (max(ends) - min(starts)) / 1e9 if ends else 0.0


def profiled(folder: Path) -> Callable[..., Any]:
    """Instead of a benchmark's timed repeats: two that warm up, and one under the profiler."""

    def repeat(ours: Callable[[], Any], rival: Any, repeats: int) -> tuple[list[Any], list[Any]]:
        ours(), ours()
        with jax.profiler.trace(str(folder)):
            measurement = ours()
        return [measurement], []

    return repeat


def main(name: str) -> None:
    bench = dataclass_flags.from_flags(bench_class(name))
    module = importlib.import_module(
        f"agentrl_jax.launch.benchmarks.{MODULES[name].rpartition('.')[0]}"
    )
    with tempfile.TemporaryDirectory() as folder:
        module.run_interleaved = profiled(Path(folder))
        bench.prepare()
        report = bench.run()
        seconds, span = kernel_seconds(Path(folder))
    busy = sum(map(sum, seconds.values()))
    total = report["ours"]["seconds"]["median"]
    print(f"seconds {total:.4f}, kernels {busy:.4f} within {span:.4f}")
    for name, calls in sorted(seconds.items(), key=lambda item: -sum(item[1]))[:SHOWN]:
        print(f"{1e3 * sum(calls):9.2f} ms {len(calls):6d} calls  {name[:110]}")


if __name__ == "__main__":
    NAME = sys.argv.pop(1)
    dataclass_flags.define_flags(bench_class(NAME))
    sys.exit(cli.run(lambda: main(NAME)))
