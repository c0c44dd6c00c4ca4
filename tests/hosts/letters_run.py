"""A small run with both phases, for any number of processes."""

from agentrl_jax.algorithms.grpo import grpo
from agentrl_jax.algorithms.supervised import SupervisedConfig
from agentrl_jax.deadlines import Deadlines
from agentrl_jax.experiment import (
    AgentConfig,
    DemonstrationConfig,
    Demonstrations,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
    Rollouts,
)
from agentrl_jax.local_engine import EngineConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import Characters
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.strategies import Independent


def get_config() -> Experiment:
    adam = AdamWConfig(1e-3, eps=1e-4)
    return Experiment(
        name="letters",
        environment=EnvironmentConfig("letters:tests/Letters-v0", workers=0, deadlines=Deadlines(hosts=20000.0, silence=10.0)),
        agent=AgentConfig(budget=3),
        tokenizer=Characters(),
        policy=DecoderConfig(layers=1, width=16, hidden=32, heads=2, kv_heads=1, head_size=8),
        demonstrations=DemonstrationConfig("random", episodes=40),
        sft=Phase("SFT", Demonstrations(10), SupervisedConfig(optimizer=adam, bin_length=32, microbatch=4), steps=3, checkpoint_every=2),
        rl=Phase("GRPO", Rollouts(5, Independent(3)), grpo(optimizer=adam, bin_length=32, microbatch=4), steps=5, checkpoint_every=2),
        evaluation=EvaluationConfig(episodes=7, players=("random", "expert")),
        engine=EngineConfig(rows=16, positions=32, chunk=4, burst=3),
        record_groups=4,
    )
