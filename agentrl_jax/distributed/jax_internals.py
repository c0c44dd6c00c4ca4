"""The one fact about clusters for which JAX (0.10 to 0.12) has no public name.

No other module imports `jax._src`.
"""


def cluster_size() -> int:
    """The number of processes of the detected cluster; 1 where JAX detects no cluster.

    `jax.distributed.initialize` detects clusters too, but fails where there is none and where the
    devices are already in use, and under Slurm it hides all but one GPU from a single process.
    """
    from jax._src.clusters import ClusterEnv

    detectable = (env for env in ClusterEnv._cluster_types if not env.opt_in_only_method)
    detected = next((env for env in detectable if env.is_env_present()), None)
    return 1 if detected is None else detected.get_process_count()
