"""How good the boxes of MGPO's first turns are, step by step: the mean overlap (intersection over
union) with the objects that a question needs, and the share of turns with a box.

    python benchmarks/studies/box_quality.py runs/vision-mgpo-two_turns
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from agentrl_jax.storage import trajectory_log


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--every", type=int, default=5, help="steps of a line")
    flags = parser.parse_args()
    boxes: dict[int, list[tuple[float, bool, bool]]] = defaultdict(list)
    for record in trajectory_log.read(flags.run_dir / trajectory_log.FOLDER):
        turns = record.trajectory.turns
        if len(turns) == 2:
            info = turns[0].info
            solved = bool(record.trajectory.succeeded)
            boxes[record.step // flags.every].append((info["iou"], info["formatted"], solved))
    if not boxes:
        raise SystemExit(f"error: the log of {flags.run_dir} has no episodes of two turns")
    print("| steps | boxes | overlap | with a box | right answers |\n|---|---|---|---|---|")
    for block, rows in sorted(boxes.items()):
        first, means = block * flags.every, np.mean(rows, axis=0)
        columns = " | ".join(f"{mean:.3f}" for mean in means)
        print(f"| {first} to {first + flags.every - 1} | {len(rows)} | {columns} |")


if __name__ == "__main__":
    main()
