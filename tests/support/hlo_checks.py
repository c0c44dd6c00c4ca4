"""Checks of compiled programs."""

import math

import jax
from jax.sharding import Mesh

from agentrl_jax.compiler.hlo_collectives import Collective, parse_collectives
from agentrl_jax.distributed.sharding import is_logical_axes, num_shards
from agentrl_jax.policy import Policy


def stacked_all_gathers(hlo: str, policy: Policy, mesh: Mesh) -> list[Collective]:
    """The all-gathers of a matrix of all layers at once, where one layer at a time would do.

    A stacked matrix [L, ..., ...] is recognized by L and its size, in full or split over `tensor`
    or `expert`. The list should be empty.
    """
    stacks = set()
    names = jax.tree.leaves(policy.axes(), is_leaf=is_logical_axes)
    weights = jax.tree.leaves(jax.eval_shape(policy.init, jax.random.key(0)))
    for axes, weight in zip(names, weights, strict=True):
        if axes[0] == "layers" and weight.ndim > 2 and weight.shape[0] > 1:
            for split in ((), ("tensor",), ("expert",), ("expert", "tensor")):
                stacks.add((weight.shape[0], weight.size // num_shards(mesh, split)))

    def is_full_stack(shape: tuple[int, ...]) -> bool:
        return any((n, math.prod(shape)) in stacks for n in shape)

    return [
        x
        for x in parse_collectives(hlo)
        if x.kind == "all-gather" and any(map(is_full_stack, x.shapes))
    ]
