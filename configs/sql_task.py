"""Shared by the experiments on databases (docs/sql.md): the task, and a short fine-tuning of the
base model on demonstrations, then a method.
"""

import copy
from typing import Any

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.envs.sql.grammar import SQL_TOOL_FORMAT
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.hf.pretrained import PretrainedDecoder
from agentrl_jax.models.hf.shipped import BASE_MODEL
from agentrl_jax.models.tokenizers import FolderTokenizer
from agentrl_jax.renderer import ChatFormat
from agentrl_jax.training.algorithm import AlgorithmConfig
from agentrl_jax.training.config import (
    AgentConfig,
    DemonstrationConfig,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    Phase,
    Source,
)
from agentrl_jax.training.sources import Demonstrations
from agentrl_jax.training.task_source import EnvironmentSpec, TaskSource

NAME = "agentrl_jax.envs:agentrl/SqlQuestions-v0"
MAX_LENGTH = 1024  # tokens of an episode
TRAINING_SETTINGS: dict[str, Any] = {
    "optimizer": AdamWConfig(1e-4, warmup_steps=3, clip_norm=0.5),
    "minibatches": 1,
    "microbatch": 4,
    "bin_length": MAX_LENGTH,
}


def sql_spec(**options: Any) -> EnvironmentSpec:
    """Questions on one table, with the schema of that table, short results and no instruction."""
    easy = {"difficulty": 0.0, "schema_view": "tables", "characters": 400}
    return EnvironmentSpec(NAME, {**easy, "instruction": False, "reminder": False, **options})


def sql_experiment(
    variant: str, algorithm: AlgorithmConfig, source: Source, horizon: int, smoke: bool
) -> Experiment:
    """Fine-tuning on the policy that mends its queries, then the method.

    Args:
        variant: the end of the run's name.
        algorithm, source: of the method's phase.
        horizon: turns of an episode.
        smoke: two short steps of each phase.
    """
    imitate = BehaviorCloningConfig(
        optimizer=AdamWConfig(3e-3, warmup_steps=10, final_fraction=0.1),
        bin_length=MAX_LENGTH,
        microbatch=4,
    )
    sft = Phase("SFT", Demonstrations(batch=4), imitate, 2 if smoke else 300)
    rl = Phase("RL", copy.deepcopy(source), copy.deepcopy(algorithm), 2 if smoke else 40)
    splits = ("schemas",) if smoke else ("schemas", "entities", "templates")
    evaluated: dict[str, TaskSource] = {
        split: sql_spec(horizon=horizon, split=split) for split in splits
    }
    return Experiment(
        name=f"sql-mars-{variant}",
        environment=EnvironmentConfig(NAME, sql_spec(horizon=horizon).options, workers=0),
        agent=AgentConfig(
            ChatFormat(tool_format=SQL_TOOL_FORMAT), budget=256, temperature=0.6, top_p=0.95
        ),
        tokenizer=FolderTokenizer(BASE_MODEL),
        policy=PretrainedDecoder(BASE_MODEL),
        demonstrations=DemonstrationConfig("recovering", episodes=16 if smoke else 800),
        phases={"sft": sft, "rl": rl},
        evaluation=EvaluationConfig(
            episodes=2 if smoke else 128,
            players=("random",),
            environments=evaluated,
        ),
        engine=EngineConfig(
            rows=16, positions=MAX_LENGTH, prefill_chunk=64, min_decode_steps=8, batching_delay=0.1
        ),
    )
