"""Shared by the experiments on problems that are solved with code (docs/code.md): the task, a short
fine-tuning of the base model on demonstrations, then a method.
"""

import copy
from collections.abc import Mapping
from typing import Any

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.envs.code.protocols import PROTOCOLS
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
from agentrl_jax.training.mixture import Mixture
from agentrl_jax.training.sources import Demonstrations
from agentrl_jax.training.task_source import EnvironmentSpec, TaskSource

NAME = "agentrl_jax.envs:agentrl/CodeProblems-v0"
# Short questions whose programs are one line.
EASY = ("product", "power_remainder", "backwards", "letter_count", "sorted_letters", "multiples")
MAX_LENGTH = 416  # tokens of an episode, of which the tool's description is a fifth
TRAINING_SETTINGS: dict[str, Any] = {
    "optimizer": AdamWConfig(1e-4, warmup_steps=3),
    "minibatches": 2,
    "microbatch": 4,
    "bin_length": MAX_LENGTH,
}


def code_spec(**options: Any) -> EnvironmentSpec:
    """The easy problems, with short prompts and errors, and with other options."""
    short = {"instruction": False, "short_errors": True}
    easy = {"generators": EASY, "difficulty": 0.2, "horizon": 4}
    return EnvironmentSpec(NAME, {**easy, **short, **options})


def test_specs(**options: Any) -> dict[str, TaskSource]:
    """Where a policy is evaluated: held-out texts of the trained generators."""
    return {"test": code_spec(split="test", **options)}


def code_experiment(
    name: str,
    algorithm: AlgorithmConfig,
    source: Source,
    options: Mapping[str, Any],
    smoke: bool,
    demonstrated: Mapping[str, TaskSource] | None = None,
    evaluated: Mapping[str, TaskSource] | None = None,
    steps: int = 40,
    sft_steps: int = 160,
) -> Experiment:
    """Fine-tuning on the policy that mends its code, then the method.

    Args:
        name: of the run.
        algorithm, source: of the method's phase.
        options: of the environment.
        smoke: two short steps of each phase.
        demonstrated: whose tasks are demonstrated, in equal numbers; None: the environment's.
        evaluated: see `EvaluationConfig.environments`; None: held-out texts.
        steps, sft_steps: of the method and of fine-tuning.
    """
    imitate = BehaviorCloningConfig(
        optimizer=AdamWConfig(3e-3, warmup_steps=10, final_fraction=0.1),
        bin_length=MAX_LENGTH,
        microbatch=4,
    )
    sft = Phase("SFT", Demonstrations(batch=8), imitate, 2 if smoke else sft_steps)
    rl = Phase("RL", copy.deepcopy(source), copy.deepcopy(algorithm), 2 if smoke else steps)
    tool_format = PROTOCOLS[options.get("protocol", "boxed")].tool_format
    return Experiment(
        name=name,
        environment=EnvironmentConfig(NAME, code_spec(**options).options, workers=0),
        agent=AgentConfig(ChatFormat(tool_format=tool_format), budget=96),
        tokenizer=FolderTokenizer(BASE_MODEL),
        policy=PretrainedDecoder(BASE_MODEL),
        demonstrations=DemonstrationConfig(
            "recovering",
            episodes=16 if smoke else 800,
            task_source=Mixture(demonstrated) if demonstrated else None,
        ),
        phases={"sft": sft, "rl": rl},
        evaluation=EvaluationConfig(
            episodes=4 if smoke else 256,
            players=("random",),
            environments=evaluated or test_specs(**options),
        ),
        engine=EngineConfig(
            rows=32, positions=MAX_LENGTH, prefill_chunk=32, min_decode_steps=8, batching_delay=0.1
        ),
    )
