"""A small run of SFT and GRPO on the letter task, for any number of processes."""

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import CharacterTokenizer
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.timeouts import Timeouts
from agentrl_jax.training.config import (
    AgentConfig,
    DemonstrationConfig,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
)
from agentrl_jax.training.sources import Demonstrations, Rollouts


def get_config() -> Experiment:
    adam = AdamWConfig(1e-3, eps=1e-4)
    return Experiment(
        name="letters",
        environment=EnvironmentConfig(
            "support.letter_task:tests/Letters-v0",
            workers=0,
            timeouts=Timeouts(barrier=20000.0, heartbeat=10.0),
        ),
        agent=AgentConfig(budget=3),
        tokenizer=CharacterTokenizer(),
        policy=DecoderConfig(layers=1, width=16, hidden=32, heads=2, kv_heads=1, head_size=8),
        demonstrations=DemonstrationConfig("random", episodes=40),
        phases={
            "sft": Phase(
                "SFT",
                Demonstrations(10),
                BehaviorCloningConfig(optimizer=adam, bin_length=32, microbatch=4),
                steps=3,
                checkpoint_every=2,
            ),
            "rl": Phase(
                "GRPO",
                Rollouts(5, IndependentEpisodes(3)),
                grpo(optimizer=adam, bin_length=32, microbatch=4),
                steps=5,
                checkpoint_every=2,
            ),
        },
        evaluation=EvaluationConfig(episodes=7, players=("random", "expert")),
        engine=EngineConfig(rows=16, positions=32, prefill_chunk=4, min_decode_steps=3),
        record_groups=4,
    )
