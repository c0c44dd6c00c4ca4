"""`Publication`: copies the learner's weights into an engine's layout, a few arrays at a time."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval
from jax.sharding import Mesh, NamedSharding

from agentrl_jax.distributed.resharding import reshard
from agentrl_jax.distributed.sharding import weight_shardings
from agentrl_jax.policy import Params, Policy
from agentrl_jax.sampling_weights import LAYOUT_PRIMITIVES, only_moves, sampling_weights

MAX_GROUP_BYTES = 2**28  # of a device: smaller arrays are published together


class TreePart(NamedTuple):
    """Indices of some leaves of the learner's tree, and of those of the engine's made of them."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class WeightGroup:
    """Arrays that are published together."""

    # Of each array of the learner's: its index, the dtype in which it is moved, and where to.
    inputs: tuple[tuple[int, np.dtype, NamedSharding], ...]
    outputs: tuple[int, ...]  # indices of the engine's arrays
    program: Callable[..., list[jax.Array]]  # of the inputs on the engine's devices
    program_into: Callable[..., list[jax.Array]]  # of these and of the old arrays, donated


class Publication:
    """Copies weights: cast, resharded on the learner's devices, moved, and unstacked, one group of
    arrays after the other.

    With the engine's old weights, which are donated, the devices hold the arrays of one group in
    addition; without them, a second copy of all.
    """

    def __init__(
        self,
        policy: Policy,
        mesh: Mesh,
        dtype: np.dtype,
        max_group_bytes: int = MAX_GROUP_BYTES,
    ) -> None:
        """
        Args:
            policy: the model.
            mesh: of the engine.
            dtype: of the engine's matrices.
            max_group_bytes: of a device.
        """
        self._policy, self._mesh, self._dtype = policy, mesh, dtype
        self._max_group_bytes = max_group_bytes
        self._groups: list[WeightGroup] = []  # known with the first weights
        self._tree: Any = None  # of the engine's weights

    def __call__(self, params: Params, old: Params = None) -> Params:
        """The weights on the engine's devices, always with the same shardings.

        Args:
            params: the learner's, on any devices, or NumPy arrays.
            old: is donated, if given.
        """
        if not self._groups:
            self._groups, self._tree = self.groups(params)
        leaves = jax.tree.leaves(params)
        previous = None if old is None else jax.tree.leaves(old)
        results: dict[int, jax.Array] = {}
        for group in self._groups:
            moved = [reshard(_cast(leaves[i], dtype), to) for i, dtype, to in group.inputs]
            with jax.set_mesh(self._mesh):
                arrays = (
                    group.program(moved)
                    if previous is None
                    else group.program_into(moved, [previous[i] for i in group.outputs])
                )
            # or the next group's arrays would be allocated beside this one's
            results |= zip(group.outputs, jax.block_until_ready(arrays), strict=True)
        return jax.tree.unflatten(self._tree, [results[i] for i in range(len(results))])

    def groups(self, params: Params) -> tuple[list[WeightGroup], Any]:
        """The groups in which weights of these shapes are published, and the tree that they make.

        Args:
            params: arrays, or shapes.
        """
        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in jax.tree.leaves(params)]
        shardings = jax.tree.leaves(weight_shardings(self._mesh, self._policy.axes(), params))
        with jax.set_mesh(self._mesh):  # how weights are laid out depends on the platform
            unstacked, _ = self._trace(params, shapes)
            dtypes = [x.dtype for x in shapes]
            parts = connected_parts(unstacked.jaxpr)
            for part in parts:
                if part.inputs and (dtype := _dtype_of_moves(unstacked.jaxpr, part)):
                    (i,) = part.inputs
                    dtypes[i] = dtype
            # Their casts come first, so that devices exchange the narrow numbers.
            shapes = [jax.ShapeDtypeStruct(x.shape, dtype) for x, dtype in zip(shapes, dtypes)]
            unstacked, tree = self._trace(params, shapes)
        sizes = [
            math.prod(sharding.shard_shape(x.shape)) * x.dtype.itemsize
            for x, sharding in zip(shapes, shardings)
        ]
        groups = []
        for part in _merged(parts, sizes, self._max_group_bytes):
            jaxpr = _part_of(unstacked.jaxpr, part)
            program = _copied(jax.extend.core.ClosedJaxpr(jaxpr, unstacked.consts))
            inputs = tuple((i, dtypes[i], shardings[i]) for i in part.inputs)
            groups.append(
                WeightGroup(
                    inputs,
                    part.outputs,
                    jax.jit(lambda new, program=program: program(new)),
                    jax.jit(
                        lambda new, old, program=program: program(new),
                        donate_argnums=1,
                        keep_unused=True,
                    ),
                )
            )
        return groups, tree

    def _trace(self, params: Params, shapes: Sequence[Any]) -> tuple[Any, Any]:
        """The jaxpr from leaves of the learner's tree to those of the engine's, and its tree."""
        learner_tree, trees = jax.tree.structure(params), []

        def unstacked(*leaves: jax.Array) -> list[jax.Array]:
            weights = jax.tree.unflatten(learner_tree, leaves)
            weights, tree = jax.tree.flatten(sampling_weights(self._policy, weights, self._dtype))
            trees.append(tree)
            return weights

        return jax.make_jaxpr(unstacked)(*shapes), trees[0]


