"""Rollouts that never wait for the trainer: python examples/asynchronous.py [STEPS]

Every answer of the environment takes .1 s here. `AsyncRollouts` plays on while the learner updates;
tokens are at most `staleness` versions old, and each carries the version that sampled it, so
truncated importance weights (arXiv 2509.23866) correct for what changed since. The metrics file
says how old they were and how long each side waited.
"""

import json
import sys
from pathlib import Path

from agentrl_jax import (
    AdamWConfig,
    AgentConfig,
    AsyncRollouts,
    DemonstrationConfig,
    Demonstrations,
    EngineConfig,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
    Rollouts,
    train,
)
from agentrl_jax.algorithms.losses.importance import TruncatedIS
from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import ByteTokenizer
from agentrl_jax.workers.latency import EnvLatency

RUN_DIR = Path("runs/example-asynchronous")


def make_experiment(steps: int = 10) -> Experiment:
    cloning = BehaviorCloningConfig(optimizer=AdamWConfig(1e-3), bin_length=200, microbatch=16)
    algorithm = grpo(
        rescore=True,
        mismatch=TruncatedIS(high=1.0),
        optimizer=AdamWConfig(2e-4, warmup_steps=3),
        bin_length=200,
        microbatch=32,
    )
    return Experiment(
        name="asynchronous",
        environment=EnvironmentConfig(
            "agentrl_jax.envs:agentrl/Chain-v0", {"length": 4}, workers=2, delay=EnvLatency(0.1)
        ),
        agent=AgentConfig(budget=3),
        tokenizer=ByteTokenizer(),
        policy=DecoderConfig(layers=2, width=32, hidden=64, heads=2, kv_heads=1, head_size=16),
        demonstrations=DemonstrationConfig("weak", episodes=500),
        phases={
            "sft": Phase("SFT", Demonstrations(32), cloning, steps=40),
            "rl": Phase(
                "GRPO", AsyncRollouts(Rollouts(tasks=8), staleness=2), algorithm, steps=steps
            ),
        },
        evaluation=EvaluationConfig(episodes=64, players=("random", "expert")),
        record_groups=8,  # every rollout is logged: the index of rollouts is built from the log
        engine=EngineConfig(rows=64, parked_slots=128, positions=200),  # three steps' episodes
    )


if __name__ == "__main__":
    experiment = make_experiment(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
    train(experiment, RUN_DIR, fresh=True)
    for line in (RUN_DIR / "metrics.jsonl").read_text().splitlines():
        metrics = json.loads(line)
        if metrics.get("phase") == "rl":
            print(f"step {metrics['step']}: mean staleness {metrics['staleness']:.2f}")
