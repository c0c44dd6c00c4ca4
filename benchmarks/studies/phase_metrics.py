"""How metrics changed in the phases of a run: their means over the first and the last quarter of
the steps.

    python benchmarks/studies/phase_metrics.py runs/vrag rollout/success rollout/reward/retrieval
"""

import argparse
from pathlib import Path

from agentrl_jax.launch.benchmarks.claims.measures import training_means
from agentrl_jax.storage.config_json import read_config_data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("metrics", nargs="+", help="names, as in docs/metrics.md")
    flags = parser.parse_args()
    phases = read_config_data(flags.run_dir)["fields"]["phases"]["dict"]
    means = {phase: training_means(flags.run_dir, phase, flags.metrics) for phase in phases}
    missing = set(flags.metrics).difference(*means.values())
    if missing:
        raise SystemExit(f"error: {flags.run_dir} has no metric {', '.join(sorted(missing))}")
    print("| phase | metric | first quarter | last quarter |\n|---|---|---|---|")
    for phase, quarters in means.items():
        for metric, (first, last) in quarters.items():
            print(f"| {phase} | {metric} | {first:.3f} | {last:.3f} |")


if __name__ == "__main__":
    main()
