"""PPO (arXiv 1707.06347) against a reward model trained in an earlier phase, on the dialogues that
reward asking first. Preferences are sampled from the fine-tuned policy, a fifth of them reversed.

Expected effect: overoptimization (arXiv 2210.10760): the model's reward (`rollout/reward/model`)
keeps rising, the hidden one (`rollout/reward/advice`) rises, then falls. Of seed 0 by tens of
steps: .53 .71 .74 .76 .74 .76 .77 .76 of the model, .54 .76 .74 .75 .75 .71 .63 .65 hidden.

Hardware: 2 CPU cores; time: 12 minutes on a busy machine; score of two seeds: return .53 and
.46, SFT .36 and .38

    agentrl-train --config=configs/dialogue_reward_model.py
"""

from agentrl_jax.algorithms.experience.rewards import WeightedParts
from agentrl_jax.algorithms.methods import ppo
from agentrl_jax.algorithms.pairwise.reward_model import RewardModelConfig, final_token_loss
from agentrl_jax.algorithms.pairwise.reward_scorer import RewardModel
from agentrl_jax.algorithms.strategies.episode_scorers import RewardModelScore
from agentrl_jax.algorithms.strategies.scored_episodes import ScoredEpisodes
from agentrl_jax.configs.dialogue_refuel import ADVICE
from agentrl_jax.configs.small import CRITIC_HEAD, rollouts, small_experiment, training_settings
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.config import Experiment, Phase
from agentrl_jax.training.sources import Rollouts


def get_config() -> Experiment:
    scored = ScoredEpisodes(IndependentEpisodes(8), {"model": RewardModelScore("reward")})
    method = ppo(CRITIC_HEAD, rewards=WeightedParts({"model": 1.0}), **training_settings(ADVICE))
    preferences = RewardModelConfig(
        CRITIC_HEAD, final_token_loss, AdamWConfig(3e-3), ADVICE.max_length, label_noise=0.2
    )
    config = small_experiment(
        "dialogue-reward-model", ADVICE, method, Rollouts(16, scored), steps=80, label="PPO"
    )
    config.models = {"reward": RewardModel("reward")}
    reward = Phase("reward model", rollouts(8), preferences, steps=40)
    config.phases = {"sft": config.phases["sft"], "reward": reward, "rl": config.phases["rl"]}
    return config
