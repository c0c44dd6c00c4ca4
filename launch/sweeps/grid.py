"""A grid of settings: 'phases.rl.steps=4,8;policy.width=16' -> settings, cells, experiments."""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from agentrl_jax.errors import UserError
from agentrl_jax.launch import cli
from agentrl_jax.launch.sweeps.cells import Cell
from agentrl_jax.storage import config_json
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.seeds import RUN_SEED_END, check_seed

Setting = Mapping[str, str]  # field -> value, as in --config.field=value
MAX_NAME_LENGTH = 200


def parse_settings(grid: str) -> list[Setting]:
    """Every combination, the last field fastest. Commas in brackets are part of a value.

    Raises:
        UserError: the grid cannot be parsed, or repeats a field or value.
    """
    fields: dict[str, list[str]] = {}
    for part in filter(None, (part.strip() for part in grid.split(";"))):
        field, equals, text = part.partition("=")
        values = [value.strip() for value in re.split(r",(?![^([]*[)\]])", text)]
        if not equals or not field.strip() or not all(values):
            raise UserError(f"--grid: {part!r} is not of the form field=value,value;field=value")
        if field == "seed":
            raise UserError("--grid: seeds are given with --seeds=0,1,2")
        if field in fields or len(set(values)) < len(values):
            raise UserError(f"--grid: {field} or one of its values is given twice")
        fields[field] = values
    return [dict(zip(fields, values)) for values in itertools.product(*fields.values())]


def parse_seeds(text: Sequence[str]) -> list[int]:
    """The seeds. Raises UserError unless they are different whole numbers that a run can
    have, at least one.
    """
    seeds = [value.strip() for value in text]
    if (
        not seeds
        or not all(re.fullmatch("[0-9]+", value) for value in seeds)
        or len(set(map(int, seeds))) < len(seeds)
    ):
        raise UserError(
            f"--seeds={','.join(text)} must be different whole numbers from 0 on, as in "
            "--seeds=0,1,2"
        )
    for value in seeds:
        check_seed("--seeds", int(value), RUN_SEED_END)
    return list(map(int, seeds))


def setting_name(setting: Setting) -> str:
    """{"phases.rl.steps": "40"} -> phases.rl.steps=40"""
    return ",".join(f"{field}={value}" for field, value in setting.items())


def make_cells(
    config: str, overrides: Setting, setting: Setting, seeds: Sequence[int], out: Path
) -> list[Cell]:
    """A setting's cells, one per seed, in folders named after setting and seed.

    Raises:
        UserError: a name is too long for a folder.
    """
    cells = []
    for seed in seeds:
        name = re.sub(r"[^\w.,=+-]", "_", setting_name({**setting, "seed": str(seed)}))
        if len(name) > MAX_NAME_LENGTH:
            raise UserError(
                f"--grid: {name[:40]}... is too long for a folder's name; give fields with "
                "one value as --config.field=value"
            )
        cells.append(Cell(config, {**overrides, **setting}, seed, out / name))
    return cells


def load_experiment(cell: Cell) -> Experiment:
    """The experiment of a cell. Raises UserError for a field or value its config lacks."""
    known, argv = flags.FlagValues(), ["agentrl-train", *cell.flags]
    config_flags.DEFINE_config_file("config", flag_values=known, sys_argv=argv)
    cli.parse(argv, known)
    return cli.experiment_from_flags(known)


def check_cells(cells: Sequence[Cell]) -> None:
    """Raises UserError where a cell's config cannot be read, or its folder holds another run."""
    folders = [cell.run_dir for cell in cells]
    if len(set(folders)) < len(folders):
        raise UserError(
            "--grid: two settings would have the same folder: their values differ only in "
            "characters that no name may have"
        )
    for cell in cells:
        config, path = load_experiment(cell), cell.run_dir / config_json.CONFIG_FILE
        if not path.exists():
            continue
        try:
            other = config_json.run_dir_differences(cell.run_dir, config)
        except (OSError, ValueError) as error:
            raise UserError(
                f"{path} cannot be read: delete its folder to run the cell again"
            ) from error
        if other:
            raise UserError(
                f"{cell.run_dir} holds the run of another config ({other[0]}): name another "
                "folder, or delete this one"
            )
