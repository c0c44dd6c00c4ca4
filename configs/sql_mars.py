"""MARS-SQL (arXiv 2511.01008): three agents, of which each is trained.

1. The generation agent by RL, on the tables that a question needs.
2. The grounding agent, which names these tables: cloned from the scripted expert, then by RL. Its
   training is not published; the environment `SqlGrounding` and its reward are our own.
3. The validation agent, which says whether a solution is right.

From `grounding_sft` on the generator is evaluated on the tables that the grounding agent names:
sampled, greedily, by the majority of 8, and in the best of 8 by the validator. Expected effect: the
best of 8 is above the majority, and that above greedy. `:turns` trains the generation agent alone,
`:one_turn` too, without queries in between; `:smoke` takes two short steps of each phase.

Hardware: 2 CPU cores; neither time nor score has been measured

    agentrl-train --config=configs/sql_mars.py[:turns|one_turn]
"""

import dataclasses

from agentrl_jax.algorithms.methods import mars_sql
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.algorithms.strategies.best_of_n import BestOfN, MajorityVote
from agentrl_jax.algorithms.strategies.episode_examples import EpisodeExamples
from agentrl_jax.algorithms.strategies.episode_scorers import YesProbability
from agentrl_jax.algorithms.strategies.prepared_episodes import PreparedEpisodes
from agentrl_jax.algorithms.strategies.verifier_examples import VerifierExamples
from agentrl_jax.configs.small import pick, rollouts
from agentrl_jax.configs.sql_task import (
    MAX_LENGTH,
    TRAINING_SETTINGS,
    grounding_spec,
    sql_experiment,
)
from agentrl_jax.envs.sql.validator import solution_result, validator_prompt
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.renderer import ChatFormat
from agentrl_jax.rollout.runtime import Strategy
from agentrl_jax.rollout.strategy import IndependentEpisodes, ScriptedEpisodes
from agentrl_jax.training.algorithm import Unchanged
from agentrl_jax.training.config import AgentConfig, Experiment, Phase
from agentrl_jax.training.model_configs import FrozenPolicy
from agentrl_jax.training.sources import NoExperience, Rollouts

VALIDATOR = YesProbability(validator_prompt, yes="Yes", no="No")
GROUNDER = AgentConfig(ChatFormat(), budget=64, temperature=0.6, top_p=0.95)


def cloning(optimizer: AdamWConfig) -> BehaviorCloningConfig:
    return BehaviorCloningConfig(optimizer=optimizer, bin_length=MAX_LENGTH, microbatch=4)


def grounded(strategy: Strategy, agent: str = "frozen_grounder") -> PreparedEpisodes:
    """The strategy on the tables that a grounding agent names."""
    return PreparedEpisodes(strategy, grounding_spec(), agent, "tables", ("split",))


def grounding_phases(smoke: bool) -> dict[str, Phase]:
    """The grounding agent's: cloning of the expert, then RL."""
    tasks, steps = (2, 2) if smoke else (8, 160)
    plans = Rollouts(tasks, ScriptedEpisodes("expert"), grounding_spec())
    imitate = cloning(AdamWConfig(1e-3, warmup_steps=10))
    clone = Phase("grounding, cloned", EpisodeExamples(rollouts=plans), imitate, steps)
    groups = IndependentEpisodes(4, "grounder")
    source, method = Rollouts(tasks, groups, grounding_spec()), mars_sql(**TRAINING_SETTINGS)
    improve = Phase("grounding, RL", source, method, 2 if smoke else 40)
    for phase in (clone, improve):
        phase.agent = "grounder"
        phase.evaluation_strategy = grounded(IndependentEpisodes(1, "generator"), "grounder")
    return {"grounding_sft": clone, "grounding": improve}


def get_config(variant: str = "mars") -> Experiment:
    horizon = pick(variant, "sql_mars", mars=5, turns=5, one_turn=1, smoke=3)
    smoke = variant == "smoke"
    source = rollouts(tasks=2 if smoke else 8, group_size=3)
    config = sql_experiment(variant, mars_sql(**TRAINING_SETTINGS), source, horizon, smoke)
    if variant in ("turns", "one_turn"):
        return config
    config.agents = {"grounder": GROUNDER}
    greedy = dataclasses.replace(config.agent, top_k=1)
    config.models = {
        "generator": FrozenPolicy("rl"),
        "greedy_generator": FrozenPolicy("rl", agent=greedy),
        "frozen_grounder": FrozenPolicy(
            "grounding", policy="grounder", agent=dataclasses.replace(GROUNDER, top_k=1)
        ),
        "verifier": FrozenPolicy("verifier"),
    }
    count = 2 if smoke else 8
    samples = grounded(IndependentEpisodes(count, "generator"))
    single = Phase("greedy", NoExperience(), Unchanged(), 1)
    single.evaluation_strategy = grounded(IndependentEpisodes(1, "greedy_generator"))
    vote = Phase(f"majority of {count}", NoExperience(), Unchanged(), 1)
    vote.evaluation_strategy = MajorityVote(samples, solution_result)
    examples = VerifierExamples(VALIDATOR, Rollouts(count, samples))
    imitate = cloning(AdamWConfig(1e-3))
    verify = Phase(f"best of {count}", examples, imitate, 2 if smoke else 60)
    verify.evaluation_strategy = BestOfN(samples, VALIDATOR)
    config.phases |= grounding_phases(smoke)
    config.phases |= {"greedy": single, "vote": vote, "verifier": verify}
    return config
