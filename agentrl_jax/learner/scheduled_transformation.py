"""optax transformations that know their learning rate, for metrics."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from agentrl_jax.learner.stochastic_rounding import RoundedTransformation

RATE = "learning_rate"


class ScheduledTransformation(optax.GradientTransformation):
    """A transformation with the schedule of its learning rate."""

    schedule: optax.Schedule

    @classmethod
    def of(
        cls, transformation: optax.GradientTransformation, schedule: optax.Schedule
    ) -> "ScheduledTransformation":
        """The transformation, with its schedule."""
        scheduled = cls(transformation.init, transformation.update)
        scheduled.schedule = schedule
        return scheduled


class GroupedTransformation(optax.GradientTransformation):
    """`optax.multi_transform` with the transformations of its groups."""

    groups: Mapping[str, optax.GradientTransformation]

    @classmethod
    def of(
        cls,
        transformation: optax.GradientTransformation,
        groups: Mapping[Any, optax.GradientTransformation],
    ) -> "GroupedTransformation":
        """The transformation of all groups, with that of each."""
        grouped = cls(transformation.init, transformation.update)
        grouped.groups = {str(name): group for name, group in groups.items()}
        return grouped


def learning_rates(tx: optax.GradientTransformation, opt_state: Any) -> dict[str, Array]:
    """The rates of the next update: `learning_rate`, of parameter groups `learning_rate/<group>`.

    {} where the transformation does not say, or does not count its updates as optax's schedules do.
    """
    if isinstance(tx, RoundedTransformation):
        return learning_rates(tx.inner, opt_state.inner)
    if isinstance(tx, GroupedTransformation):
        return {
            f"{RATE}/{name}": rate
            for name, group in tx.groups.items()
            for rate in learning_rates(group, opt_state.inner_states[name]).values()
        }
    counts = _schedule_counts(opt_state)
    if not isinstance(tx, ScheduledTransformation) or not counts:
        return {}
    with jax.numpy_dtype_promotion("standard"):  # as in the update
        return {RATE: jnp.asarray(tx.schedule(counts[0]), jnp.float32)}


def _schedule_counts(opt_state: Any) -> list[Any]:
    """The counts of updates by which schedules are evaluated; all are equal."""
    states = jax.tree.leaves(opt_state, is_leaf=lambda x: isinstance(x, optax.ScaleByScheduleState))
    return [x.count for x in states if isinstance(x, optax.ScaleByScheduleState)]
