"""Two agents in one game, one policy: python examples/two_agents.py [STEPS]

Kuhn poker has two players. `SelfPlay` lets the policy play both; each player's turns are a
trajectory of their own, and MARS centers advantages by player, so that the one with the worse
position is not blamed for it. The last lines compare both players against the game's random policy.
"""

import sys
from pathlib import Path

from agentrl_jax import (
    AdamWConfig,
    AgentConfig,
    DemonstrationConfig,
    Demonstrations,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
    Rollouts,
    train,
)
from agentrl_jax.algorithms.losses.regularizers import KL
from agentrl_jax.algorithms.methods.multi_turn import mars
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.algorithms.strategies.self_play import SelfPlay
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import ByteTokenizer


def make_experiment(steps: int = 30) -> Experiment:
    optimizer = AdamWConfig(1e-3, warmup_steps=3)
    cloning = BehaviorCloningConfig(optimizer=optimizer, bin_length=48, microbatch=16)
    algorithm = mars(
        rewards=None,  # the game itself charges a malformed action
        regularizers={"kl": KL(0.2)},
        optimizer=optimizer,
        minibatches=2,
        microbatch=32,
        bin_length=48,
    )
    return Experiment(
        name="two-agents",
        environment=EnvironmentConfig(
            "agentrl_jax.envs:agentrl/Kuhn-v0", {"opponent": "random"}, workers=0
        ),
        agent=AgentConfig(budget=2),
        tokenizer=ByteTokenizer(),
        policy=DecoderConfig(layers=2, width=32, hidden=64, heads=2, kv_heads=1, head_size=16),
        demonstrations=DemonstrationConfig("random", episodes=500),
        phases={
            "sft": Phase("SFT", Demonstrations(32), cloning, steps=60),
            "rl": Phase(
                "self-play", Rollouts(tasks=32, strategy=SelfPlay(8)), algorithm, steps=steps
            ),
        },
        evaluation=EvaluationConfig(episodes=256, players=("random", "expert")),
    )


if __name__ == "__main__":
    experiment = make_experiment(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
    train(experiment, Path("runs/example-two-agents"), fresh=True)
