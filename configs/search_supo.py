"""SUPO (arXiv 2510.06727) on searching: questions of three hops, longer than the context.

Paper (via a replication): clip .2 and .28, neither KL nor entropy, token mean, at most 7 summaries;
one advantage per rollout, however many contexts it was split into. The context has 720 tokens;
where a prompt would have 400 or more, the policy writes down what the pages told and goes on from
there. The newest page is in the summary, too (in the paper it is lost, and searched for again), so
that the demonstrations, which summarize pages without their fillers, use no fact that they do not
see.

Expected effect: `:base`, the same window without summaries, is truncated before the end;
`:double` has twice the window.

Hardware: 2 CPU cores; neither time nor score has been measured

    agentrl-train --config=configs/search_supo.py[:base|double]
"""

from agentrl_jax.algorithms.contexts.policy_notes import Summarize
from agentrl_jax.algorithms.methods import supo
from agentrl_jax.configs.search_task import TRAINING_SETTINGS, search_experiment
from agentrl_jax.configs.small import pick, rollouts
from agentrl_jax.envs.search.prose import summary_of_pages
from agentrl_jax.models.hf.shipped import READING_MODEL
from agentrl_jax.rollout.agent import Limits
from agentrl_jax.training.config import Experiment


def get_config(variant: str = "method") -> Experiment:
    summaries, window = pick(
        variant, "search_supo", method=(7, 720), base=(0, 720), double=(0, 1440), smoke=(7, 720)
    )
    context = Summarize(
        400, summaries, "Summarize.", "Known so far:\n", 200, "", summary_of_pages, True
    )
    name, smoke = f"search-supo-{variant}", variant == "smoke"
    source, settings = rollouts(2 if smoke else 8, 8), {**TRAINING_SETTINGS, "bin_length": 1600}
    options = {"hops": 3, "horizon": 9, "fillers": 3, "page_characters": 400}
    config = search_experiment(
        name,
        supo(**settings),
        source,
        smoke,
        options,
        context,
        1600,
        "expert",
        READING_MODEL,
    )
    config.agent.limits = Limits(turns=4 if smoke else 9, context=window)
    return config
