"""Shared by the experiments that train a small language model that ships on a task with tools: a
short fine-tuning on demonstrations, then a method.
"""

import copy

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.hf.pretrained import PretrainedDecoder
from agentrl_jax.models.hf.shipped import BASE_MODEL
from agentrl_jax.models.tokenizers import FolderTokenizer
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
from agentrl_jax.training.task_source import EnvironmentSpec


def base_model_experiment(
    name: str,
    environment: EnvironmentSpec,
    agent: AgentConfig,
    demonstrations: DemonstrationConfig,
    evaluation: EvaluationConfig,
    fine_tuning: tuple[int, int],
    method: tuple[AlgorithmConfig, Source, int],
    engine: EngineConfig,
    model: str = BASE_MODEL,
) -> Experiment:
    """Fine-tuning of a model on demonstrations, then a method.

    Args:
        name: of the run.
        environment: played in this process.
        agent: how the policy plays.
        demonstrations: what it is fine-tuned on.
        evaluation: of both phases.
        fine_tuning: episodes of a batch, and steps.
        method: the algorithm of the second phase, its source and its steps.
        engine: its positions are also the length of a packed row.
        model: whose weights and tokenizer it starts from.
    """
    batch, sft_steps = fine_tuning
    algorithm, source, steps = method
    imitate = BehaviorCloningConfig(
        optimizer=AdamWConfig(3e-3, warmup_steps=10, final_fraction=0.1),
        bin_length=engine.positions,
        microbatch=1,
    )
    return Experiment(
        name=name,
        environment=EnvironmentConfig(environment.name, environment.options, workers=0),
        agent=agent,
        tokenizer=FolderTokenizer(model),
        policy=PretrainedDecoder(model),
        demonstrations=demonstrations,
        phases={
            "sft": Phase("SFT", Demonstrations(batch=batch), imitate, sft_steps),
            "rl": Phase("RL", copy.deepcopy(source), copy.deepcopy(algorithm), steps),
        },
        evaluation=evaluation,
        engine=engine,
    )
