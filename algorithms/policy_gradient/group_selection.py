"""Which groups of a step's experience train what: auxiliary objectives, filters and replay."""

from collections.abc import Sequence

import numpy as np

from agentrl_jax.algorithms.experience.filters import apply_filter
from agentrl_jax.algorithms.policy_gradient.auxiliary import AuxiliaryObjective
from agentrl_jax.algorithms.policy_gradient.config import PolicyGradientSlots
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.trajectories import Group


def split_auxiliary(
    auxiliaries: Sequence[AuxiliaryObjective], groups: list[Group]
) -> tuple[list[Group], list[list[Group]]]:
    """The groups of the policy gradient, and those that each auxiliary objective reserves."""
    reserved = []
    for auxiliary in auxiliaries:
        groups, own_groups = auxiliary.split_groups(groups)
        reserved.append(own_groups)
    return groups, reserved


def filter_and_replay(
    config: PolicyGradientSlots,
    groups: Sequence[Group],
    process_group: ProcessGroup,
    rng: np.random.Generator,
) -> list[tuple[int, Group]]:
    """Filter, inject replay, filter again; each group with its index among those of all
    processes.
    """
    c, stride = config, process_group.count
    indices = range(process_group.index, len(groups) * stride, stride)
    indexed_groups = list(zip(indices, groups))
    if c.pre_filter:
        indexed_groups = apply_filter(c.pre_filter, process_group, indexed_groups)
    if c.replay is not None:
        indexed_groups = [
            (index, injected)
            for index, group in indexed_groups
            for injected in c.replay.inject([group], rng)
        ]
    return apply_filter(c.filter, process_group, indexed_groups) if c.filter else indexed_groups
