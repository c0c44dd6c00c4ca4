"""One process of a group that trains the letters run on several meshes, one after the other.

python train_process.py runs.json --coordinator=... --processes=... --process_id=...

runs.json maps run folders to overrides of config fields, {"mesh.data": 2}; "order" lists the
devices of all processes as the learner's mesh shall have them.
"""

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from absl import flags
from jax.experimental import mesh_utils
from support import letters_config


def device_order(order: Sequence[int] | None) -> contextlib.AbstractContextManager[Any]:
    """Meshes over all devices have them in this order; None: in that of JAX."""
    if order is None:
        return contextlib.nullcontext()
    create = mesh_utils.create_device_mesh

    def create_in_order(shape: Sequence[int], devices: Sequence[Any], **options: Any) -> np.ndarray:
        if len(devices) != len(order):
            return create(shape, devices, **options)
        return np.array([devices[i] for i in order], object).reshape(shape)

    return mock.patch.object(mesh_utils, "create_device_mesh", create_in_order)


def main() -> None:
    import agentrl_jax.launch.train  # noqa: F401  its flags
    from agentrl_jax.distributed.process_group import initialize
    from agentrl_jax.training import loop

    _, runs, *_ = flags.FLAGS(sys.argv)
    f = flags.FLAGS
    with initialize(f.coordinator, f.processes, f.process_id) as process_group:
        for run_dir, overrides in json.loads(Path(runs).read_text()).items():
            experiment, order = letters_config.get_config(), overrides.pop("order", None)
            for path, value in overrides.items():
                *parents, name = path.split(".")
                config = experiment
                for parent in parents:
                    config = getattr(config, parent)
                assert hasattr(config, name), path
                setattr(config, name, value)
            with device_order(order):
                loop.train(experiment, Path(run_dir), process_group=process_group)


if __name__ == "__main__":
    main()
