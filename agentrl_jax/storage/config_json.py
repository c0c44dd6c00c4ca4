"""Experiment configs as JSON and back, and the config that a run folder belongs to."""

import dataclasses
import hashlib
import importlib.util
import inspect
import json
import shlex
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from agentrl_jax.config_tree import is_omitted
from agentrl_jax.errors import UserError
from agentrl_jax.storage.code_version import code_version
from agentrl_jax.storage.digests import DIGESTS_FILE, digested_write, file_damage
from agentrl_jax.storage.format_version import (
    RUN_FORMAT_VERSION,
    VERSION_KEY,
    check_format_version,
)
from agentrl_jax.storage.nan_checks import check_not_nan
from agentrl_jax.storage.trust import check_external_names, is_trusted_module

CONFIG_FILE = "config.json"
MAX_PACKAGES = 5  # around the module of a config file
CODE_KEY = "code"  # what the folder was made with, beside the config's own keys


def to_json(x: Any, location: str = "config") -> Any:
    """The value as plain JSON data.

    A dataclass becomes {"class": "module:name", "fields": {...}}, without fields that are omitted
    at their default (`config_tree.OMITTED_AT_DEFAULT`), a function
    {"function": "module:name"}, a dict {"dict": {...}}, a tuple a list.

    Args:
        x: plain data, dataclasses and functions, nested in any way.
        location: where the value stands in the config, for error messages.

    Raises:
        UserError: a value has no name by which it could be imported again (a lambda, a closure).
    """
    if x is None or isinstance(x, bool | int | float | str):
        return x
    if isinstance(x, list | tuple):
        return [to_json(value, f"{location}[{i}]") for i, value in enumerate(x)]
    if isinstance(x, dict):
        return {"dict": {str(key): to_json(value, f"{location}.{key}") for key, value in x.items()}}
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        fields = {
            f.name: to_json(getattr(x, f.name), f"{location}.{f.name}")
            for f in dataclasses.fields(x)
            if f.init and not is_omitted(f, getattr(x, f.name))
        }
        return {"class": _qualified_name(type(x), location), "fields": fields}
    if callable(x):
        return {"function": _qualified_name(x, location)}
    raise UserError(
        f"{location} holds a {type(x).__name__}: use plain data, a dataclass or a module's function"
    )


