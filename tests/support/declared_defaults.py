"""The defaults that a dataclass or a function declares."""

import dataclasses
import inspect
from typing import Any


def declared_defaults(declared: Any) -> dict[str, Any]:
    """Each field or parameter with a default value; factories are left out."""
    if dataclasses.is_dataclass(declared):
        fields = dataclasses.fields(declared)
        return {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}
    parameters = inspect.signature(declared).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}
