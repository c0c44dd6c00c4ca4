"""Orbax checkpoints of a phase: the train state and the host state, restored exactly.

Each has digests of its files (`storage.digests`), which are checked before anything is read.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jaxtyping import Array

from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.learner.checkpoint_digests import (
    check_checkpoint,
    find_intact_checkpoint,
    log_choice,
    print_warning,
    set_aside,
    write_checkpoint_digests,
)
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.policy import Params
from agentrl_jax.storage.digests import folder_damage

LAST_GOOD = "last_good_checkpoint"  # in the host state that is saved
BEST = "best_checkpoint"  # likewise


def _to_plain_arrays(state: TrainState) -> dict[str, Any]:
    """The state as a dict of plain arrays: random keys are saved as their data."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, vars(state))


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _check_shapes(folder: Path, like: Any, part: Sequence[str] = ()) -> None:
    """Raise UserError where the saved arrays, or those of `part`, have other shapes than `like`.

    Checked before anything is read: a restore that fails half-way leaves pending reads.
    """
    try:
        with ocp.PyTreeCheckpointer() as reader:
            metadata: Any = reader.metadata(folder).item_metadata
            tree = functools.reduce(operator.getitem, part, metadata.tree)
    except (ValueError, KeyError, TypeError, OSError, AttributeError) as error:
        raise UserError(
            f"the checkpoint {folder} cannot be read: it is damaged or not one of this package"
        ) from error
    saved = sorted(
        tuple(leaf.shape) for leaf in jax.tree.leaves(tree, is_leaf=lambda x: hasattr(x, "shape"))
    )
    if saved != sorted(tuple(leaf.shape) for leaf in jax.tree.leaves(like)):
        raise UserError(
            f"the checkpoint {folder} holds another architecture or optimizer "
            "than the config describes"
        )


@jax.jit
def _is_finite(params: Params, rest: Any) -> Array:
    """Whether no parameter is infinite and no number of all is NaN."""
    finite = [jnp.isfinite(x).all() for x in jax.tree.leaves(params) if _is_float(x)]
    numbers = [~jnp.isnan(x).any() for x in jax.tree.leaves(rest) if _is_float(x)]
    return jnp.all(jnp.stack([*finite, *numbers]))


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def is_finite(state: TrainState) -> bool:
    """Whether a state may be saved: no weight is infinite, and nothing in it is NaN."""
    return bool(_is_finite(state.params, (state.opt_state, state.extra)))


@dataclass
class _NewestGoodAndBest:
    """Orbax's policy: the newest two checkpoints are kept, the last good one, and the best one."""

    last_good: int | None = None
    best: int | None = None

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        newest = [checkpoint.step for checkpoint in checkpoints][-2:]
        return [c.step in (*newest, self.last_good, self.best) for c in checkpoints]


class PhaseCheckpointer:
    """The checkpoints of one phase; keeps the newest two, the newest good one, and the best one."""

    def __init__(
        self,
        folder: Path,
        process_group: ProcessGroup | None = None,
        log: Callable[[str], None] = print_warning,
    ) -> None:
        """Open the folder; damaged checkpoints that are newer than an intact one are set aside.

        Args:
            folder: of the phase; is created.
            process_group: whose processes call this, and each method, together; None: this one.
            log: is told what is damaged.

        Raises:
            UserError: all checkpoints are damaged.
        """
        self._folder, self._process_group = folder.absolute(), process_group or ProcessGroup()
        chosen = find_intact_checkpoint(self._folder, self._process_group)
        if chosen is not None:
            log_choice(folder, chosen, log)
            set_aside(self._folder, chosen.damages, self._process_group)
        self._preserved = _NewestGoodAndBest()
        options = ocp.CheckpointManagerOptions(
            preservation_policy=self._preserved, enable_async_checkpointing=False, create=True
        )
        self._manager = ocp.CheckpointManager(self._folder, options=options)

    @property
    def latest_step(self) -> int | None:
        """The newest step, of those saved since the folder was opened and the intact one before."""
        return self._manager.latest_step()

    def save(
        self,
        step: int,
        state: TrainState,
        host_state: dict[str, Any],
        good: bool = True,
        best: int | None = None,
    ) -> None:
        """Write the checkpoint of a step, if it is not the newest already.

        Args:
            step: of the phase.
            state: on the devices.
            host_state: JSON data.
            good: whether no update since the last checkpoint was skipped; the newest good one is
                kept until there is another.
            best: the step of the best checkpoint, which is kept; None: there is none.
        """
        if step == self.latest_step:
            return
        if good:
            self._preserved.last_good = step
        self._preserved.best = best
        marks = {LAST_GOOD: self._preserved.last_good, BEST: best}
        self._manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(_to_plain_arrays(state)),
                host=ocp.args.JsonSave({**host_state, **marks}),
            ),
        )
        write_checkpoint_digests(self._folder / str(step), self._process_group)

    def restore(self, like: TrainState) -> tuple[TrainState, dict[str, Any]]:
        """The newest state, sharded as `like`, and the host state.

        Raises:
            UserError: the checkpoint is damaged or of another architecture or optimizer.
        """
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, _to_plain_arrays(like))
        step = self.latest_step
        assert step is not None
        _check_shapes(self._folder / str(step) / "state", abstract)
        items = self._manager.restore(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardRestore(abstract), host=ocp.args.JsonRestore()
            ),
        )
        fields = jax.tree.map(
            lambda like, x: jax.random.wrap_key_data(x) if _is_key(like) else x,
            vars(like),
            items["state"],
        )
        self._preserved.last_good = items["host"].pop(LAST_GOOD, step)
        self._preserved.best = items["host"].pop(BEST, None)
        return TrainState(**fields), items["host"]

    def close(self) -> None:
        """Release the checkpoint manager."""
        self._manager.close()


