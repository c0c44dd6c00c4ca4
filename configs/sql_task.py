"""Shared by the experiments on databases (docs/sql.md): the task, and a short fine-tuning of the
base model on demonstrations, then a method.
"""

from typing import Any

from agentrl_jax.configs.fine_tuned_base import base_model_experiment
from agentrl_jax.envs.sql.grammar import SQL_TOOL_FORMAT
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.renderer import ChatFormat
from agentrl_jax.training.algorithm import AlgorithmConfig
from agentrl_jax.training.config import (
    AgentConfig,
    DemonstrationConfig,
    EvaluationConfig,
    Experiment,
    Source,
)
from agentrl_jax.training.task_source import EnvironmentSpec, TaskSource

NAME = "agentrl_jax.envs:agentrl/SqlQuestions-v0"
GROUNDING = "agentrl_jax.envs:agentrl/SqlGrounding-v0"
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


def grounding_spec() -> EnvironmentSpec:
    """Which tables a question of `sql_spec` needs, of the same seed."""
    return EnvironmentSpec(GROUNDING, {"difficulty": 0.0, "instruction": False})


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
    splits = ("schemas",) if smoke else ("schemas", "entities", "templates")
    evaluated: dict[str, TaskSource] = {
        split: sql_spec(horizon=horizon, split=split) for split in splits
    }
    return base_model_experiment(
        f"sql-mars-{variant}",
        sql_spec(horizon=horizon),
        AgentConfig(
            ChatFormat(tool_format=SQL_TOOL_FORMAT), budget=256, temperature=0.6, top_p=0.95
        ),
        DemonstrationConfig("recovering", episodes=16 if smoke else 800),
        EvaluationConfig(episodes=2 if smoke else 128, players=("random",), environments=evaluated),
        (4, 2 if smoke else 300),
        (algorithm, source, 2 if smoke else 40),
        EngineConfig(
            rows=16, positions=MAX_LENGTH, prefill_chunk=64, min_decode_steps=8, batching_delay=0.1
        ),
    )
