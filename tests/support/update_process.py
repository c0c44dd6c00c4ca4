"""One process of a group: GRPO steps on hand-made groups, for several cases one after the other.

python update_process.py cases.json RESULT_FOLDER --coordinator=... --processes=... --process_id=...

A case maps names to options (`make_config`, `make_groups`); the parameters and metrics of case NAME
at process P are written to RESULT_FOLDER/NAME.P.npz.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import flags
from jax.sharding import Mesh
from support.fixtures import MeanEmbeddingPolicy, random_groups, tiny_policy, with_sampler_logp

from agentrl_jax.algorithms.advantages.token_weights import token_mean, trajectory_mean, turn_mean
from agentrl_jax.algorithms.experience.filters import TopScoreStd
from agentrl_jax.algorithms.losses.importance import TruncatedIS
from agentrl_jax.algorithms.losses.regularizers import KL
from agentrl_jax.algorithms.methods import grpo, ppo
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.distributed.process_group import ProcessGroup, initialize
from agentrl_jax.distributed.resharding import reshard
from agentrl_jax.distributed.sharding import MeshConfig, make_mesh, replicated_sharding
from agentrl_jax.learner.learner import fetch_metrics
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.policy import Policy
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group
from agentrl_jax.workers.pool import InlinePool

STEPS = 3
AGGREGATIONS = {"tokens": token_mean, "trajectories": trajectory_mean, "turns": turn_mean}
HEAD = HeadConfig(layers=0, scale=0.1)
POLICIES: dict[str, Policy] = {
    "mean embedding": MeanEmbeddingPolicy(),
    "decoder": tiny_policy(layers=1, heads=4, kv_heads=2),
}


def make_config(case: dict[str, Any]) -> PolicyGradientConfig:
    adam = AdamWConfig(learning_rate=0.03, eps=1e-3, weight_decay=0.1, clip_norm=0.5)
    settings = case.get("settings", {})
    config = grpo(optimizer=adam, bin_length=24, microbatch=4, **settings)
    if case.get("critic"):
        config = ppo(
            HEAD,
            optimizer=adam,
            bin_length=24,
            microbatch=4,
            filter=TopScoreStd(0.7),
            rescore=True,
            mismatch=TruncatedIS(),
            minibatches=2,
        )
    if case.get("kl"):
        config.regularizers = {"kl": KL(case["kl"])}
    config.aggregation = AGGREGATIONS[case.get("aggregation", "tokens")]
    return config


def make_groups(case: dict[str, Any], step: int) -> list[Group]:
    """All groups of a step, of unequal lengths and numbers of sequences and turns."""
    rng = np.random.default_rng([step, 0])

    def turn() -> tuple[int, int, bool, float]:
        return (
            int(rng.integers(1, 4)),
            int(rng.integers(1, 4)),
            bool(rng.random() < 0.2),
            float(rng.normal()),
        )

    def trajectory() -> list[tuple[int, int, bool, float]]:
        return [turn() for _ in range(rng.integers(1, 4))]

    shapes = [[trajectory() for _ in range(rng.integers(1, 5))] for _ in range(case["groups"])]
    policy = POLICIES["mean embedding"]
    return with_sampler_logp(
        policy, policy.init(jax.random.key(7)), random_groups(shapes, seed=step), noise_scale=0.1
    )


def train_steps(
    case: dict[str, Any], process_group: ProcessGroup, mesh: Mesh
) -> dict[str, np.ndarray]:
    """The parameters after some steps, as this process's engine receives them, and the metrics of
    each step.
    """
    policy = POLICIES[case.get("policy", "mean embedding")]
    algorithm = make_config(case).build(policy, mesh, steps=10)
    state = algorithm.init(jax.random.key(0), policy.init(jax.random.key(1)))
    results: dict[str, np.ndarray] = {}
    with Runtime({}, {}, InlinePool(), process_group=process_group) as runtime:
        for step in range(STEPS):
            groups = process_group.local_items(make_groups(case, step))
            state, metrics = algorithm.step(state, groups, runtime)
            for part in ("device", "critic"):
                for i, on_device in enumerate(metrics.pop(part, [])):
                    fetched = fetch_metrics(on_device).items()
                    metrics |= {f"{part} {name} {i}": value for name, value in fetched}
            results |= {
                f"{name} of step {step}": np.asarray(x, np.float64) for name, x in metrics.items()
            }
    trained = {"policy": state.params, "critic": state.extra.critic and state.extra.critic.params}
    first_device = replicated_sharding(make_mesh(MeshConfig(), jax.local_devices()[:1]))
    for path, x in jax.tree_util.tree_leaves_with_path(trained):
        results[jax.tree_util.keystr(path)] = np.asarray(reshard(x, first_device))
    return results


def in_order(mesh: Mesh, order: Sequence[int]) -> Mesh:
    """The mesh with the devices of these ids along its rows, as another host order has them."""
    by_id = {device.id: device for device in mesh.devices.flat}
    ids = sorted(by_id)
    grid = np.array([by_id[ids[i]] for i in order], object).reshape(mesh.devices.shape)
    return Mesh(grid, mesh.axis_names, axis_types=mesh.axis_types)


def main() -> None:
    import agentrl_jax.launch.train  # noqa: F401  its flags

    _, cases, folder, *_ = flags.FLAGS(sys.argv)
    f = flags.FLAGS
    with initialize(f.coordinator, f.processes, f.process_id) as process_group:
        for name, case in json.loads(Path(cases).read_text()).items():
            mesh = make_mesh(MeshConfig(**case.get("mesh", {})))
            if order := case.get("order"):
                mesh = in_order(mesh, order)
            results = train_steps(case, process_group, mesh)
            path = Path(folder) / f"{name}.{process_group.index}.npz"
            np.savez(path, allow_pickle=False, **results)


if __name__ == "__main__":
    main()
