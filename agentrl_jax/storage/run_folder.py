"""A run folder as a whole: deleting what it holds, its summary, the code that it was made with."""

import json
import shutil
from pathlib import Path
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.storage.code_version import code_version, version_changes
from agentrl_jax.storage.config_json import CODE_KEY, CONFIG_FILE, read_config_data
from agentrl_jax.storage.digests import digested_write, file_damage
from agentrl_jax.storage.files import json_text
from agentrl_jax.storage.folder_lock import LOCK_FILE

SUMMARY_FILE = "summary.json"


def empty_run_dir(run_dir: Path) -> None:
    """Delete what a run folder holds; UserError where the folder is something else."""
    paths = [path for path in run_dir.iterdir() if path.name != LOCK_FILE]
    if paths and not (run_dir / CONFIG_FILE).exists():
        raise UserError(
            f"{run_dir} is no run folder, so --fresh leaves it alone: "
            "choose another with --run_dir=..."
        )
    # The config last: what is left of an interrupted deletion is still a run folder.
    for path in sorted(paths, key=lambda path: path.name == CONFIG_FILE):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def code_changes(run_dir: Path) -> list[str]:
    """How this process's code differs from that with which a run folder was made, as "jax 0.10.2,
    now 0.11.0"; nothing where the folder does not say.
    """
    stored = read_config_data(run_dir).get(CODE_KEY)
    return version_changes(stored, code_version()) if isinstance(stored, dict) else []


def write_summary(run_dir: Path, content: Any) -> None:
    """Write the summary of a finished run, and keep its digest."""
    with digested_write(run_dir / SUMMARY_FILE) as unfinished:
        unfinished.write_text(json_text(content))


def read_summary(run_dir: Path) -> dict[str, Any]:
    """What `write_summary` wrote.

    Raises:
        OSError: there is none.
        ValueError: it is damaged.
    """
    path = run_dir / SUMMARY_FILE
    if damage := file_damage(path):
        raise ValueError(damage)
    return json.loads(path.read_text())
