"""Shared by the experiments on text worlds in their own engines (docs/world_methods.md): household
tasks of ALFWorld and quests of TextWorld, for a policy of half a million weights that is trained
from scratch.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentrl_jax.algorithms.advantages.trajectory_checks import is_illegal
from agentrl_jax.algorithms.experience.penalties import TurnPenalty
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.configs.small import SmallTask, rollouts, small_experiment
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import BPETokenizer
from agentrl_jax.training.algorithm import AlgorithmConfig
from agentrl_jax.training.config import DemonstrationConfig, Experiment, Source
from agentrl_jax.training.sources import Demonstrations
from agentrl_jax.training.task_source import EnvironmentSpec

VOCABULARY = 512
HOUSEHOLD = SmallTask(
    "ALFWorld-v0",
    "searching",
    640,
    24,
    {
        "families": ("pick_and_place_simple",),
        "rooms": ("bathroom",),
        "list_commands": False,
        "repeat_task": True,
        "horizon": 12,
    },
    sft_steps=1000,
)
HOUSEHOLD_STEPS = 24  # of a method
TRAINING_SETTINGS: dict[str, Any] = {
    "optimizer": AdamWConfig(1e-3, warmup_steps=3),
    "minibatches": 2,
    "microbatch": 4,
    "bin_length": HOUSEHOLD.max_length,
}
# Released by GiGPO and those that build on it: .1 for each, where a success is 10.
ILLEGAL_PENALTY = 0.05
HOUSEHOLD_SETTINGS = {
    **TRAINING_SETTINGS,
    "rewards": TurnPenalty("illegal", ILLEGAL_PENALTY, is_illegal),
}


def household_experiment(name: str, algorithm: AlgorithmConfig, smoke: bool) -> Experiment:
    """A method on household tasks, evaluated in rooms that training does not have.

    Args:
        name: of the run.
        algorithm: of the method.
        smoke: two short steps of each phase.
    """
    return text_world_experiment(
        name,
        HOUSEHOLD,
        algorithm,
        rollouts(tasks=2 if smoke else 8, group_size=2 if smoke else 8),
        smoke,
        HOUSEHOLD_STEPS,
        {"unseen": {"split": "unseen"}},
    )


def text_world_experiment(
    name: str,
    task: SmallTask,
    algorithm: AlgorithmConfig,
    source: Source,
    smoke: bool,
    steps: int,
    held_out: Mapping[str, Mapping[str, Any]],
    episodes: int = 500,
) -> Experiment:
    """A fine-tuning on demonstrations from scratch, then the method.

    Args:
        name: of the run.
        task: the environment with its options, who demonstrates, and the sizes.
        algorithm, source: of the method's phase.
        smoke: two short steps of each phase.
        steps: of the method's phase.
        held_out: options of the environments where the policy is evaluated, by label.
        episodes: that are demonstrated.
    """
    task = replace(task, sft_steps=2 if smoke else task.sft_steps)
    config = small_experiment(
        name, task, algorithm, source, steps=2 if smoke else steps, players=("random",)
    )
    config.tokenizer = BPETokenizer(vocab_size=VOCABULARY, all_bytes=False)
    config.policy = DecoderConfig(
        layers=3, width=128, hidden=384, heads=4, kv_heads=2, head_size=32
    )
    config.demonstrations = DemonstrationConfig(task.player, episodes=16 if smoke else episodes)
    config.phases["sft"].source = Demonstrations(batch=8)
    config.phases["sft"].algorithm = BehaviorCloningConfig(
        optimizer=AdamWConfig(3e-3, warmup_steps=20, final_fraction=0.1),
        bin_length=task.max_length,
        microbatch=4,
    )
    config.evaluation.episodes = 4 if smoke else 64
    config.evaluation.environments = {
        label: EnvironmentSpec(config.environment.name, {**task.options, **options})
        for label, options in held_out.items()
    }
    config.engine.rows = 32
    config.engine.prefill_chunk = 32
    return config
