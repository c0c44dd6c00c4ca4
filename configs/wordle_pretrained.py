"""Wordle (LMRL-Gym, arXiv 2311.18232) with a pretrained chat model: GRPO (arXiv 2402.03300) on LoRA adapters (arXiv 2106.09685).

agentrl-train --config=configs/wordle_pretrained.py --config.policy.policy.folder=FOLDER --config.tokenizer.folder=FOLDER

FOLDER holds a Hugging Face model (config.json, safetensors, tokenizer with a chat template), such as Qwen/Qwen2.5-0.5B-Instruct, or is
its name where there is a network. Meant for one accelerator with 16 GB or more; no score is stated, for none was measured.
`:smoke` takes two short steps of each phase: enough to see on a CPU that a folder of a small model works.
"""

from agentrl_jax.algorithms.grpo import grpo
from agentrl_jax.algorithms.supervised import SupervisedConfig
from agentrl_jax.errors import UserError
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
from agentrl_jax.models.adapters import LoraConfig
from agentrl_jax.models.pretrained import Pretrained
from agentrl_jax.models.tokenizers import FolderTokenizer
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.rendering import ChatRenderer
from agentrl_jax.strategies import Independent

MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
LONGEST = 512  # tokens of a whole game


def get_config(variant: str = "full") -> Experiment:
    if variant not in ("full", "smoke"):
        raise UserError(f"configs/wordle_pretrained.py has no variant {variant!r}, only smoke")
    config = Experiment(
        name="wordle-pretrained",
        environment=EnvironmentConfig("agentrl_jax.envs:agentrl/Wordle-v0", workers=2),
        agent=AgentConfig(ChatRenderer, budget=16),
        tokenizer=FolderTokenizer(MODEL),
        policy=LoraConfig(Pretrained(MODEL, param_dtype="bfloat16", compute_dtype="bfloat16"), rank=16, alpha=32.0),
        demonstrations=DemonstrationConfig("consistent", episodes=2000),
        sft=Phase(
            "SFT",
            Demonstrations(batch=32),
            SupervisedConfig(optimizer=AdamWConfig(2e-4, warmup_steps=10), bin_length=LONGEST, microbatch=8),
            steps=60,
        ),
        rl=Phase(
            "GRPO",
            Rollouts(tasks=32, strategy=Independent(group_size=8)),
            grpo(optimizer=AdamWConfig(1e-4, warmup_steps=5), bin_length=LONGEST, microbatch=8),
            steps=100,
        ),
        evaluation=EvaluationConfig(episodes=256, players=("random", "consistent", "expert")),
        engine=EngineConfig(rows=64, positions=LONGEST, chunk=64, burst=8, patience=0.1),
    )
    if variant == "smoke":
        assert config.demonstrations and config.sft and config.rl
        config.name += "-smoke"
        config.demonstrations.episodes, config.evaluation.episodes = 50, 8
        config.sft.steps = config.rl.steps = 2
        config.sft.source, config.rl.source = Demonstrations(batch=4), Rollouts(2, Independent(group_size=2))
    return config
