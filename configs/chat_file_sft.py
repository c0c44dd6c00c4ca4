"""Fine-tuning on a file of chats with tools and an image, without an environment.

A text stands for an image. docs/data_formats.md describes the files, and how they are written again
without the change of a byte.

Hardware: 2 CPU cores; time: about a minute; score: none, nothing is played

    agentrl-train --config=configs/chat_file_sft.py [--config.demonstrations.path=FILE]
"""

from pathlib import Path

from agentrl_jax.algorithms.contexts.history_views import LastImages
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import BPETokenizer
from agentrl_jax.renderer import ChatFormat
from agentrl_jax.training.config import (
    AgentConfig,
    DemonstrationConfig,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
)
from agentrl_jax.training.sources import Demonstrations


def get_config() -> Experiment:
    chats = Path(__file__).resolve().with_name("chat_file.jsonl")
    agent = AgentConfig(ChatFormat(tools_as_text=True), LastImages(0, "[image]"), budget=96)
    clone = BehaviorCloningConfig(optimizer=AdamWConfig(3e-3), bin_length=512, microbatch=16)
    return Experiment(
        name="chat_file_sft",
        environment=EnvironmentConfig(name="", workers=0),
        evaluation=EvaluationConfig(episodes=0, players=()),
        agent=agent,
        tokenizer=BPETokenizer(vocab_size=512, chat=True),
        policy=DecoderConfig(layers=2, width=64, hidden=128, heads=4, kv_heads=2, head_size=16),
        demonstrations=DemonstrationConfig(path=str(chats)),
        phases={"sft": Phase("SFT", Demonstrations(batch=16), clone, steps=60)},
    )
