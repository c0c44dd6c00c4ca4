"""A run folder as a whole: deleting what it holds, and the code that it was made with."""

import shutil
from pathlib import Path

from agentrl_jax.errors import UserError
from agentrl_jax.storage.code_version import code_version, version_changes
from agentrl_jax.storage.config_json import CODE_KEY, CONFIG_FILE, read_config_data
from agentrl_jax.storage.folder_lock import LOCK_FILE


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
