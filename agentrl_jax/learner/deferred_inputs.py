"""`DeferredCreditInputs`: credit inputs of all processes, of which a column is exchanged when it is
first read.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from agentrl_jax.learner.sequences import CreditInputs, Level, TokenIndex
from agentrl_jax.trajectories import Trajectory

INDEX_FIELDS = tuple(field.name for field in dataclasses.fields(TokenIndex))
# The other fields of the credit inputs, and the level of each.
COLUMN_LEVELS: dict[str, Level] = {
    field.name: field.metadata["level"]
    for field in dataclasses.fields(CreditInputs)
    if field.name not in INDEX_FIELDS
}
TrajectoryFn = Callable[[Trajectory], Any]
Selection = Mapping[Level, slice | np.ndarray]  # slices, or masks; a level that is missing: all


class _DeferredColumn:
    """A field that is read once."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, inputs: Any, owner: type | None = None) -> Any:
        if inputs is None:
            return None  # the default of the field
        value = vars(inputs)["_read_column"](self._name)
        vars(inputs)[self._name] = value
        return value


class DeferredCreditInputs(CreditInputs):
    """The token index of all processes, and columns that are exchanged when they are first read.

    A function of them may read what it likes, but on every process it must read the same columns in
    the same order; functions of what all processes have in common do. What no function reads stays
    with the process whose groups it belongs to.
    """

    @classmethod
    def of(
        cls,
        index: TokenIndex,
        read_column: Callable[[str], Any],
        map_trajectories: Callable[[TrajectoryFn], list[Any]],
    ) -> "DeferredCreditInputs":
        """
        Args:
            index: of all processes.
            read_column: returns a column by its name, in the order of `index`; called once for
                each.
            map_trajectories: returns the values of a function of each trajectory, in that order.
        """
        inputs = cls.__new__(cls)  # `dataclasses.replace` calls `__init__` with all columns
        vars(inputs).update({name: getattr(index, name) for name in INDEX_FIELDS})
        vars(inputs).update(_read_column=read_column, _map_trajectories=map_trajectories)
        return inputs

    def select(self, index: TokenIndex, selection: Selection) -> "DeferredCreditInputs":
        """A part of the inputs: its index, and which items of each level it holds."""

        def read_column(name: str) -> Any:
            column, part = getattr(self, name), selection.get(COLUMN_LEVELS[name])
            return column if column is None or part is None else column[part]

        def map_trajectories(function: TrajectoryFn) -> list[Any]:
            return trajectory_values(self, function)[selection.get("trajectory", slice(None))]

        return DeferredCreditInputs.of(index, read_column, map_trajectories)


def trajectory_values(inputs: CreditInputs, function: TrajectoryFn) -> list[Any]:
    """A value of each trajectory, [J]: each process computes those of its own, and they alone are
    exchanged.

    Args:
        inputs: of all processes.
        function: of a trajectory alone; returns JSON data.
    """
    map_trajectories = vars(inputs).get("_map_trajectories")
    if map_trajectories is None:  # the trajectories are here
        return list(map(function, inputs.trajectories))
    return map_trajectories(function)


for _name in COLUMN_LEVELS:
    setattr(DeferredCreditInputs, _name, _DeferredColumn(_name))
