"""Which files of the system a snippet may read or run: Python's own, libraries, few devices."""

import glob
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from agentrl_jax.errors import UserError
from agentrl_jax.sandbox.landlock import LIST, READ, READ_FILE, RUN, WRITE_FILE, FileRule

_PROGRAMS = ("/bin", "/lib", "/lib64", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/libexec")
_DATA = ("/usr/share/zoneinfo", "/usr/share/i18n", "/etc/ld.so.cache", "/etc/localtime")
_INPUT_DEVICES = ("/dev/zero", "/dev/random", "/dev/urandom")
_INSTALLED, _PACKAGE = ("site-packages", "dist-packages"), "agentrl_jax"
_DEVICES = ("/dev/null", "/dev/full")


def system_rules() -> list[FileRule]:
    """Programs, shared libraries and devices."""
    return [
        *(FileRule(path, RUN) for path in _PROGRAMS),
        *(FileRule(path, READ) for path in (*_DATA, *_INPUT_DEVICES)),
        *(FileRule(path, READ_FILE | WRITE_FILE) for path in _DEVICES),
    ]


def python_rules() -> list[FileRule]:
    """This interpreter's program and its standard library; without the packages installed there,
    where this one is among them: a policy need not read its environments.
    """
    paths = sysconfig.get_paths()
    programs = os.path.dirname(os.path.realpath(sys.executable))
    libraries = glob.glob(os.path.join(sysconfig.get_config_var("LIBDIR") or "", "libpython*"))
    rules = [FileRule(path, RUN) for path in (programs, *{*map(os.path.realpath, libraries)})]
    folder = os.path.realpath(paths["stdlib"])
    if not any(os.path.exists(os.path.join(folder, name, _PACKAGE)) for name in _INSTALLED):
        return [*rules, FileRule(folder, RUN)]
    # A rule each, which costs up to 10 ms a snippet.
    names = [name for name in os.listdir(folder) if name not in _INSTALLED]
    return [
        *rules,
        FileRule(folder, LIST),
        *(FileRule(os.path.join(folder, name), RUN) for name in names),
    ]


def standard_search_path() -> list[str]:
    """The parts of `sys.path` that are the standard library."""
    standard = os.path.realpath(sysconfig.get_paths()["stdlib"])
    paths = [os.path.realpath(path) for path in sys.path if path]
    inner = [path for path in paths if os.path.dirname(path) == standard]
    return [standard, *(path for path in inner if os.path.basename(path) not in _INSTALLED)]


def module_rules(modules: Sequence[str]) -> tuple[list[str], list[FileRule]]:
    """What must be on `sys.path`, and which files may be read, so that snippets can import modules.

    Raises:
        UserError: a module is not installed here.
    """
    search_path, rules = [], []
    for name in modules:
        top = name.partition(".")[0]
        spec = importlib.util.find_spec(top)
        if spec is None:
            raise UserError(f"the sandbox should offer the module {top}, which is not installed")
        if spec.origin in (None, "built-in", "frozen") or top in sys.stdlib_module_names:
            continue
        places = [Path(place) for place in spec.submodule_search_locations or [spec.origin]]
        for place in places:
            folder = place.parent
            search_path.append(str(folder))
            rules += [
                FileRule(str(folder), LIST),
                FileRule(str(place), RUN),
                FileRule(str(folder / f"{top}.libs"), RUN),
            ]
    return list(dict.fromkeys(search_path)), list(dict.fromkeys(rules))
