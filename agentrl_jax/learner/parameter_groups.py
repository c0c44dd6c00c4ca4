"""An optimizer for each group of parameters, chosen by the parameters' paths."""

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import jax
import optax

from agentrl_jax.errors import UserError
from agentrl_jax.learner.optimizer import OptimizerConfig
from agentrl_jax.learner.scheduled_transformation import GroupedTransformation


@dataclass
class ParameterGroup:
    """The parameters whose path `matches`, and what trains them.

    A path looks like `layers/attention/query`; a text is a regular expression that is searched in
    it, a function gets the path.
    """

    matches: str | Callable[[str], bool]
    optimizer: OptimizerConfig | None  # None: the parameters are frozen

    def contains(self, path: str) -> bool:
        if isinstance(self.matches, str):
            return re.search(self.matches, path) is not None
        return self.matches(path)


@dataclass
class ParameterGroups:
    """An optimizer for each named group; a parameter belongs to the first group that matches it.

    Clipping by a global norm, where an optimizer does it, is by the norm of its group.
    """

    groups: dict[str, ParameterGroup]

    def build(self, steps: int) -> optax.GradientTransformation:
        """The transformation for a run of `steps` optimizer steps.

        Raises:
            UserError: here or at its first use, where a parameter is in no group or a group has no
                parameter.
        """
        for name, group in self.groups.items():
            if isinstance(group.matches, str):
                _check_pattern(name, group.matches)
        transformations: dict[Hashable, optax.GradientTransformation] = {
            name: group.optimizer.build(steps) if group.optimizer else optax.set_to_zero()
            for name, group in self.groups.items()
        }
        tx = optax.multi_transform(transformations, self.labels)
        return GroupedTransformation.of(tx, transformations)

    def labels(self, params: Any) -> Any:
        """The tree of the parameters' groups. Raises UserError as `build` says."""
        labels = jax.tree_util.tree_map_with_path(
            lambda path, _: self._group_of(parameter_path(path)), params
        )
        unused = [name for name in self.groups if name not in jax.tree.leaves(labels)]
        if unused:
            paths = [parameter_path(path) for path, _ in jax.tree.leaves_with_path(params)]
            raise UserError(
                f"the parameter group {unused[0]!r} has no parameter: the parameters that earlier "
                f"groups leave are among {', '.join(paths)}"
            )
        return labels

    def _group_of(self, path: str) -> str:
        for name, group in self.groups.items():
            if group.contains(path):
                return name
        raise UserError(
            f"the parameter {path} is in none of the groups {', '.join(self.groups)}: add a group "
            "that matches it, such as ParameterGroup('.*', ...) at the end"
        )


def parameter_path(path: tuple[Any, ...]) -> str:
    """(DictKey("layers"), DictKey("norm")) -> layers/norm"""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _check_pattern(name: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise UserError(
            f"the pattern {pattern!r} of the parameter group {name!r} is no regular expression: "
            f"{error}"
        ) from error
