"""A grid of settings: 'rl.steps=40,80;policy.width=16' -> the settings, their cells and what each trains."""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from agentrl_jax import configfile
from agentrl_jax.errors import UserError
from agentrl_jax.experiment import Experiment
from agentrl_jax.launch import command
from agentrl_jax.launch.sweeps.cells import Cell

Setting = Mapping[str, str]  # field -> value, as one types it after --config.
LONGEST_NAME = 200


def settings_of(grid: str) -> list[Setting]:
    """Every combination, the last field fastest. Commas in brackets are part of a value. Raises UserError."""
    fields: dict[str, list[str]] = {}
    for part in filter(None, (part.strip() for part in grid.split(";"))):
        field, equals, text = part.partition("=")
        values = [value.strip() for value in re.split(r",(?![^([]*[)\]])", text)]
        if not equals or not field.strip() or not all(values):
            raise UserError(f"--grid: {part!r} is not of the form field=value,value;field=value")
        if field == "seed":
            raise UserError("--grid: seeds are given with --seeds=0,1,2")
        if field in fields or len(set(values)) < len(values):
            raise UserError(f"--grid: {field} or a value of it is there twice")
        fields[field] = values
    return [dict(zip(fields, values)) for values in itertools.product(*fields.values())]


def seeds_of(text: Sequence[str]) -> list[int]:
    """Raises UserError where there is none, or one is no whole number or is there twice."""
    seeds = [one.strip() for one in text]
    if not seeds or not all(re.fullmatch("[0-9]+", one) for one in seeds) or len(set(map(int, seeds))) < len(seeds):
        raise UserError(f"--seeds={','.join(text)} must be different whole numbers from 0 on, as in --seeds=0,1,2")
    return list(map(int, seeds))


def name_of(setting: Setting) -> str:
    """{"rl.steps": "40"} -> rl.steps=40"""
    return ",".join(f"{field}={value}" for field, value in setting.items())


def cells_of(config: str, overrides: Setting, setting: Setting, seeds: Sequence[int], out: Path) -> list[Cell]:
    """A setting's cells, one a seed, in folders that name them. Raises UserError where the name is no file's."""
    cells = []
    for seed in seeds:
        name = re.sub(r"[^\w.,=+-]", "_", name_of({**setting, "seed": str(seed)}))
        if len(name) > LONGEST_NAME:
            raise UserError(f"--grid: {name[:40]}... is too long for a folder's name; give what does not vary with --config.field=value")
        cells.append(Cell(config, {**overrides, **setting}, seed, out / name))
    return cells


def experiment_of(cell: Cell) -> Experiment:
    """What the cell trains. Raises UserError where a field or a value is none of its config."""
    known, argv = flags.FlagValues(), ["agentrl-train", *cell.flags]
    config_flags.DEFINE_config_file("config", flag_values=known, sys_argv=argv)
    command.parse(argv, known)
    return command.experiment(known)


def check(cells: Sequence[Cell]) -> None:
    """Raises UserError where a cell's config cannot be read, or its folder is another's."""
    folders = [cell.run_dir for cell in cells]
    if len(set(folders)) < len(folders):
        raise UserError("--grid: two settings would have the same folder: their values differ only in characters that no name may have")
    for cell in cells:
        data, path = configfile.to_json(experiment_of(cell)), cell.run_dir / "config.json"
        if not path.exists():
            continue
        try:
            other = list(configfile.differences(json.loads(path.read_text()), data))
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read: delete its folder to run the cell anew") from error
        if other:
            raise UserError(f"{cell.run_dir} holds the run of another config ({other[0]}): name another folder, or delete this one")
