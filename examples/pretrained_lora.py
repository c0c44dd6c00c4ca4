"""LoRA adapters (arXiv 2106.09685) on a model folder: python examples/pretrained_lora.py [FOLDER]

FOLDER is a Hugging Face folder (config.json, safetensors, tokenizer with a chat template), such as
Qwen2.5-0.5B-Instruct on an accelerator. Without it the program writes a random model of two layers
in that form, which learns nothing but shows every stage on a CPU: loading, cloning, GRPO, merging
and saving a folder that transformers loads.
"""

import sys
import tempfile
from pathlib import Path

import jax

import agentrl_jax.models
from agentrl_jax import (
    AdamWConfig,
    AgentConfig,
    ChatRenderer,
    DemonstrationConfig,
    Demonstrations,
    EngineConfig,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    IndependentEpisodes,
    Phase,
    Rollouts,
    train,
)
from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.models.adapters import LoraConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.hf.pretrained import PretrainedDecoder
from agentrl_jax.models.tokenizers import FolderTokenizer, byte_tokenizer

MAX_LENGTH = 512  # tokens of a whole game


def write_random_model(folder: Path) -> None:
    """A model of two layers and a byte tokenizer with a chat template, as a Hugging Face folder."""
    tokenizer = byte_tokenizer(chat=True)
    policy = DecoderConfig(layers=2, width=32, hidden=64, heads=4, kv_heads=2, head_size=8).build(
        len(tokenizer)
    )
    agentrl_jax.models.save(folder, policy, policy.init(jax.random.key(0)))
    tokenizer.save_pretrained(folder)


def make_experiment(folder: str, steps: int) -> Experiment:
    cloning = BehaviorCloningConfig(
        optimizer=AdamWConfig(2e-4), bin_length=MAX_LENGTH, microbatch=4
    )
    algorithm = grpo(optimizer=AdamWConfig(1e-4), bin_length=MAX_LENGTH, microbatch=4)
    rollouts = Rollouts(tasks=2, strategy=IndependentEpisodes(group_size=4))
    return Experiment(
        name="pretrained-lora",
        environment=EnvironmentConfig("agentrl_jax.envs:agentrl/Wordle-v0", {"words": 128}),
        agent=AgentConfig(ChatRenderer, budget=16),
        tokenizer=FolderTokenizer(folder),
        policy=LoraConfig(PretrainedDecoder(folder), rank=8, alpha=16.0),
        demonstrations=DemonstrationConfig("consistent", episodes=50),
        phases={
            "sft": Phase("SFT", Demonstrations(batch=4), cloning, steps=steps),
            "rl": Phase("GRPO", rollouts, algorithm, steps=steps),
        },
        evaluation=EvaluationConfig(episodes=8, players=("random", "expert")),
        engine=EngineConfig(rows=8, positions=MAX_LENGTH, prefill_chunk=64),
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = sys.argv[1] if len(sys.argv) > 1 else temporary
        if folder == temporary:
            write_random_model(Path(folder))
        train(make_experiment(folder, 100 if folder != temporary else 2), RUN_DIR, fresh=True)


RUN_DIR = Path("runs/example-pretrained-lora")

if __name__ == "__main__":
    main()
