"""Which checkpoint of a phase is read: the newest whose files are as they were written."""

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.storage.digests import (
    DIGESTS_FILE,
    FileDigest,
    digest_files,
    file_names,
    find_damage,
    read_digests,
    write_digests,
)

UNFINISHED = "its save was not finished"


@dataclass(frozen=True)
class IntactCheckpoint:
    """The newest intact checkpoint of a phase."""

    step: int
    has_digests: bool
    damages: Mapping[int, str]  # what is wrong with each newer one, by its step


def find_intact_checkpoint(folder: Path, process_group: ProcessGroup) -> IntactCheckpoint | None:
    """The newest intact checkpoint, the same on all processes; None where there is no checkpoint.

    A checkpoint without digests counts as intact unless an older one has digests: earlier versions
    wrote none. The processes share the work of reading the files.

    Raises:
        UserError: all checkpoints are damaged.
    """
    saved = process_group.all_gather(f"the checkpoints in {folder}", saved_steps(folder))[0]
    damages: dict[int, str] = {}
    for i, (step, has_digests) in enumerate(saved):
        if has_digests:
            damage = _shared_damage(folder / str(step), process_group)
        else:
            damage = UNFINISHED if any(has for _, has in saved[i + 1 :]) else None
        if damage is None:
            return IntactCheckpoint(step, has_digests, damages)
        damages[step] = damage
    if not damages:
        return None
    reasons = "; ".join(f"step {step}: {damage}" for step, damage in damages.items())
    raise UserError(
        f"every checkpoint in {folder} is damaged ({reasons}): restore the run folder from a copy, "
        "or train again with --fresh"
    )


def check_checkpoint(folder: Path, step: int, process_group: ProcessGroup) -> None:
    """Raises UserError where the checkpoint of a step is missing or damaged; all processes call
    this together, and share the work of reading the files.
    """
    damage = _shared_damage(folder / str(step), process_group)
    if damage is not None:
        raise UserError(
            f"the checkpoint {folder / str(step)} is missing or damaged ({damage}): "
            "restore it from a copy, or use another checkpoint"
        )


def saved_steps(folder: Path) -> list[tuple[int, bool]]:
    """(step, whether it has digests) of the checkpoints in a folder, newest first."""
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
    steps = sorted((int(name) for name in names if name.isdecimal()), reverse=True)
    return [(step, (folder / str(step) / DIGESTS_FILE).exists()) for step in steps]


def _shared_damage(folder: Path, process_group: ProcessGroup) -> str | None:
    """What is wrong with a checkpoint, of whose files each process reads its share."""
    damages = process_group.all_gather(f"check {folder}", _local_damage(folder, process_group))
    return next(filter(None, damages), None)


def _local_damage(folder: Path, process_group: ProcessGroup) -> str | None:
    try:
        return find_damage(folder, dict(process_group.local_items([*read_digests(folder).items()])))
    except (OSError, ValueError):
        return f"{DIGESTS_FILE} is damaged"


def write_checkpoint_digests(folder: Path, process_group: ProcessGroup) -> None:
    """Write the digests of a checkpoint that all processes have finished; each reads its share."""
    names = process_group.all_gather(f"the files of {folder}", file_names(folder))[0]
    local = digest_files(folder, process_group.local_items(names))
    digests = process_group.interleave(process_group.all_gather(f"the digests of {folder}", local))
    if process_group.is_coordinator:
        write_digests(
            folder, {name: FileDigest(*d) for name, d in zip(names, digests, strict=True)}
        )
    process_group.barrier(f"{folder} is complete")


def log_choice(folder: Path, chosen: IntactCheckpoint, log: Callable[[str], None]) -> None:
    """Say which checkpoints are damaged and which is used instead, or that none was checked."""
    for step, damage in chosen.damages.items():
        log(
            f"the checkpoint {folder / str(step)} is damaged ({damage}): "
            f"the one of step {chosen.step} is used instead"
        )
    if not chosen.has_digests:
        log(
            f"the checkpoint {folder / str(chosen.step)} was written by an earlier version without "
            "digests: its files are not checked"
        )


def set_aside(folder: Path, steps: Mapping[int, str], process_group: ProcessGroup) -> None:
    """Move damaged checkpoints from `rl/50` to `rl.damaged/50`, so that the steps can be saved."""
    with process_group.coordinator_first(f"damaged checkpoints of {folder}"):
        for step in steps if process_group.is_coordinator else ():
            target = folder.with_name(f"{folder.name}.damaged") / str(step)
            shutil.rmtree(target, ignore_errors=True)
            target.parent.mkdir(exist_ok=True)
            (folder / str(step)).rename(target)


def print_warning(text: str) -> None:
    """Print to stderr."""
    print(text, file=sys.stderr)
