"""Train over seeds and a grid: agentrl-sweep --config=FILE[:variant] --seeds=0,1,2 --out=FOLDER
[--grid='phases.rl.steps=40,80;...']

A cell is one agentrl-train with a run folder of its own in FOLDER; --parallel=2 runs two at a time.
The same command again resumes where it stopped and skips finished cells; --config.field=value is
for all cells. Prints a table with a row per setting and writes it to FOLDER/sweep.md.
"""

import sys
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from agentrl_jax.errors import UserError
from agentrl_jax.launch import cli

config_flags.DEFINE_config_file(
    "config",
    help_string="A config file, or file.py:variant; --config.field=value overrides a field.",
)
flags.DEFINE_list("seeds", ["0", "1", "2"], "Which seeds.")
flags.DEFINE_string(
    "grid", "", "field=value,value;field=value,...: every combination is a setting."
)
flags.DEFINE_string("out", "", "The folder of the cells.")
flags.DEFINE_integer("parallel", 1, "Cells at a time.", lower_bound=1)
flags.DEFINE_bool("print_only", False, "Run nothing.")


def sweep() -> None:
    from agentrl_jax.launch.sweeps import cells, grid, table

    cli.experiment_from_flags()
    flag, out = flags.FLAGS["config"], Path(flags.FLAGS.out)
    config, changed = config_flags.get_config_filename(flag), config_flags.get_override_values(flag)
    if not flags.FLAGS.out:
        raise UserError("give the folder of the cells with --out=runs/my_sweep")
    if "seed" in changed:
        raise UserError("--config.seed: seeds are given with --seeds=0,1,2")
    overrides = {field: str(value) for field, value in changed.items()}
    seeds, settings = grid.parse_seeds(flags.FLAGS.seeds), grid.parse_settings(flags.FLAGS.grid)
    rows = [grid.make_cells(config, overrides, setting, seeds, out) for setting in settings]
    every = [cell for row in rows for cell in row]
    grid.check_cells(every)
    failed = [] if flags.FLAGS.print_only else cells.run_cells(every, out, flags.FLAGS.parallel)
    lines = [table.setting_row(setting, row) for setting, row in zip(settings, rows)]
    print(table.markdown_table(lines))
    if out.is_dir():
        table.write_table(out, {"config": config, "overrides": overrides, "seeds": seeds}, lines)
    if failed:
        raise UserError(
            f"{len(failed)} of {len(every)} cells failed; the same command runs them again, "
            f"their logs are in {out}"
        )


def main() -> None:
    sys.exit(cli.run(sweep))


if __name__ == "__main__":
    main()
