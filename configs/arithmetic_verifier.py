"""A generator and its validator (MARS-SQL, arXiv 2511.01008) on sums: best of 8 by P(yes).

The validator learns which of the generator's answers the environment calls right. Paper: 16
trajectories, and the mean P("Yes") of 8 samples.

Hardware: 2 CPU cores; time: 7 minutes on a busy machine; score (seeds 0 and 1): .59 and .60
right in one sample (SFT), .91 and .95 by the majority of 8, .97 and .96 in the best; the fourth
setting that was tried: larger sums were not learned in 200 steps (docs/judges.md)

    agentrl-train --config=configs/arithmetic_verifier.py
"""

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.algorithms.strategies.best_of_n import BestOfN, MajorityVote
from agentrl_jax.algorithms.strategies.episode_scorers import EpisodeQuestion, YesProbability
from agentrl_jax.algorithms.strategies.verifier_examples import VerifierExamples
from agentrl_jax.configs.small import SmallTask, small_experiment
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.algorithm import Unchanged
from agentrl_jax.training.config import Experiment, Phase
from agentrl_jax.training.model_configs import FrozenPolicy
from agentrl_jax.training.sources import NoExperience, Rollouts

SUMS = {"largest": 4, "operators": "+", "attempts": 1}
VERIFIER = YesProbability(EpisodeQuestion("{opening}\n{answer}\n"), yes="Correct", no="Incorrect")


def get_config() -> Experiment:
    config = small_experiment(
        "arithmetic-verifier", SmallTask("Arithmetic-v0", "mixture", 48, 5, SUMS, 80), None
    )
    config.models = {"generator": FrozenPolicy("sft"), "verifier": FrozenPolicy("verifier")}
    eight, imitate = IndependentEpisodes(8, "generator"), AdamWConfig(4e-3, warmup_steps=30)
    vote = Phase("majority of 8", NoExperience(), Unchanged(), 1)
    examples = VerifierExamples(VERIFIER, Rollouts(16, eight))
    verify = Phase("best of 8", examples, BehaviorCloningConfig(optimizer=imitate), 200)
    vote.evaluation_strategy = MajorityVote(eight)
    verify.evaluation_strategy = BestOfN(eight, VERIFIER)
    config.phases |= {"vote": vote, "verifier": verify}
    return config
