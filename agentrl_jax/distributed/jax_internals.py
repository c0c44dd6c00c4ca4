"""The two facts about `jax.distributed` for which JAX (0.10 to 0.12) has no public name.

No other module imports `jax._src`.
"""

from typing import Any


def coordination_client() -> Any:
    """The client of JAX's coordination service: its key-value store and its barriers.

    Orbax reads the same attribute. `jax.experimental.multihost_utils` cannot replace it: its
    collectives run on the devices, without a timeout, and hang where a process is missing.
    """
    from jax._src import distributed

    return distributed.global_state.client


def cluster_size() -> int:
    """The number of processes of the detected cluster; 1 where JAX detects no cluster.

    `jax.distributed.initialize` detects clusters too, but fails where there is none and where the
    devices are already in use, and under Slurm it hides all but one GPU from a single process.
    """
    from jax._src.clusters import ClusterEnv

    detectable = (env for env in ClusterEnv._cluster_types if not env.opt_in_only_method)
    detected = next((env for env in detectable if env.is_env_present()), None)
    return 1 if detected is None else detected.get_process_count()
