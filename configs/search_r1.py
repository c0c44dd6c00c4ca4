"""Search-R1 (arXiv 2503.09516): RL of a model that searches while it reasons, on exact match.

GRPO with clip .2 and KL .001 in groups of 5; what the search returned is read, not trained on.
Published: models of 3 and 7 billion weights, 512 questions a step, 3 passages a search; here 8
questions and one page. `:smoke` takes two steps of each phase.

Hardware: one CPU core, 15 minutes; success after fine-tuning and after RL .39 and .59 on held-out
pages, .12 and .19 in other phrasings (64 questions each, +.20 ± .13 and +.06 ± .10, seed 0)

    agentrl-train --config=configs/search_r1.py[:smoke]
"""

from agentrl_jax.algorithms.methods import search_r1
from agentrl_jax.configs.search_task import TRAINING_SETTINGS, search_experiment
from agentrl_jax.configs.small import pick, rollouts
from agentrl_jax.models.hf.shipped import READING_MODEL
from agentrl_jax.training.config import Experiment


def get_config(variant: str = "method") -> Experiment:
    smoke = pick(variant, "search_r1", method=False, smoke=True)
    source = rollouts(tasks=2 if smoke else 8, group_size=5)
    algorithm = search_r1(**TRAINING_SETTINGS)
    return search_experiment("search-r1", algorithm, source, smoke, model=READING_MODEL)
