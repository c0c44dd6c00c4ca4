"""Memory of programs on a CPU: the C library keeps what they free. JAX is not imported here."""

import ctypes
import os
import platform
from collections.abc import Mapping

# Options of glibc's mallopt (malloc.h).
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_LARGEST_INT = 2**31 - 1


def keep_freed_memory(environ: Mapping[str, str] = os.environ) -> bool:
    """Have glibc keep freed memory for later allocations, in place of returning it to the system.

    XLA allocates the temporary buffers of a program in each of its calls. Those of more than 32 MB
    glibc maps and unmaps each time, so that every page of 4 kB is zeroed again at its first use: of
    programs with large temporaries, as attention over long rows, that is up to 40 % of the time. A
    process then holds the most that it ever used, up to 2 GB of it free at the heap's end.

    Args:
        environ: where it sets options of glibc's malloc (`MALLOC_...`, `glibc.malloc` in
            GLIBC_TUNABLES), nothing is changed.

    Returns:
        Whether it was set: not by a C library other than glibc.
    """
    chosen = any(name.startswith("MALLOC_") for name in environ)
    if chosen or "glibc.malloc" in environ.get("GLIBC_TUNABLES", ""):
        return False
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    # One arena: that of another thread holds 64 MB at most and maps what is larger.
    options = ((_MMAP_MAX, 0), (_ARENA_MAX, 1), (_TRIM_THRESHOLD, _LARGEST_INT))
    return all(mallopt(option, value) == 1 for option, value in options)
