"""MARS-SQL (arXiv 2511.01008): a generation agent by RL, then a validation agent for best of 8.

The grounding agent's training is not published: the schema comes pruned to the tables that matter
(`schema_view`). `:one_turn` trains without queries in between, `:smoke` takes two short steps.

Hardware: 2 CPU cores; neither time nor score has been measured

    agentrl-train --config=configs/sql_mars.py[:one_turn]
"""

from agentrl_jax.algorithms.methods import mars_sql
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.algorithms.strategies.best_of_n import BestOfN
from agentrl_jax.algorithms.strategies.episode_scorers import YesProbability
from agentrl_jax.algorithms.strategies.verifier_examples import VerifierExamples
from agentrl_jax.configs.small import pick, rollouts
from agentrl_jax.configs.sql_task import TRAINING_SETTINGS, sql_experiment
from agentrl_jax.envs.sql.validator import validator_prompt
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.config import Experiment, Phase
from agentrl_jax.training.model_configs import FrozenPolicy
from agentrl_jax.training.sources import Rollouts

VALIDATOR = YesProbability(validator_prompt, yes="Yes", no="No")


def get_config(variant: str = "mars") -> Experiment:
    horizon, smoke = pick(variant, "sql_mars", mars=5, one_turn=1, smoke=3), variant == "smoke"
    source = rollouts(tasks=2 if smoke else 8, group_size=3)
    config = sql_experiment(variant, mars_sql(**TRAINING_SETTINGS), source, horizon, smoke)
    config.models = {"generator": FrozenPolicy("rl"), "verifier": FrozenPolicy("verifier")}
    samples = IndependentEpisodes(2 if smoke else 8, "generator")
    examples = VerifierExamples(VALIDATOR, Rollouts(2 if smoke else 8, samples))
    imitate = BehaviorCloningConfig(optimizer=AdamWConfig(1e-3), bin_length=1024, microbatch=4)
    verify = Phase("best of 8", examples, imitate, 2 if smoke else 60)
    verify.evaluation_strategy = BestOfN(samples, VALIDATOR)
    config.phases["verifier"] = verify
    return config
