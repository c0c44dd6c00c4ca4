"""Publishes a learner's weights to an engine of each process; writes what its devices then hold.

publish_process.py FOLDER ORDER... --coordinator=... --processes=... --process_id=...
ORDER: the learner's devices by their number.
"""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from support.fixtures import tiny_policy
from support.host_reads import count_host_reads

from agentrl_jax.distributed.sharding import MESH_AXES, MeshConfig, make_mesh, weight_shardings
from agentrl_jax.inference.publication import Publication
from agentrl_jax.learner.data_shards import put_sharded

POLICY = tiny_policy(kv_heads=2)


def main(folder: Path, order: list[int], coordinator: str, processes: int, index: int) -> None:
    jax.distributed.initialize(coordinator, processes, index)
    grid = np.array(jax.devices(), object)[order].reshape(1, -1, 1, 1)
    params = POLICY.init(jax.random.key(0))
    shardings = weight_shardings(Mesh(grid, MESH_AXES), POLICY.axes(), params)
    params = jax.tree.map(put_sharded, params, shardings)
    engine_mesh = make_mesh(MeshConfig(data=1, tensor=-1), jax.local_devices())
    publish = Publication(POLICY, engine_mesh, jnp.dtype("float32"), max_group_bytes=1)
    with count_host_reads() as reads:
        weights = publish(params)
        weights = publish(params, weights)
    (folder / f"reads.{index}.json").write_text(json.dumps(reads))
    arrays = {jax.tree_util.keystr(path): x for path, x in jax.tree.leaves_with_path(weights)}
    on_host = {name: np.asarray(x) for name, x in arrays.items()}
    np.savez(folder / f"weights.{index}.npz", allow_pickle=False, **on_host)


if __name__ == "__main__":
    flags = dict(x.removeprefix("--").split("=") for x in sys.argv[1:] if x.startswith("--"))
    folder, *order = (x for x in sys.argv[1:] if not x.startswith("--"))
    main(
        Path(folder),
        [int(i) for i in order],
        flags["coordinator"],
        int(flags["processes"]),
        int(flags["process_id"]),
    )
