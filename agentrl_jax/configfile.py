"""Configs as JSON and back: what a run folder remembers of its experiment."""

import dataclasses
import importlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.replacing import replacing

_TRUSTED = {"agentrl_jax"}  # top-level modules


def to_json(x: Any, where: str = "config") -> Any:
    """Plain data: a dataclass becomes {"class": "module:name", "fields": ...}, a function "module:name".

    Raises UserError where a value has no name that could be imported again (a lambda, a closure).
    """
    if x is None or isinstance(x, bool | int | float | str):
        return x
    if isinstance(x, list | tuple):
        return [to_json(value, f"{where}[{i}]") for i, value in enumerate(x)]
    if isinstance(x, dict):
        return {"dict": {str(key): to_json(value, f"{where}.{key}") for key, value in x.items()}}
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        fields = {f.name: to_json(getattr(x, f.name), f"{where}.{f.name}") for f in dataclasses.fields(x) if f.init}
        return {"class": _name(type(x), where), "fields": fields}
    if callable(x):
        return {"function": _name(x, where)}
    raise UserError(f"{where} holds a {type(x).__name__}: use plain data, a dataclass or a module's function")


def _name(x: Any, where: str) -> str:
    module, name = getattr(x, "__module__", None), getattr(x, "__qualname__", "<")
    if module is None or "<" in name or (inspect.ismethod(x) and not isinstance(x.__self__, type)):
        raise UserError(f"{where} holds a function without a name of its own: use a module's function or a dataclass with __call__")
    return f"{module}:{name}"


def from_json(data: Any) -> Any:
    """The inverse of `to_json`.

    Names are looked up in this package and in modules that the user said to `trust`, and nowhere else: a run folder that
    somebody hands in cannot make us run other code. Raises UserError elsewhere.
    """
    if isinstance(data, list):
        return tuple(map(from_json, data))
    if not isinstance(data, dict):
        return data
    if "dict" in data:
        return {key: from_json(value) for key, value in data["dict"].items()}
    found = _resolve(data.get("class") or data["function"])
    if "function" in data:
        return found
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise UserError(f"{data['class']} is no dataclass: the run's config.json is damaged")
    fields = {name: from_json(value) for name, value in data["fields"].items()}
    try:
        return found(**fields)
    except TypeError as error:
        raise UserError(f"the run was made by another version of {data['class']}: {error}") from error


def trust(module: str) -> None:
    """Import a module of the user's, and let configs in run folders name what it defines. Raises UserError where it is missing."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"the module {module} cannot be imported ({error}): is its folder on PYTHONPATH?") from error
    _TRUSTED.add(module.split(".")[0])


def _resolve(name: str) -> Any:
    module, _, attribute = name.partition(":")
    if module.split(".")[0] not in _TRUSTED:
        raise UserError(f"the run's config names {name}, which is not part of this package: if {module} is yours, pass --trust={module}")
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UserError(f"the run's config names {name}, which this version of the package does not have") from error
    if str(getattr(found, "__module__", "")).split(".")[0] not in _TRUSTED:  # "agentrl_jax.worker:os.system"
        raise UserError(f"the run's config names {name}, which this package only imports: its config.json is damaged")
    return found


def differences(a: Any, b: Any, where: str = "config") -> Iterator[str]:
    """Where two configs in JSON form differ, one short sentence a place."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in {**a, **b}:
            inner = where if key in ("fields", "dict", "class", "function") else f"{where}.{key}"
            yield from differences(a.get(key), b.get(key), inner)
    elif a != b:
        yield f"{where} was {json.dumps(a)} and is {json.dumps(b)}"


def claim(run_dir: Path, config: Any) -> bool:
    """Make `run_dir` this config's. True where the folder already was; raises UserError where it is another's."""
    data, path = to_json(config), run_dir / "config.json"
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        if path.exists():
            other = list(differences(json.loads(path.read_text()), data))
            if other:
                more = f" and {len(other) - 1} more" if len(other) > 1 else ""
                raise UserError(f"the run folder {run_dir} belongs to another config ({other[0]}{more}): pass --run_dir=... or --fresh")
            return True
        with replacing(path) as unfinished:
            unfinished.write_text(json.dumps(data, indent=1))
    except ValueError as error:
        raise UserError(f"{path} is damaged: pass --fresh to start over") from error
    except OSError as error:
        raise UserError(f"the run folder {run_dir} cannot be written ({error.strerror}): choose another with --run_dir=...") from error
    return False


def load(run_dir: Path) -> Any:
    """The config of a run folder. Raises UserError where it has none."""
    path = run_dir / "config.json"
    try:
        config = from_json(json.loads(path.read_text()))
    except FileNotFoundError as error:
        raise UserError(f"{run_dir} is no run folder: it has no config.json") from error
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}): the run cannot be read") from error
    if not dataclasses.is_dataclass(config):
        raise UserError(f"{path} is damaged (it holds no config): the run cannot be read")
    return config
