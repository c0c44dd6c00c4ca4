"""INSPO (arXiv 2512.01945) on searching: GRPO with an evolving population of instructions.

A group is a question and an instruction, which is sampled by the returns under it. Every 8 steps
the lower half is removed; a model that is not the policy (the base model, far too small for it)
reads failures and writes candidates, which are verified in a few episodes that are not trained on.
N, its temperature and the intervals are not published, nor whether the reward is F1, as here.

Expected effect: instructions with higher returns are sampled more often. `:base` has none but the
empty one, and is GRPO.

Hardware: 2 CPU cores; neither time nor score has been measured

    agentrl-train --config=configs/search_inspo.py[:base|pair]
"""

from agentrl_jax.algorithms.contexts.evolved_instruction import (
    EvolvedInstruction,
    InstructionEvolution,
)
from agentrl_jax.algorithms.contexts.instruction_population import InstructionPopulation
from agentrl_jax.algorithms.contexts.instruction_writers import ReflectiveProposer
from agentrl_jax.algorithms.experience.replay import LowRewardBuffer
from agentrl_jax.algorithms.methods import inspo
from agentrl_jax.configs.search_task import TRAINING_SETTINGS, search_experiment
from agentrl_jax.configs.small import pick, with_pair
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.model_configs import FrozenPolicy
from agentrl_jax.training.sources import Rollouts

TEXTS = ("", "Search for one fact at a time.", "Answer at once.", "Search for a name alone.")


@with_pair
def get_config(variant: str = "method") -> Experiment:
    every, trials, texts = pick(
        variant, "search_inspo", method=(8, 8, TEXTS), base=(8, 8, ("",)), smoke=(1, 2, TEXTS)
    )
    writer, failures = ReflectiveProposer("writer", max_characters=700), LowRewardBuffer(16, 0.5)
    evolution = InstructionEvolution(writer, every, 2, trials, failures, max_length=80)
    strategy = EvolvedInstruction(
        InstructionPopulation(texts, 0.2), evolution=None if variant == "base" else evolution
    )
    source, smoke = Rollouts(2 if variant == "smoke" else 4, strategy), variant == "smoke"
    algorithm = inspo(**TRAINING_SETTINGS)
    config = search_experiment("search-inspo", algorithm, source, smoke, {"reward": "f1"})
    config.models = {"writer": FrozenPolicy()}
    return config