def digest(config: Any) -> str:
    """A short digest of a config's JSON form: equal configs have equal ones in every process.

    Raises:
        UserError: a value has no name by which it could be imported again.
    """
    text = json.dumps(to_json(config), sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _qualified_name(x: Any, location: str) -> str:
    module, name = getattr(x, "__module__", None), getattr(x, "__qualname__", "<")
    is_bound_method = inspect.ismethod(x) and not isinstance(x.__self__, type)
    if module is None or "<" in name or is_bound_method:
        raise UserError(
            f"{location} holds a function without a name of its own: "
            "use a module's function or a dataclass with __call__"
        )
    return f"{_importable_name(module, name, location)}:{name}"


def _importable_name(module: str, name: str, location: str) -> str:
    """The name by which a module can be imported again: flags load a config file under another."""
    file = getattr(sys.modules.get(module), "__file__", None)
    is_importable = "." in module or PathFinder.find_spec(module) is not None
    if is_importable or file is None or module == "__main__":
        return module
    path = Path(file).resolve()
    in_packages = (".".join([*path.parts[-1 - i : -1], path.stem]) for i in range(MAX_PACKAGES))
    for candidate in (f"agentrl_jax.configs.{path.stem}", *in_packages):
        if _source_file(candidate) == path:
            return candidate
    raise UserError(
        f"{location} holds {name} of {file}, which cannot be imported again: put the file's folder "
        f"on PYTHONPATH (PYTHONPATH={shlex.quote(str(path.parent))} agentrl-train ...)"
    )


def _source_file(module: str) -> Path | None:
    """The file of a module that can be imported; imports the packages around it."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).resolve() if spec is not None and spec.origin else None


def from_json(data: Any) -> Any:
    """The inverse of `to_json`; lists come back as tuples.

    Names are looked up only in this package, and in modules passed to `trust`: a run folder from
    someone else cannot make this process run other code.

    Raises:
        UserError: a name is from another module, or this version of the package lacks it.
    """
    if isinstance(data, list):
        return tuple(map(from_json, data))
    if not isinstance(data, dict):
        return data
    if "dict" in data:
        return {key: from_json(value) for key, value in data["dict"].items()}
    value = _import_name(data.get("class") or data["function"])
    if "function" in data:
        return value
    if not (isinstance(value, type) and dataclasses.is_dataclass(value)):
        raise UserError(f"{data['class']} is no dataclass: the run's {CONFIG_FILE} is damaged")
    fields = {name: from_json(field) for name, field in data["fields"].items()}
    try:
        return value(**fields)
    except TypeError as error:
        raise UserError(
            f"the run was made by another version of {data['class']}: {error}"
        ) from error


def _import_name(name: str) -> Any:
    module, _, attribute = name.partition(":")
    if not is_trusted_module(module):
        raise UserError(
            f"the run's config names {name}, which is not part of this package: "
            f"if {module} is yours, pass --trust={module}"
        )
    try:
        value = importlib.import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"the run's config names {name}, which this version of the package does not have: "
            "read the run with the version that wrote it, or train it again"
            if module.split(".")[0] == "agentrl_jax"
            else f"the run's config names {name}, which cannot be imported ({error}): is the "
            "folder of the module on PYTHONPATH?"
        ) from error
    # "agentrl_jax.workers.server:os.system"
    if not is_trusted_module(str(getattr(value, "__module__", ""))):
        raise UserError(
            f"the run's config names {name}, which this package only imports: "
            f"its {CONFIG_FILE} is damaged"
        )
    return value


def differences(a: Any, b: Any, location: str = "config") -> Iterator[str]:
    """Where two configs in JSON form differ, one short sentence per field."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in {**a, **b}:
            is_structure = key in ("fields", "dict", "class", "function")
            inner = location if is_structure else f"{location}.{key}"
            yield from differences(a.get(key), b.get(key), inner)
        if a.keys() == b.keys() and list(a) != list(b):  # phases are trained in their order
            yield f"{location} was in the order {', '.join(a)} and is in the order {', '.join(b)}"
    elif a != b:
        yield f"{location} was {json.dumps(a)} and is {json.dumps(b)}"


def run_dir_differences(run_dir: Path, config: Any) -> list[str]:
    """Where the config of a run folder differs from `config`.

    Raises:
        UserError: the folder has another format version.
        ValueError: it holds no config.
        OSError: it cannot be read.
    """
    stored = {key: x for key, x in read_config_data(run_dir).items() if key != CODE_KEY}
    return list(differences(stored, _versioned(to_json(config))))


def bind_run_dir(run_dir: Path, config: Any) -> bool:
    """Make `run_dir` the folder of this config.

    Returns:
        True where the folder already was this config's.

    Raises:
        UserError: the folder belongs to another config, has another format version, or cannot be
            written.
    """
    data, path = _versioned(to_json(config)), run_dir / CONFIG_FILE
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        if path.exists():
            changes = run_dir_differences(run_dir, config)
            if changes:
                more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
                raise UserError(
                    f"the run folder {run_dir} belongs to another config ({changes[0]}{more}): "
                    "pass --run_dir=... or --fresh"
                )
            return True
        with digested_write(path) as unfinished:
            unfinished.write_text(json.dumps({**data, CODE_KEY: code_version()}, indent=1))
    except ValueError as error:
        raise UserError(f"{path} is damaged: pass --fresh to start over") from error
    except OSError as error:
        raise UserError(
            f"the run folder {run_dir} cannot be written ({error.strerror}): "
            "choose another with --run_dir=..."
        ) from error
    return False


def load_config(run_dir: Path) -> Any:
    """The config of a run folder.

    Raises:
        UserError: the folder has none, or one of another format version, or a damaged one, or one
            that names what is neither of this package nor trusted.
    """
    path = run_dir / CONFIG_FILE
    try:
        config = from_json(read_config_data(run_dir))
    except FileNotFoundError as error:
        raise UserError(f"{run_dir} is no run folder: it has no {CONFIG_FILE}") from error
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise UserError(
            f"{path} is damaged ({type(error).__name__}): the run cannot be read"
        ) from error
    if not dataclasses.is_dataclass(config):
        raise UserError(f"{path} is damaged (it holds no config): the run cannot be read")
    check_external_names(config)
    check_not_nan(config)
    return config


def _versioned(data: Any) -> dict[str, Any]:
    return {VERSION_KEY: RUN_FORMAT_VERSION, **data}


def read_config_data(run_dir: Path) -> dict[str, Any]:
    """The config in JSON form.

    Raises:
        ValueError: it is none.
        UserError: it is of another format version, or not as it was written.
    """
    if damage := file_damage(run_dir / CONFIG_FILE):
        raise UserError(
            f"{run_dir / CONFIG_FILE} is damaged ({damage}): restore it from a copy; where you "
            f"changed it yourself, delete its entry in {DIGESTS_FILE}"
        )
    data = json.loads((run_dir / CONFIG_FILE).read_text())
    if not isinstance(data, dict):
        raise ValueError(f"an object was expected, not {type(data).__name__}")
    remedy = "use the version that wrote it, or start over with --fresh or another --run_dir"
    check_format_version(data, RUN_FORMAT_VERSION, run_dir, "run folder", remedy)
    return data