def save_params(folder: Path, params: Params, process_group: ProcessGroup | None = None) -> None:
    """Write parameters alone, replacing the folder's content; all processes call this together."""
    with ocp.StandardCheckpointer() as writer:
        writer.save(folder.absolute(), params, force=True)
    write_checkpoint_digests(folder.absolute(), process_group or ProcessGroup())


def restore_params(folder: Path, like: Params) -> Params:
    """What `save_params` wrote, sharded as `like`. Raises UserError where the folder holds no
    parameters, damaged ones, or ones of other shapes.
    """
    damage = folder_damage(folder)
    if damage:
        raise UserError(
            f"the parameters in {folder} are damaged ({damage}): restore the folder from a copy, "
            "or train again with --fresh"
        )
    abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
    _check_shapes(folder.absolute(), abstract)
    with ocp.StandardCheckpointer() as reader:
        return reader.restore(folder.absolute(), abstract)


def load_host_state(
    folder: Path, process_group: ProcessGroup | None = None, step: int | None = None
) -> dict[str, Any]:
    """The host state of a phase's checkpoint; see `load_params`."""
    host = _read_host_state(folder, _intact_step(folder, process_group or ProcessGroup(), step))
    return {name: value for name, value in host.items() if name not in (LAST_GOOD, BEST)}


def load_best_step(folder: Path, process_group: ProcessGroup | None = None) -> int:
    """The step of a phase's best checkpoint, as its newest intact one says.

    Raises:
        UserError: there is no checkpoint, or no best one.
    """
    step = _read_host_state(folder, _intact_step(folder, process_group or ProcessGroup())).get(BEST)
    if step is None:
        raise UserError(
            f"no checkpoint in {folder} is the best: evaluate while training and name a metric "
            "(evaluate_every and best.metric of the phase), or use --checkpoint=newest"
        )
    return step


def _read_host_state(folder: Path, step: int) -> dict[str, Any]:
    options = ocp.CheckpointManagerOptions(read_only=True)
    with ocp.CheckpointManager(folder.absolute(), options=options) as manager:
        return manager.restore(step, args=ocp.args.Composite(host=ocp.args.JsonRestore()))["host"]


def _intact_step(folder: Path, process_group: ProcessGroup, step: int | None = None) -> int:
    """The given step, checked; None: that of the newest intact checkpoint, and damaged newer ones
    are named.
    """
    if step is not None:
        check_checkpoint(folder.absolute(), step, process_group)
        return step
    chosen = find_intact_checkpoint(folder.absolute(), process_group)
    if chosen is None:
        raise UserError(f"there is no checkpoint in {folder}: train first, or name another run")
    if process_group.is_coordinator:
        log_choice(folder, chosen, print_warning)
    return chosen.step


def load_params(
    folder: Path,
    like: Params,
    shardings: Any,
    part: Sequence[str] = ("params",),
    process_group: ProcessGroup | None = None,
    step: int | None = None,
) -> Params:
    """The parameters of a checkpoint of a phase; each device reads only the shards that it holds.

    Args:
        folder: the phase's checkpoints.
        like: a tree of arrays or `jax.ShapeDtypeStruct`s with the expected shapes.
        shardings: a like tree.
        part: where the parameters are in the train state.
        process_group: whose processes call this together; None: this one alone.
        step: of the checkpoint; None: the newest intact one, and damaged newer ones are named on
            stderr.

    Raises:
        UserError: there is no intact checkpoint, or one of other shapes.
    """
    step = _intact_step(folder, process_group or ProcessGroup(), step)
    path = folder.absolute() / str(step) / "state"
    _check_shapes(path, like, part)
    item = _nested(part, like)
    restore_args = ocp.checkpoint_utils.construct_restore_args(item, _nested(part, shardings))
    args = ocp.args.PyTreeRestore(item, restore_args=restore_args, partial_restore=True)
    with ocp.PyTreeCheckpointer() as reader:
        return functools.reduce(operator.getitem, part, reader.restore(path, args=args))


def _nested(part: Sequence[str], tree: Any) -> Any:
    """("a", "b"), x -> {"a": {"b": x}}"""
    return functools.reduce(lambda inner, name: {name: inner}, reversed(part), tree)
