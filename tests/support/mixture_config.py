"""The letters run on a mixture of two environments by success, evaluated in a third one too."""

from support import letters_config

from agentrl_jax.algorithms.advantages.group import GroupedBy
from agentrl_jax.algorithms.advantages.grouping import player_of_trajectory
from agentrl_jax.algorithms.experience.schedules import SuccessRateSampler
from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.training.best_checkpoint import BestCheckpointConfig
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.mixture import Mixture
from agentrl_jax.training.sources import Rollouts
from agentrl_jax.training.task_set import TaskSet
from agentrl_jax.training.task_source import EnvironmentSpec

LETTERS = EnvironmentSpec("support.letter_task:tests/Letters-v0")
VARIED = EnvironmentSpec("support.small_runs:tests/Varied-v0")


def get_config() -> Experiment:
    config = letters_config.get_config()
    phase = config.phases["rl"]
    mixture = Mixture(
        {"letters": LETTERS, "varied": TaskSet(3, environment=VARIED)},
        sampler=SuccessRateSampler(0.5),
    )
    assert isinstance(phase.source, Rollouts)
    phase.source.task_source = mixture
    phase.algorithm = grpo(
        advantage=GroupedBy(player_of_trajectory),
        optimizer=AdamWConfig(1e-3, eps=1e-4),
        bin_length=64,
        microbatch=4,
    )
    imitation = config.phases["sft"].algorithm
    assert isinstance(imitation, BehaviorCloningConfig)
    imitation.bin_length = config.engine.positions = 64
    assert config.demonstrations is not None
    config.demonstrations.task_source = Mixture({"letters": LETTERS, "varied": VARIED})
    config.evaluation.environments = {
        "letters": LETTERS,
        "held-out": EnvironmentSpec("agentrl_jax.envs:agentrl/Chain-v0", {"length": 2}),
    }
    # The processes agree on the evaluations while training, and on the best one.
    phase.evaluate_every, phase.best = 2, BestCheckpointConfig("evaluation/held-out/return")
    config.evaluation.training_episodes = 5
    return config
