"""One changed bit or a cut at random places of every file of a run folder: named, or no effect.

What is compared is all that training, the commands and the viewer load of a folder.
"""

import contextlib
import hashlib
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import small_run
from outcome import Battery

from agentrl_jax.errors import UserError
from agentrl_jax.launch.sweeps.measures import last_row, metric_values
from agentrl_jax.storage import config_json, trajectory_log
from agentrl_jax.training import loop
from agentrl_jax.training.builders import load_policy
from agentrl_jax.training.phase_trainer import PhaseTrainer
from agentrl_jax.training.run import Run
from agentrl_jax.viewer.run_view import RunView

FLIPS, CUTS = 3, 1  # of each file
# Written for people and never read.
NOT_READ = ("curves.png", "tensorboard", ".lock")


def digest(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def digest_of_arrays(tree: Any) -> str:
    leaves = [np.asarray(x) for x in jax.tree.leaves(tree)]
    return hashlib.sha256(b"".join(x.tobytes() for x in leaves)).hexdigest()[:12]


def continue_run(run_dir: Path) -> str:
    """What a resumed run goes on from, and which of its evaluations it would play again."""
    experiment = small_run.experiment(rl_steps=6)
    with Run(experiment, run_dir, quiet=False) as run:
        newest = {name: model.params for name, model in run.models.items()}
        parts: list[Any] = [run.tokenizer.get_vocab()]
        for name, phase in experiment.phases.items():
            trainer = PhaseTrainer(run, name, phase, run.start_params(phase, newest))
            if trainer._first_step < phase.steps:
                iterator = trainer._begin()
                parts.append(iterator.state())
            state = vars(trainer._state) | {"key": jax.random.key_data(trainer._state.key)}
            parts += [trainer._first_step, digest_of_arrays(state)]
            parts.append(json.dumps(trainer._algorithm.host_state()))
            newest |= {"policy": trainer.params}
        parts += [[x.to_json() for x in [trainer._evaluator.best]]]
        parts.append([repr(t) for t in run.evaluations.trajectories("SFT", "")])
        parts.append(metric_values(run_dir, "loss"))
        return digest(*parts)


def read_by_commands(run_dir: Path) -> str:
    """What agentrl-evaluate, -data and -sweep load."""
    experiment, tokenizer, _, params = load_policy(run_dir)
    records = [repr(record) for record in trajectory_log.read(run_dir / "trajectories")]
    row = last_row(run_dir)
    return digest(
        config_json.to_json(experiment),
        tokenizer.get_vocab(),
        digest_of_arrays(params),
        records,
        row,
    )


def viewed(run_dir: Path) -> str:
    """What the viewer shows: what it calls damaged counts as said."""
    view = RunView(run_dir)
    view.refresh()
    table = view.index.table()
    episodes = [view.episode(table.episode_id(row)) for row in range(len(table))]
    if view.description()["damaged"]:
        raise UserError("the viewer calls a line damaged")
    contents = [{k: v for k, v in (x or {}).items() if k != "texts"} for x in episodes]
    return digest(contents, view.metrics())


READERS = {"resume": continue_run, "commands": read_by_commands, "viewer": viewed}


def files(run_dir: Path) -> Iterator[str]:
    for path in sorted(run_dir.rglob("*")):
        name = path.relative_to(run_dir).as_posix()
        if path.is_file() and path.stat().st_size and not name.startswith(NOT_READ):
            yield name


def readers_of(name: str) -> list[str]:
    """Those that open a file; the others would repeat the same."""
    if name.startswith("checkpoints/sft"):
        return ["resume"]
    if name.startswith(("trajectories", "config", "metrics")):
        return ["resume", "commands", "viewer"]
    return ["resume", "commands"]


def attack(battery: Battery) -> None:
    complete, copy = battery.folder / "whole", battery.folder / "copy"
    small_run.use_small_segments()
    with contextlib.redirect_stdout(io.StringIO()):
        loop.train(small_run.experiment(rl_steps=6), complete)
        # As if killed before the last step: the newest checkpoint is that of step 4.
        shutil.rmtree(complete / "checkpoints" / "rl" / "6")

    def read(reader: str, folder: Path) -> tuple[str, str]:
        """(what was loaded or refused, what was printed)"""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                loaded = READERS[reader](folder)
            except UserError as error:
                loaded = f"refused: {error}"
        return loaded, out.getvalue() + err.getvalue()

    expected = {}
    for name in READERS:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(complete, copy)
        expected[name], output = read(name, copy)
        assert not expected[name].startswith("refused"), expected[name]
        print(f"{name}: {expected[name]} {output.splitlines()[-1:]}", flush=True)

    def damage(name: str, kind: str) -> None:
        data = bytearray((complete / name).read_bytes())
        at = battery.random.randrange(len(data))
        bit = battery.random.randrange(8)
        for reader in readers_of(name):

            def make(reader: str = reader) -> tuple[bool, str]:
                shutil.rmtree(copy)
                shutil.copytree(complete, copy)
                changed = bytearray(data)
                if kind == "flip":
                    changed[at] ^= 1 << bit
                else:
                    changed = changed[:at]
                (copy / name).write_bytes(changed)
                loaded, output = read(reader, copy)
                if loaded == expected[reader]:
                    return True, "the same is loaded"
                short = name.rsplit("/", 2)[-1].split(".")[0]
                named = [line for line in [loaded, *output.splitlines()] if "damaged" in line]
                named += [loaded] if loaded.startswith("refused") else []
                return bool(named), f"{named[0] if named else 'loaded in silence'} ({short})"

            where = f"bit {bit} of byte {at}" if kind == "flip" else f"cut to {at} bytes"
            battery.attack(f"{where} of {name}, {reader}", "named or no effect", make, quiet=True)

    for name in files(complete):
        for _ in range(FLIPS):
            damage(name, "flip")
        for _ in range(CUTS):
            damage(name, "cut")
