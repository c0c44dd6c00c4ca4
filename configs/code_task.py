"""Shared by the experiments on problems that are solved with code (docs/code.md): the task, a short
fine-tuning of the base model on demonstrations, then a method.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.configs.fine_tuned_base import base_model_experiment
from agentrl_jax.envs.code.protocols import PROTOCOLS
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.renderer import ChatFormat
from agentrl_jax.training.config import (
    AgentConfig,
    DemonstrationConfig,
    EvaluationConfig,
    Experiment,
    Source,
)
from agentrl_jax.training.mixture import Mixture
from agentrl_jax.training.task_source import EnvironmentSpec, TaskSource

NAME = "agentrl_jax.envs:agentrl/CodeProblems-v0"
SERVED = "agentrl_jax.envs:agentrl/ServedCodeProblems-v0"
# Short questions about numbers, whose programs are one line.
EASY = ("product", "common_divisor", "digit_sum", "divisor_count")
MAX_LENGTH = 416  # tokens of an episode, of which the tool's description is a fifth
TRAINING_SETTINGS: dict[str, Any] = {
    "optimizer": AdamWConfig(2e-4, warmup_steps=3),
    "minibatches": 2,
    "microbatch": 1,
}


def code_spec(environment: str = NAME, **options: Any) -> EnvironmentSpec:
    """The easy problems, with short prompts and errors, and with other options."""
    short = {"instruction": False, "short_errors": True}
    easy = {"generators": EASY, "difficulty": 0.0, "horizon": 4}
    return EnvironmentSpec(environment, {**easy, **short, **options})


def test_specs(environment: str = NAME, **options: Any) -> dict[str, TaskSource]:
    """Where a policy is evaluated: held-out texts of the trained generators."""
    return {"test": code_spec(environment, split="test", **options)}


def code_experiment(
    name: str,
    algorithm: PolicyGradientConfig,
    source: Source,
    options: Mapping[str, Any],
    smoke: bool,
    demonstrated: Mapping[str, TaskSource] | None = None,
    evaluated: Mapping[str, TaskSource] | None = None,
    steps: int = 16,
    sft_steps: int = 160,
    evaluation_episodes: int = 64,
    max_length: int = MAX_LENGTH,
    environment: str = NAME,
) -> Experiment:
    """Fine-tuning on a policy of which three turns in five are an expert's that mends its code, the
    others at random, then the method.

    Args:
        name: of the run.
        algorithm, source: of the method's phase.
        options: of the environment.
        smoke: two short steps of each phase.
        demonstrated: whose tasks are demonstrated, in equal numbers; None: the environment's.
        evaluated: see `EvaluationConfig.environments`; None: held-out texts.
        steps, sft_steps: of the method and of fine-tuning.
        evaluation_episodes: in each environment that is evaluated.
        max_length: tokens of an episode, and of a packed row.
        environment: its name.
    """
    tool_format = PROTOCOLS[options.get("protocol", "boxed")].tool_format
    return base_model_experiment(
        name,
        code_spec(environment, **options),
        AgentConfig(ChatFormat(tool_format=tool_format), budget=96),
        DemonstrationConfig(
            "weak",
            episodes=16 if smoke else 800,
            task_source=Mixture(demonstrated) if demonstrated else None,
        ),
        EvaluationConfig(
            episodes=4 if smoke else evaluation_episodes,
            players=("random",),
            environments=evaluated or test_specs(environment, **options),
        ),
        (8, 2 if smoke else sft_steps),
        (replace(algorithm, bin_length=max_length), source, 2 if smoke else steps),
        EngineConfig(
            rows=32, positions=max_length, prefill_chunk=32, min_decode_steps=8, batching_delay=0.1
        ),
    )
