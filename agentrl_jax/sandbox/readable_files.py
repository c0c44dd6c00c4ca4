"""Which files of the system a snippet may read or run: Python's own, libraries, few devices."""

import functools
import glob
import importlib.metadata
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
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


@functools.cache
def _distributions() -> Mapping[str, Sequence[str]]:
    """The names of the distributions that hold each installed module, as pillow holds PIL."""
    return importlib.metadata.packages_distributions()


def _library_folder(folder: str, name: str) -> str:
    """Where the shared libraries of a module's wheel are, if it has some."""
    direct = os.path.join(folder, f"{name}.libs")
    if os.path.exists(direct):
        return direct
    names = [
        distribution.replace("-", "_").lower() for distribution in _distributions().get(name, ())
    ]
    paths = (os.path.join(folder, f"{distribution}.libs") for distribution in names)
    return next(filter(os.path.exists, paths), direct)


def module_rules(modules: Sequence[str]) -> tuple[dict[str, str], list[FileRule]]:
    """The folders of the packages of modules that snippets may import, and what they must read.

    Raises:
        UserError: a module is not installed here.
    """
    folders: dict[str, str] = {}
    rules: list[FileRule] = []
    for name in dict.fromkeys(module.partition(".")[0] for module in modules):
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise UserError(f"the sandbox should offer the module {name}, which is not installed")
        if name in sys.stdlib_module_names or spec.origin is None:
            continue
        for place in map(Path, spec.submodule_search_locations or [spec.origin]):
            folder = folders[name] = str(place.parent)
            rules += [
                FileRule(folder, LIST),
                FileRule(str(place), RUN),
                FileRule(_library_folder(folder, name), RUN),
            ]
    return folders, list(dict.fromkeys(rules))
