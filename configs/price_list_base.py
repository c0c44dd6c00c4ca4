"""Fine-tuning of the base model on a task with tools, and of the same shape from scratch.

The task asks what two things cost together, which needs two look-ups and a calculation; the base
model has seen conversations with other tools (docs/base_model.md). `:scratch` begins with random
weights, and has the same tokenizer, demonstrations and steps.

Hardware: 2 CPU cores; time: about 2 minutes; score: docs/base_model.md

    agentrl-train --config=configs/price_list_base.py[:scratch]
"""

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.configs.base_model import SHAPE
from agentrl_jax.configs.small import pick
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.hf.pretrained import PretrainedDecoder
from agentrl_jax.models.hf.shipped import BASE_MODEL
from agentrl_jax.models.tokenizers import FolderTokenizer
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

MAX_LENGTH = 288  # tokens of an episode, of which the tools' descriptions are half


def get_config(variant: str = "pretrained") -> Experiment:
    policy = pick(
        variant, "price_list_base", pretrained=PretrainedDecoder(BASE_MODEL), scratch=SHAPE
    )
    imitate = BehaviorCloningConfig(
        optimizer=AdamWConfig(1e-3, warmup_steps=3, final_fraction=0.1),
        bin_length=MAX_LENGTH,
        microbatch=8,
    )
    return Experiment(
        name=f"price-list-{variant}",
        environment=EnvironmentConfig(
            "agentrl_jax.envs:agentrl/PriceList-v0", {"items": 4, "most": 1}, workers=0
        ),
        agent=AgentConfig(ChatFormat(), budget=40),
        tokenizer=FolderTokenizer(BASE_MODEL),
        policy=policy,
        demonstrations=DemonstrationConfig("expert", episodes=400),
        phases={"sft": Phase("SFT", Demonstrations(batch=8), imitate, 60, checkpoint_every=1000)},
        evaluation=EvaluationConfig(episodes=64, players=("random",)),
        engine=EngineConfig(
            rows=32, positions=MAX_LENGTH, prefill_chunk=32, min_decode_steps=8, batching_delay=0.1
        ),
    )
