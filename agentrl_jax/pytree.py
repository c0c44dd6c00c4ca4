"""`@pytree_dataclass`: a frozen dataclass that is a pytree of its fields."""

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np

T = TypeVar("T")

AnyArray = jax.Array | np.ndarray  # for fields that the host fills and the device reads


def static_field(**kwargs: Any) -> Any:
    """A field that belongs to the tree's structure: a compile-time constant under `jit`."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(static_field, dataclasses.field)
)
def pytree_dataclass(cls: type[T]) -> type[T]:
    """Make `cls` a frozen, keyword-only dataclass and register it as a pytree.

    Unflattening bypasses `__init__`: annotations are checked where code constructs an instance,
    while `tree.map`, `vmap` and `scan` may fill its fields with anything (shardings, tracers).
    """
    cls = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    leaves = tuple(f.name for f in fields if not f.metadata.get("static"))
    constants = tuple(f.name for f in fields if f.metadata.get("static"))

    def flatten_with_keys(x: Any):
        keyed = tuple((jax.tree_util.GetAttrKey(n), getattr(x, n)) for n in leaves)
        return keyed, tuple(getattr(x, n) for n in constants)

    def flatten(x: Any):
        return tuple(getattr(x, n) for n in leaves), tuple(getattr(x, n) for n in constants)

    def unflatten(aux: Any, children: Any) -> Any:
        x = object.__new__(cls)
        for name, value in (*zip(leaves, children), *zip(constants, aux)):
            object.__setattr__(x, name, value)
        return x

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls
