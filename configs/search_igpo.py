"""IGPO (arXiv 2510.14967) on searching: information gain as the reward of a turn.

The reward of a search is how much likelier its result made the right answer, after a thought that
says that there is enough information; of the last turn, F1, or -2 for a malformed one. Paper: z
over all turns of the group, clip .2, KL and entropy .001, groups of 16, here 8.

Expected effect: groups whose outcomes tie still give a signal (`:base`, the outcome alone: GRPO).

Hardware: 2 CPU cores; neither time nor score has been measured

    agentrl-train --config=configs/search_igpo.py[:base|pair]
"""

from agentrl_jax.algorithms.advantages.group import group_normalized
from agentrl_jax.algorithms.advantages.trajectory_checks import is_malformed
from agentrl_jax.algorithms.experience.penalties import ReplaceRewards
from agentrl_jax.algorithms.methods import igpo
from agentrl_jax.algorithms.policy_gradient.answer_probe import AnswerProbe
from agentrl_jax.configs.search_task import TRAINING_SETTINGS, search_experiment
from agentrl_jax.configs.small import pick, rollouts, with_pair
from agentrl_jax.training.config import Experiment

CUE = "<think>Now there's enough information to answer.</think><answer>"


@with_pair
def get_config(variant: str = "method") -> Experiment:
    method = igpo(**TRAINING_SETTINGS, probe=AnswerProbe(CUE, suffix="</answer>"))
    base = igpo(
        **TRAINING_SETTINGS,
        advantage=group_normalized,
        rewards=ReplaceRewards("format", -2.0, is_malformed),
    )
    algorithm = pick(variant, "search_igpo", method=method, base=base, smoke=method)
    source, smoke = rollouts(2 if variant == "smoke" else 4, 8), variant == "smoke"
    return search_experiment(f"search-igpo-{variant}", algorithm, source, smoke, {"reward": "f1"})
