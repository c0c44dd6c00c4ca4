"""AI-SearchPlanner (arXiv 2508.20368): a small planner is trained, a frozen reader answers.

The planner writes sub-queries or stops; PPO on the reader's gain by the plan, lambda .1 times its
judgement of the plan, and minus alpha for each turn and query. `:free`, `:cheap`, `:dear` are the
curve over alpha (0, .02 by default, .1, .3). In `:s3` the gain is over naive retrieval, without a
judgement. Published: a planner of 7 billion weights, a reader of 32; here both have 4.2 million,
and the reader is fine-tuned to answer and to judge. `:smoke` takes two steps of each phase.

Hardware: one CPU core; time: 60 minutes for `:pair`; score: docs/search.md

    agentrl-train --config=configs/search_planner.py[:free|cheap|dear|s3|pair]
"""

from functools import partial

from agentrl_jax.algorithms.methods import ai_search_planner
from agentrl_jax.algorithms.strategies.episode_scorers import AnswerScore, YesProbability
from agentrl_jax.algorithms.strategies.scored_episodes import ScoredEpisodes
from agentrl_jax.configs.search_task import (
    PAGES,
    TRAINING_SETTINGS,
    frozen_reader,
    reader_phase,
    search_experiment,
)
from agentrl_jax.configs.small import CRITIC_HEAD, pick, with_pair
from agentrl_jax.envs.search import reader
from agentrl_jax.envs.search.answers import exact_match
from agentrl_jax.models.hf.shipped import READING_MODEL
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.sources import Rollouts


@partial(with_pair, base="s3", method="alpha")
def get_config(variant: str = "alpha") -> Experiment:
    alpha = pick(
        variant, "search_planner", alpha=0.02, free=0.0, cheap=0.1, dear=0.3, s3=0.02, smoke=0.02
    )
    smoke, is_s3 = variant == "smoke", variant == "s3"
    without = reader.RetrievalPrompt(PAGES, fillers=0) if is_s3 else reader.question_prompt
    scorers = {
        "reader": AnswerScore(reader.episode_prompt, exact_match),
        "baseline": AnswerScore(without, exact_match, scale=-1.0),
        "process": YesProbability(reader.rationality_prompt, "reader", reader.YES, reader.NO),
    }
    planned = ScoredEpisodes(IndependentEpisodes(4 if smoke else 16), scorers, "reader")
    config = search_experiment(
        f"search-planner-{variant}",
        ai_search_planner(CRITIC_HEAD, 0.0 if is_s3 else 0.1, alpha, **TRAINING_SETTINGS),
        Rollouts(1 if smoke else 4, planned),
        smoke,
        {"protocol": "planner", "search_cost": 1.0, "turn_cost": 1.0},
        model=READING_MODEL,
    )
    config.phases = {"reader": reader_phase(config.environment, smoke), **config.phases}
    config.models = {"reader": frozen_reader()}
    answered = ScoredEpisodes(IndependentEpisodes(1), {"reader": scorers["reader"]}, "reader")
    for phase in config.phases.values():
        phase.evaluation_strategy = answered
    return config
