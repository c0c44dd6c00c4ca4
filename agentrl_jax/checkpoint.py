"""Orbax checkpoints of a phase: the device tree and the host's state, restored exactly."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from agentrl_jax.errors import UserError
from agentrl_jax.learner import TrainState
from agentrl_jax.policy import Params


def _plain(state: TrainState) -> dict[str, Any]:
    """The state as a dict of ordinary arrays: random keys are saved as their data."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, vars(state))


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _check_shapes(folder: Path, like: Any, part: str | None = None) -> None:
    """Raise UserError where the saved arrays (or their top-level `part`) have other shapes than `like`.

    Looked up before anything is read: a restore that fails half-way leaves reads behind.
    """
    try:
        with ocp.PyTreeCheckpointer() as reader:
            metadata: Any = reader.metadata(folder).item_metadata
            tree = metadata.tree if part is None else metadata.tree[part]
    except (ValueError, KeyError, TypeError, OSError, AttributeError) as error:
        raise UserError(f"the checkpoint {folder} cannot be read: it is damaged or not one of this package") from error
    saved = sorted(tuple(leaf.shape) for leaf in jax.tree.leaves(tree, is_leaf=lambda x: hasattr(x, "shape")))
    if saved != sorted(tuple(leaf.shape) for leaf in jax.tree.leaves(like)):
        raise UserError(f"the checkpoint {folder} holds another architecture or optimizer than the config describes")


class Keeper:
    """The checkpoints of one phase; keeps the newest two."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False, create=True)
        self._manager = ocp.CheckpointManager(self._folder, options=options)

    @property
    def latest(self) -> int | None:
        """The newest saved step."""
        return self._manager.latest_step()

    def save(self, step: int, state: TrainState, host: dict[str, Any]) -> None:
        if step == self.latest:
            return
        self._manager.save(step, args=ocp.args.Composite(state=ocp.args.StandardSave(_plain(state)), host=ocp.args.JsonSave(host)))

    def restore(self, like: TrainState) -> tuple[TrainState, dict[str, Any]]:
        """The newest state, sharded as `like`, and the host's state. Raises UserError where it is another architecture's."""
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, _plain(like))
        step = self.latest
        assert step is not None
        _check_shapes(self._folder / str(step) / "state", abstract)
        items = self._manager.restore(step, args=ocp.args.Composite(state=ocp.args.StandardRestore(abstract), host=ocp.args.JsonRestore()))
        whole = jax.tree.map(lambda like, x: jax.random.wrap_key_data(x) if _is_key(like) else x, vars(like), items["state"])
        return TrainState(**whole), items["host"]

    def close(self) -> None:
        self._manager.close()


def keep_params(folder: Path, params: Params) -> None:
    """Write parameters alone, in the place of what the folder holds."""
    with ocp.StandardCheckpointer() as writer:
        writer.save(folder.absolute(), params, force=True)


def kept_params(folder: Path, like: Params) -> Params:
    """What `keep_params` wrote, sharded as `like`. Raises UserError where that is not there or of another shape."""
    abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
    _check_shapes(folder.absolute(), abstract)
    with ocp.StandardCheckpointer() as reader:
        return reader.restore(folder.absolute(), abstract)


def load_host(folder: Path) -> dict[str, Any]:
    """The host's state in a phase's newest checkpoint. Raises UserError where there is none."""
    manager, step = _newest(folder)
    return manager.restore(step, args=ocp.args.Composite(host=ocp.args.JsonRestore()))["host"]


def _newest(folder: Path) -> tuple[ocp.CheckpointManager, int]:
    manager = ocp.CheckpointManager(folder.absolute(), options=ocp.CheckpointManagerOptions(read_only=True)) if folder.is_dir() else None
    step = manager.latest_step() if manager else None
    if manager is None or step is None:
        raise UserError(f"there is no checkpoint in {folder}: train first, or name another run")
    return manager, step


def load_params(folder: Path, like: Params) -> Params:
    """The parameters of a phase's newest checkpoint; `like` gives shapes. Raises UserError where there is none that fits."""
    path = folder.absolute() / str(_newest(folder)[1]) / "state"
    _check_shapes(path, like, "params")
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    how = ocp.checkpoint_utils.construct_restore_args({"params": like}, jax.tree.map(lambda _: here, {"params": like}))
    with ocp.PyTreeCheckpointer() as reader:
        return reader.restore(path, args=ocp.args.PyTreeRestore({"params": like}, restore_args=how, partial_restore=True))["params"]
