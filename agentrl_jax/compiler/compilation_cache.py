"""JAX's persistent cache of compiled programs: a restarted run compiles nothing again."""

import os
from pathlib import Path

import jax

DEFAULT_FOLDER = Path("~/.cache/agentrl_jax/compiled")
VARIABLE = "JAX_COMPILATION_CACHE_DIR"  # where it is set, JAX has read it


def enable_compilation_cache(folder: str) -> str:
    """Use a folder of compiled programs, which JAX makes and never empties.

    Call this once the devices are known: after `jax.distributed.initialize`.

    Args:
        folder: a path or an address of a bucket (`gs://...`), the same for all processes or each
            its own; "auto": `DEFAULT_FOLDER` on accelerators and none on a CPU, whose programs may
            not run on another CPU that shares the folder; "none": compile in each run.

    Returns:
        The folder, that of the variable JAX_COMPILATION_CACHE_DIR where it is set; "" for none.
    """
    if os.environ.get(VARIABLE):
        return os.environ[VARIABLE]
    if folder == "none" or (folder == "auto" and jax.default_backend() == "cpu"):
        return ""
    path = str(DEFAULT_FOLDER.expanduser()) if folder == "auto" else folder
    jax.config.update("jax_compilation_cache_dir", path)
    return path
