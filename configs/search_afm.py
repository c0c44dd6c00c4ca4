"""Chain-of-Agents (arXiv 2508.13167): a team of agents distilled into one model, then RL.

The model is fine-tuned on the transcripts of a scripted team (planner, searcher, reflector,
answerer, checker), whose roles it then plays alone; DAPO on exact match in groups of 8. `:format`
has a tenth of the reward for turns without a wrong tag. Claim: the one model has the team's success
or more, with fewer tokens. Published: 7 and 32 billion weights, 30,000 tokens, 25 turns.

Hardware: 2 CPU cores; neither time nor score has been measured

    agentrl-train --config=configs/search_afm.py[:format|smoke]
"""

from agentrl_jax.algorithms.methods import chain_of_agents
from agentrl_jax.configs.search_task import TRAINING_SETTINGS, search_experiment
from agentrl_jax.configs.small import pick, rollouts
from agentrl_jax.models.hf.shipped import READING_MODEL
from agentrl_jax.training.config import Experiment

MAX_LENGTH = 2048  # tokens of an episode, and positions of the base model


def get_config(variant: str = "method") -> Experiment:
    weight = pick(variant, "search_afm", method=0.0, format=0.1, smoke=0.1)
    smoke = variant == "smoke"
    config = search_experiment(
        f"search-afm-{variant}",
        chain_of_agents(weight, **{**TRAINING_SETTINGS, "bin_length": MAX_LENGTH}),
        rollouts(tasks=2 if smoke else 8, group_size=3 if smoke else 8),
        smoke,
        {"protocol": "afm", "format_reward": 1.0, "top_k": 1, "horizon": 8},
        max_length=MAX_LENGTH,
        player="team",
        model=READING_MODEL,
    )
    config.agent.budget = 256
    return config
