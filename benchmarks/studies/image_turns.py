"""What CodeVision's policy does with turned images, by phase and step: the share of episodes that
used the turn that was needed, that turned an upright image, and that were right.

    python benchmarks/studies/image_turns.py runs/vision-codevision-pair
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from agentrl_jax.storage import trajectory_log

COLUMNS = ("righted", "right answers of these", "of others", "upright, but turned", "right answers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--every", type=int, default=10, help="steps of a line")
    flags = parser.parse_args()
    # (needed turns were used, is turned, was turned by the policy, is right) of each episode
    episodes: dict[tuple[str, int], list[tuple[bool, ...]]] = defaultdict(list)
    for record in trajectory_log.read(flags.run_dir / trajectory_log.FOLDER):
        info = record.trajectory.turns[-1].info
        needed, used = set(info["needed"]), set(info["operations"])
        solved = bool(record.trajectory.succeeded)
        row = (needed <= used, bool(needed), bool(used), solved)
        episodes[record.phase, record.step // flags.every].append(row)
    if not episodes:
        raise SystemExit(f"error: the log of {flags.run_dir} has no episodes")
    print(f"| phase | steps | {' | '.join(COLUMNS)} |\n|---|---|{'---|' * len(COLUMNS)}")
    for (phase, block), rows in episodes.items():
        righted, turned, acted, solved = np.array(rows).T
        shares = (
            righted[turned],
            solved[turned & righted],
            solved[turned & ~righted],
            acted[~turned],
            solved[~turned],
        )
        means = " | ".join(f"{share.mean():.2f}" if len(share) else "-" for share in shares)
        first = block * flags.every
        print(f"| {phase} | {first} to {first + flags.every - 1} | {means} |")


if __name__ == "__main__":
    main()
