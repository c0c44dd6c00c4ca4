"""Fail where a quickstart's returns differ from the README's beyond both intervals:

python benchmarks/studies/check_readme.py runs/quickstart/summary.json
"""

import json
import re
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
ROW = re.compile(r"^(\S+(?: set)?) +(-?[\d.]+) ± ([\d.]+) +(\d+) %", re.MULTILINE)


def main() -> int:
    """Compare mean returns; 1 where one differs by more than both half-widths combined."""
    table = README.read_text().split("<!-- quickstart -->")[1].split("<!-- /quickstart -->")[0]
    printed = {name: (float(mean), float(half)) for name, mean, half, _ in ROW.findall(table)}
    measured = json.loads(Path(sys.argv[1]).read_text())["table"]
    if printed.keys() != {row["name"] for row in measured}:
        print(f"the README has the policies {', '.join(printed)}, the run has others")
        return 1
    wrong = 0
    for row in measured:
        mean, half = printed[row["name"]]
        bound = (half**2 + row["interval"] ** 2) ** 0.5 + 0.005  # the README has two decimals
        difference = row["mean_return"] - mean
        verdict = "as printed" if abs(difference) <= bound else "NOT as printed"
        print(f"{row['name']}: {row['mean_return']:.2f}, README {mean:.2f}: {verdict}")
        wrong += abs(difference) > bound
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
