"""One process of several (or alone): three GRPO steps on hand-made groups, and what they gave in an npz file.

python updates.py case.json result.npz [--coordinator=... --processes=... --process_id=...]
"""

import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import flags
from hand_made import Averaging, grown_groups, minute_policy, sampled_by

import agentrl_jax.launch.train  # noqa: F401  its flags
from agentrl_jax.algorithms.aggregation import token_mean, trajectory_mean, turn_mean
from agentrl_jax.algorithms.filters import TopStd
from agentrl_jax.algorithms.grpo import grpo
from agentrl_jax.algorithms.methods.critics import ppo
from agentrl_jax.algorithms.mismatch import Clipped
from agentrl_jax.algorithms.policy_gradient import PolicyGradientConfig
from agentrl_jax.algorithms.terms import KL
from agentrl_jax.hosts import Hosts, join
from agentrl_jax.learner import fetch_metrics
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.policy import Policy
from agentrl_jax.runtime import Runtime
from agentrl_jax.sharding import MeshConfig, make_mesh
from agentrl_jax.shares import brought
from agentrl_jax.trajectories import Group
from agentrl_jax.workers import InProcess

AGGREGATIONS = {"tokens": token_mean, "trajectories": trajectory_mean, "turns": turn_mean}
HEAD = HeadConfig(layers=0, scale=0.1)
POLICIES: dict[str, Policy] = {"averaging": Averaging(), "decoder": minute_policy(layers=1, heads=4, kv_heads=2)}


def config_of(case: dict[str, Any]) -> PolicyGradientConfig:
    adam = AdamWConfig(learning_rate=0.03, eps=1e-3, weight_decay=0.1, clip_norm=0.5)
    config = grpo(optimizer=adam, bin_length=24, microbatch=case.get("microbatch", 4), **case.get("settings", {}))
    if case.get("critic"):
        config = ppo(HEAD, optimizer=adam, bin_length=24, microbatch=4, filter=TopStd(0.7), rescore=True, mismatch=Clipped(), minibatches=2)
    if case.get("kl"):
        config.regularisers = {"kl": KL(case["kl"])}
    config.aggregation = AGGREGATIONS[case.get("aggregation", "tokens")]
    return config


def experience(case: dict[str, Any], step: int) -> list[Group]:
    """All groups of a step: of unequal lengths, numbers of rows and turns."""
    rng = np.random.default_rng([step, case.get("seed", 0)])

    def turn() -> tuple[int, int, bool, float]:
        return int(rng.integers(1, 4)), int(rng.integers(1, 4)), bool(rng.random() < 0.2), float(rng.normal())

    def trajectory() -> list[tuple[int, int, bool, float]]:
        return [turn() for _ in range(rng.integers(1, 4))]

    shapes = [[trajectory() for _ in range(rng.integers(1, 5))] for _ in range(case["groups"])]
    policy = POLICIES["averaging"]
    return sampled_by(policy, policy.init(jax.random.key(7)), grown_groups(shapes, seed=step), gap=0.1)


def trained(case: dict[str, Any], hosts: Hosts) -> dict[str, np.ndarray]:
    """Parameters after three steps, as they come to this process's engine, and the metrics of each step."""
    policy = POLICIES[case.get("policy", "averaging")]
    algorithm = config_of(case).build(policy, make_mesh(MeshConfig(**case.get("mesh", {}))), steps=10)
    state, found = algorithm.init(jax.random.key(0), policy.init(jax.random.key(1))), {}
    with Runtime({}, {}, InProcess(), hosts=hosts) as runtime:
        for step in range(3):
            state, metrics = algorithm.step(state, hosts.mine(experience(case, step)), runtime)
            for part in ("device", "critic"):
                for i, on_device in enumerate(metrics.pop(part, [])):
                    metrics |= {f"{part} {name} {i}": value for name, value in fetch_metrics(on_device).items()}
            found |= {f"{name} of step {step}": np.float64(value) for name, value in metrics.items()}
    trained = {"policy": state.params, "critic": state.extra.critic and state.extra.critic.params}
    for path, x in jax.tree_util.tree_leaves_with_path(trained):
        found[jax.tree_util.keystr(path)] = np.asarray(brought(x))
    return found


def main() -> None:
    _, case, result, *_ = flags.FLAGS(sys.argv)
    with join(flags.FLAGS.coordinator, flags.FLAGS.processes, flags.FLAGS.process_id) as hosts:
        found = trained(json.loads(Path(case).read_text()), hosts)
        np.savez(f"{result}.{hosts.index}.npz", allow_pickle=False, **found)


if __name__ == "__main__":
    main()
