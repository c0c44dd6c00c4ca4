"""Fail where a quickstart's returns differ from the README's beyond both intervals, or where GRPO
is not better than its initial policy:

python benchmarks/studies/check_readme.py runs/quickstart/summary.json

An interval covers the episodes of an evaluation, not the training: the last digits of sums differ
between CPUs and numbers of threads, and so do trained policies: one commit had a return of SFT of
-3.87 on one core of a machine and -4.29 on two. Five runs (three seeds, three CPUs) had a standard
deviation of .18; two runs differ by sqrt(2) of that; twice this is allowed beside intervals.
"""

import json
import re
import sys
from pathlib import Path

TRAINED = ("SFT", "GRPO")
RUN_DEVIATION = 0.18  # between runs of other seeds and CPUs
README = Path(__file__).parents[2] / "README.md"
ROW = re.compile(r"^(\S+(?: set)?) +(-?[\d.]+) ± ([\d.]+) +(\d+) %", re.MULTILINE)


def main() -> int:
    """1 where a mean return differs by more than its bound, or GRPO is not better than SFT."""
    table = README.read_text().split("<!-- quickstart -->")[1].split("<!-- /quickstart -->")[0]
    printed = {name: (float(mean), float(half)) for name, mean, half, _ in ROW.findall(table)}
    summary = json.loads(Path(sys.argv[1]).read_text())
    measured = summary["table"]
    if printed.keys() != {row["name"] for row in measured}:
        print(f"the README has the policies {', '.join(printed)}, the run has others")
        return 1
    wrong = 0
    for row in measured:
        mean, half = printed[row["name"]]
        training = 2 * 2**0.5 * RUN_DEVIATION * (row["name"] in TRAINED)
        bound = (half**2 + row["interval"] ** 2 + training**2) ** 0.5
        bound += 0.005  # the README has two decimals
        difference = row["mean_return"] - mean
        verdict = "as printed" if abs(difference) <= bound else "NOT as printed"
        print(f"{row['name']}: {row['mean_return']:.2f}, README {mean:.2f}: {verdict}")
        wrong += abs(difference) > bound
    difference, half = summary["difference"]
    print(f"GRPO - SFT: {difference:.2f} ± {half:.2f}")
    return int(wrong > 0 or difference <= half)


if __name__ == "__main__":
    sys.exit(main())
