"""How metrics changed in the phases of a run: their means over the first and the last quarter of
the steps.

    python benchmarks/studies/phase_metrics.py runs/vrag rollout/success rollout/reward/retrieval
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from agentrl_jax.storage import jsonl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("metrics", nargs="+", help="names, as in docs/metrics.md")
    flags = parser.parse_args()
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _, line in jsonl.read_lines(flags.run_dir / "metrics.jsonl"):
        for metric in flags.metrics:
            if line.get(metric) is not None:
                values[line["phase"], metric].append(float(line[metric]))
    missing = set(flags.metrics) - {metric for _, metric in values}
    if missing:
        raise SystemExit(f"error: {flags.run_dir} has no metric {', '.join(sorted(missing))}")
    print("| phase | metric | first quarter | last quarter |\n|---|---|---|---|")
    for (phase, metric), steps in values.items():
        quarter = max(1, len(steps) // 4)
        first, last = np.mean(steps[:quarter]), np.mean(steps[-quarter:])
        print(f"| {phase} | {metric} | {first:.3f} | {last:.3f} |")


if __name__ == "__main__":
    main()
