"""The last layouts of a run's evaluation episodes, by phase: how many are as asked, and of those
the mean share of colliding pairs and of violated bounds and wishes, and how many have any.

    python benchmarks/studies/layout_faults.py runs/vision-metaspatial-pair
"""

import argparse
from pathlib import Path

import numpy as np

from agentrl_jax.storage import trajectory_log

COLUMNS = ("as asked", "collisions", "violations", "any collision", "any violation")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=Path)
    flags = parser.parse_args()
    logs = sorted((flags.run_dir / "evaluations").glob("*.jsonl"))
    if not logs:
        raise SystemExit(f"error: {flags.run_dir} has no evaluation")
    print(f"| policy | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}")
    for log in logs:
        last = [record.trajectory.turns[-1].info for record in trajectory_log.read(log)]
        read = [(x["collision"], x["constraint"]) for x in last if "collision" in x]
        faults = np.array(read)
        means = (*faults.mean(axis=0), *(faults > 0).mean(axis=0)) if read else (np.nan,) * 4
        columns = " | ".join(f"{mean:.2f}" for mean in (len(read) / len(last), *means))
        print(f"| {log.stem} | {columns} |")


if __name__ == "__main__":
    main()