def connected_parts(jaxpr: Any) -> list[TreePart]:
    """The finest parts of a function's inputs and outputs that do not depend on each other.

    Inputs that no output depends on are in none of them.
    """
    sources: dict[Any, frozenset[int]] = {x: frozenset([i]) for i, x in enumerate(jaxpr.invars)}

    def sources_of(variables: Sequence[Any]) -> frozenset[int]:
        known = [sources.get(x, frozenset()) for x in variables if not _is_literal(x)]
        return frozenset().union(*known)

    for eqn in jaxpr.eqns:
        sources |= dict.fromkeys(eqn.outvars, sources_of(eqn.invars))
    parts: list[tuple[set[int], list[int]]] = []
    for i, output in enumerate(jaxpr.outvars):
        inputs, outputs = set(sources_of([output])), [i]
        joined = [part for part in parts if part[0] & inputs or not part[0] | inputs]
        for part in joined:
            parts.remove(part)
            inputs, outputs = inputs | part[0], part[1] + outputs
        parts.append((inputs, outputs))
    return [TreePart(tuple(sorted(a)), tuple(sorted(b))) for a, b in parts]


def _is_literal(x: Any) -> bool:
    return isinstance(x, jax.extend.core.Literal)


def _part_of(jaxpr: Any, part: TreePart) -> Any:
    """The jaxpr of some inputs and outputs, alone."""
    outputs = [i in part.outputs for i in range(len(jaxpr.outvars))]
    used = [i in part.inputs for i in range(len(jaxpr.invars))]
    return partial_eval.dce_jaxpr(jaxpr, outputs, instantiate=used)[0]


def _dtype_of_moves(jaxpr: Any, part: TreePart) -> np.dtype | None:
    """The dtype in which the only input can be moved: that of all outputs, where these are its
    numbers, rounded; None where it is their own.
    """
    dtypes = {jaxpr.outvars[i].aval.dtype for i in part.outputs}
    input_dtypes = {jaxpr.invars[i].aval.dtype for i in part.inputs}
    moves = only_moves(_part_of(jaxpr, part), {*LAYOUT_PRIMITIVES, "convert_element_type"})
    return (
        dtypes.pop()
        if len(part.inputs) == len(dtypes) == 1 and moves and dtypes != input_dtypes
        else None
    )


def _merged(parts: Sequence[TreePart], sizes: Sequence[int], max_bytes: int) -> list[TreePart]:
    """Consecutive parts joined where their inputs together have at most `max_bytes`."""
    merged: list[TreePart] = []
    for part in parts:
        last = merged[-1] if merged else TreePart((), ())
        joined = TreePart(
            tuple(sorted(last.inputs + part.inputs)), tuple(sorted(last.outputs + part.outputs))
        )
        fits = sum(sizes[i] for i in joined.inputs) <= max_bytes
        merged = [*merged[:-1], joined] if merged and fits else [*merged, part]
    return merged


def _copied(function: Any) -> Callable[[Sequence[jax.Array]], list[jax.Array]]:
    """A function of the inputs whose results are never their memory: the learner's next step
    donates that.
    """
    call = jax.extend.core.jaxpr_as_fun(function)
    return lambda inputs: [jnp.copy(x) for x in call(*inputs)]


def _cast(x: Any, dtype: np.dtype) -> Any:
    return x if x.dtype == dtype else _cast_program(dtype)(x)


@functools.cache
def _cast_program(dtype: np.dtype) -> Callable[[Any], jax.Array]:
    return jax.jit(lambda x: x.astype(dtype))
