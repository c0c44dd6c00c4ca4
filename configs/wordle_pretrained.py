r"""Wordle (LMRL-Gym, arXiv 2311.18232) with a pretrained chat model: GRPO on LoRA adapters.

GRPO is arXiv 2402.03300, LoRA arXiv 2106.09685. FOLDER holds a Hugging Face model (config.json,
safetensors, tokenizer with a chat template), such as Qwen/Qwen2.5-0.5B-Instruct, or is its name
where there is a network. `:smoke` takes two short steps of each phase: enough to check on a CPU
that a folder of a small model works.

Hardware: one accelerator with 16 GB or more; time: not measured; score: not measured

    agentrl-train --config=configs/wordle_pretrained.py \
        --config.policy.policy.folder=FOLDER --config.tokenizer.folder=FOLDER
"""

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.errors import UserError
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.adapters import LoraConfig
from agentrl_jax.models.hf.pretrained import PretrainedDecoder
from agentrl_jax.models.tokenizers import FolderTokenizer
from agentrl_jax.renderer import ChatRenderer
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.config import (
    AgentConfig,
    DemonstrationConfig,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
)
from agentrl_jax.training.sources import Demonstrations, Rollouts

MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
MAX_LENGTH = 512  # tokens of a whole game


def get_config(variant: str = "full") -> Experiment:
    if variant not in ("full", "smoke"):
        raise UserError(f"configs/wordle_pretrained.py has no variant {variant!r}, only smoke")
    config = Experiment(
        name="wordle-pretrained",
        environment=EnvironmentConfig("agentrl_jax.envs:agentrl/Wordle-v0", workers=2),
        agent=AgentConfig(ChatRenderer, budget=16),
        tokenizer=FolderTokenizer(MODEL),
        policy=LoraConfig(
            PretrainedDecoder(MODEL, param_dtype="bfloat16", compute_dtype="bfloat16"),
            rank=16,
            alpha=32.0,
        ),
        demonstrations=DemonstrationConfig("consistent", episodes=2000),
        phases={
            "sft": Phase(
                "SFT",
                Demonstrations(batch=32),
                BehaviorCloningConfig(
                    optimizer=AdamWConfig(2e-4, warmup_steps=10),
                    bin_length=MAX_LENGTH,
                    microbatch=8,
                ),
                steps=60,
            ),
            "rl": Phase(
                "GRPO",
                Rollouts(tasks=32, strategy=IndependentEpisodes(group_size=8)),
                grpo(
                    optimizer=AdamWConfig(1e-4, warmup_steps=5), bin_length=MAX_LENGTH, microbatch=8
                ),
                steps=100,
            ),
        },
        evaluation=EvaluationConfig(episodes=256, players=("random", "consistent", "expert")),
        engine=EngineConfig(
            rows=64, positions=MAX_LENGTH, prefill_chunk=64, min_decode_steps=8, batching_delay=0.1
        ),
    )
    if variant == "smoke":
        assert config.demonstrations
        config.name += "-smoke"
        config.demonstrations.episodes, config.evaluation.episodes = 50, 8
        config.phases["sft"].steps = config.phases["rl"].steps = 2
        config.phases["sft"].source, config.phases["rl"].source = (
            Demonstrations(batch=4),
            Rollouts(2, IndependentEpisodes(group_size=2)),
        )
    return config
