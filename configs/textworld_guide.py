"""A Practitioner's Guide (arXiv 2510.01132) on quests of TextWorld: per-turn rewards against one at
the end.

Its smallest games, w2-o3-q4: two rooms, three objects, a quest of four commands, which the first
message tells. The reward of a turn is its progress, that of the last turn also the outcome's.
Published settings: KL .01 in the reward (PPO) or .001 in the loss (RLOO), GAE with gamma 1, clip
.2; the critic's learning rate ten times the policy's, here three times. 30 games are demonstrated
and trained on, others are held out.

Expected effect: PPO gains from dense rewards (`:method` against `:base`); RLOO is hardly affected
(`:rloo`, `:rloo_late`).

Hardware: one CPU core

    pip install 'agentrl_jax[textworld]'   # and a C compiler
    agentrl-train --config=configs/textworld_guide.py[:base|pair|rloo|rloo_late|smoke]
"""

from agentrl_jax.algorithms.experience.rewards import OutcomeReward
from agentrl_jax.algorithms.methods import practitioners_ppo, practitioners_rloo
from agentrl_jax.algorithms.policy_gradient.critic import CriticConfig
from agentrl_jax.configs.small import CRITIC_HEAD, SmallTask, pick, rollouts, with_pair
from agentrl_jax.configs.text_worlds import TRAINING_SETTINGS, text_world_experiment
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.training.config import Experiment

GAMES = 30
QUEST = SmallTask(
    "TextWorld-v0",
    "weak",
    896,
    24,
    {"games": GAMES, "horizon": 5, "progress": 0.25, "list_commands": False},
    sft_steps=220,
)


@with_pair
def get_config(variant: str = "method") -> Experiment:
    smoke = variant == "smoke"
    settings = {**TRAINING_SETTINGS, "bin_length": QUEST.max_length, "optimizer": AdamWConfig(7e-4)}
    critic = CriticConfig(CRITIC_HEAD, AdamWConfig(2e-3))
    method = practitioners_ppo(CRITIC_HEAD, critic=critic, **settings)
    late = OutcomeReward()
    algorithm = pick(
        variant,
        "textworld_guide",
        method=method,
        base=practitioners_ppo(CRITIC_HEAD, critic=critic, rewards=late, **settings),
        rloo=practitioners_rloo(**settings),
        rloo_late=practitioners_rloo(rewards=late, **settings),
        smoke=method,
    )
    return text_world_experiment(
        f"textworld-guide-{variant}",
        QUEST,
        algorithm,
        rollouts(tasks=2 if smoke else 8, group_size=2 if smoke else 4),
        smoke,
        30,
        {"held_out": {"games": 2 if smoke else 20, "first": GAMES}},
    )
