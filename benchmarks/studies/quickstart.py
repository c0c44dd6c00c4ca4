"""Run a config over seeds and print one table.

    python benchmarks/studies/quickstart.py [--config=...] [--seeds=0,1,2] [--print_only]

A cell is one seed; its summary.json is cached as benchmarks/results/<name>/seed_<n>.json. An
interrupted cell resumes from its checkpoint. Seeds without a result are shown as missing, and
results of another config are refused.
"""

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import config_flags

from agentrl_jax.errors import UserError
from agentrl_jax.launch import cli
from agentrl_jax.launch.sweeps.cached_cells import CONFIG_DIGEST, earlier_configs_note
from agentrl_jax.storage import config_json

BENCHMARKS_DIR = Path(__file__).parents[1]
config_flags.DEFINE_config_file("config", "configs/wordle_grpo.py", "Which experiment.")
flags.DEFINE_list("seeds", ["0", "1", "2"], "Which seeds.")
flags.DEFINE_bool("print_only", False, "Run nothing.")


def measure() -> None:
    from agentrl_jax.training import loop

    config = flags.FLAGS.config
    results = BENCHMARKS_DIR / "results" / config.name
    for seed in flags.FLAGS.seeds:
        cached, config.seed = results / f"seed_{seed}.json", int(seed)
        if cached.exists():
            check_config(cached, config)
        if cached.exists() or flags.FLAGS.print_only:
            continue
        run_dir = Path("runs") / f"{config.name}-seed{seed}"
        began = time.monotonic()
        loop.train(config, run_dir)
        results.mkdir(parents=True, exist_ok=True)
        summary = json.loads((run_dir / "summary.json").read_text())
        summary["seconds"]["all"] = round(time.monotonic() - began, 1)
        cached.write_text(json.dumps(summary, indent=1) + "\n")
        shutil.copy(run_dir / "curves.png", results / f"seed_{seed}.png")
    print_table(results, flags.FLAGS.seeds)


def check_config(cached: Path, config: Any) -> None:
    """Raises UserError where the results are of another config."""
    digest = json.loads(cached.read_text())[CONFIG_DIGEST]
    if digest not in (None, config_json.digest(config)):
        raise UserError(
            f"{cached} was measured before its config changed: delete it to run it again"
        )


def print_table(results: Path, seeds: list[str]) -> None:
    """Print Markdown with a row per seed."""
    summaries = {
        seed: json.loads(path.read_text())
        for seed in seeds
        if (path := results / f"seed_{seed}.json").exists()
    }
    if not summaries:
        print("no seed has a result yet")
        return
    names = [row["name"] for row in next(iter(summaries.values()))["table"]]
    print(f"| seed | {' | '.join(names)} | difference (paired) | seconds |")
    print("|---" * (len(names) + 3) + "|")
    for seed in seeds:
        print(
            table_row(seed, summaries[seed])
            if seed in summaries
            else f"| {seed} |" + " missing |" * (len(names) + 2)
        )
    print(f"\n{earlier_configs_note({f'seed {seed}': [x] for seed, x in summaries.items()})}")


def table_row(seed: str, summary: dict[str, Any]) -> str:
    cells = [
        f"{row['mean_return']:.2f} ± {row['interval']:.2f}, {100 * row['win_rate']:.0f} % won"
        for row in summary["table"]
    ]
    difference = "{:+.2f} ± {:.2f}".format(*summary["difference"]) if summary["difference"] else "-"
    return f"| {seed} | {' | '.join(cells)} | {difference} | {summary['seconds']['all']:.0f} |"


if __name__ == "__main__":
    sys.exit(cli.run(measure))
