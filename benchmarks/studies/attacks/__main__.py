"""A battery of attacks: kills, changed bits, cuts of files and planted corruptions of runs, hostile
requests to servers, wrong command lines.

    PYTHONPATH=.:tests python benchmarks/studies/attacks [--sections=kills,flips] [--seed=0]

Each attack is made on the smallest run that exists or on a server on loopback, and says what should
happen and what happened. The last lines are a table of what went wrong and the counts of each
section; the exit status is 1 where an attack succeeded. `--match=TEXT` makes only the attacks whose
names hold the text.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

# As tests/conftest.py: programs are compiled once, without optimization.
ROOT = Path(__file__).resolve().parents[3]
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false",
)
os.environ["JAX_PLATFORMS"] = "cpu"
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from outcome import Battery  # noqa: E402

SECTIONS = (
    "kills", "flips", "corruptions", "locks", "nonfinite", "worlds", "servers", "command_lines",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--match", default="", help="only attacks whose names hold this text")
    options = parser.parse_args()
    sections = options.sections.split(",")
    if unknown := set(sections) - {*SECTIONS}:
        parser.error(f"there is no section {min(unknown)!r}, only {', '.join(SECTIONS)}")
    from agentrl_jax.storage import trust

    trust.trust("support")
    outcomes = []
    for name in sections:
        module = __import__(name)
        start, cpu = time.monotonic(), cpu_seconds()
        with tempfile.TemporaryDirectory() as folder:
            battery = Battery(name, Path(folder), random.Random(options.seed), options.match)
            module.attack(battery)
        outcomes += battery.outcomes
        seconds, used = time.monotonic() - start, cpu_seconds() - cpu
        print(f"{name}: {seconds:.0f} s, {used:.0f} s of CPU", flush=True)
    failures = [outcome for outcome in outcomes if not outcome.ok]
    if failures:
        print("\n| section | attack | expected | what happened |\n|---|---|---|---|")
        for x in failures:
            print(f"| {x.section} | {x.attack} | {x.expected} | {x.happened} |")
    print("\n| section | attacks | withstood |\n|---|---|---|")
    for name in sections:
        of_section = [outcome for outcome in outcomes if outcome.section == name]
        print(f"| {name} | {len(of_section)} | {sum(x.ok for x in of_section)} |")
    sys.stdout.flush()
    os._exit(bool(failures))  # some attacks leave threads that never end


def cpu_seconds() -> float:
    """Of this process and its children that have ended."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    main()
