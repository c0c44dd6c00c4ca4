"""ArCHer (arXiv 2402.19446) on its tasks, at a size for a CPU: critics of whole utterances, a policy of their tokens.

The variant is a task and a method. Tasks: subset (ten words of Twenty Questions), questions (all of them), city, detective (a story of
ours in its manner), shop (of 40 products). Methods:
- archer, and with one thing changed: shared (the critic's encoder starts as the policy's trunk), clipped (PPO's clip as the low level,
  2 steps on the same utterances), baseline (of tokens), monte_carlo (critics of returns), forgetful (the last 48 episodes' worth of turns);
- beside it: ppo (over tokens), online_filtered (behaviour cloning of successes), chai (a frozen policy's best utterance of 5);
- offline, on the demonstrations: iql_awr, sarsa_awr, iql_reinforce (published to collapse), iql_reinforce_bc, filtered.

Published: GPT-2, a RoBERTa-base critic, 128 episodes (WebShop 512) and 50 critic and 3 actor steps of 256 an iteration, 10 or 20
iterations of warm-up, replay of 10,000 turns, gamma .95, Polyak .1. Here 64 episodes, 80 critic steps of 32 (city and shop 30) and 3 actor
steps of 256, 6 iterations of warm-up, 400 thousand weights in all, and rates to match; phrases as tokens, for a critic of Twenty Questions
whole lines.

Expected effect: a better return than imitation's (the row SFT of the table); after fewer episodes than PPO takes, as published, it is not
(docs/archer.md says what was read from the runs). Advantages are less their mean (`centred`), and the actor's rate falls: a faster one
loses its entropy before so small a critic tells the questions apart. `agentrl-bench hierarchical` runs the tables.

agentrl-train --config=configs/archer.py:subset-archer
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentrl_jax.algorithm import AlgorithmConfig
from agentrl_jax.algorithms.archer import centred
from agentrl_jax.algorithms.auxiliary import Imitation
from agentrl_jax.algorithms.methods import archer, critics, lmrl
from agentrl_jax.algorithms.utterance_values import Sampled
from agentrl_jax.configs.small import HEAD, Task, pick, rates, rollouts, small
from agentrl_jax.configs.twenty_questions import question_tokens
from agentrl_jax.experiment import Demonstrations, Experiment
from agentrl_jax.models.encoder import EncoderConfig, max_tokens
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.tokenizers import BytePairs
from agentrl_jax.models.utterance_critic import OwnEncoder, PolicyTrunk, UtteranceCriticConfig
from agentrl_jax.optimizer import AdamWConfig

ENCODER = EncoderConfig(layers=1, width=128, hidden=256, heads=4, positions=50, pool=max_tokens)


@dataclass(frozen=True)
class Game(Task):
    """A task with its published discount and warm-up; those in the last block are ours."""

    gamma: float = 0.95  # of a turn; the paper has .98 for its detective game and .9 for WebShop

    vocabulary: int = 1024  # of phrases
    states: tuple[int, ...] = (128,)  # lengths that the critic pads texts to, of its own tokens
    said: tuple[int, ...] = (16,)
    bias: float = -9.0  # that values start at
    trunk: bool = True  # the critic's encoder is of the policy's kind; else a small one with a tokenizer of questions
    critic_steps: int = 80  # an iteration


def _questions(words: str, longest: int) -> Game:
    return Game("TwentyQuestions-v0", "mixture", longest, 24, {"words": words}, states=(48,), said=(8,), trunk=False)


GAMES = {
    "subset": _questions("subset", 128),
    "questions": _questions("all", 192),
    "city": Game("GuessCity-v0", "mixture", 304, 20, vocabulary=2048, states=(272,), said=(20,), critic_steps=30),
    "detective": Game("HarbourCase-v0", "mixture", 96, 12, gamma=0.98, states=(80,), said=(16,), bias=60.0),
    "shop": Game(
        "Shop-v0", "mixture", 320, 16, {"products": 40}, 200, 0.9, vocabulary=2048, states=(256,), said=(16,), bias=0.5, critic_steps=30
    ),
}  # fmt: skip
LABELS = {"ppo": "PPO", "online_filtered": "online filtered BC", "chai": "CHAI", "filtered": "filtered BC"}
OFFLINE = ("iql_awr", "sarsa_awr", "iql_reinforce", "iql_reinforce_bc")


def get_config(variant: str = "subset-archer") -> Experiment:
    name, _, method = variant.partition("-")
    game = pick(name, "archer", **GAMES)
    algorithm = pick(method, "archer", **_algorithms(game))()
    source = Demonstrations(batch=64) if method in OFFLINE else rollouts(tasks=64, group_size=1)
    steps = {"ppo": 48, "online_filtered": 48, "chai": 8}.get(method, 32)
    config = small(f"archer-{variant}", game, algorithm, source, steps, label=LABELS.get(method, "ArCHer"), players=("random", "expert"))
    config.tokenizer = BytePairs(game.vocabulary, all_bytes=False, phrases=True)
    if config.rl:
        config.rl.checkpoint_every = 8  # an iteration may take half a minute
    if method == "filtered":
        assert config.sft
        config.sft.label, config.sft.source = LABELS[method], Demonstrations(batch=32, best=0.1)
    return config


def _algorithms(game: Game) -> dict[str, Callable[[], AlgorithmConfig | None]]:
    heads = UtteranceCriticConfig(head=HeadConfig(layers=2, hidden=256, scale=1.0, bias=game.bias))
    own = PolicyTrunk() if game.trunk else OwnEncoder(ENCODER, question_tokens)
    shape: dict[str, Any] = {
        "batch": 32, "microbatch": 32, "states": game.states, "utterances": game.said, "optimizer": AdamWConfig(1e-3),
    }  # fmt: skip
    low: dict[str, Any] = {"optimizer": AdamWConfig(1.5e-4, final_fraction=0.05), "bin_length": game.longest, "microbatch": 16}
    loop: dict[str, Any] = {"critic_steps": game.critic_steps, "batch": 256, "warmup": 6, "capacity": 10_000, "weight": centred}
    data: dict[str, Any] = {"critic_steps": 30, "actor_steps": 6, "batch": 64}

    def values(encoder: Any = own) -> Any:
        return archer.values(heads, encoder, goal=Sampled(game.gamma), **shape)

    def online(actor: Any = None, encoder: Any = own, **changed: Any) -> AlgorithmConfig:
        return archer.archer(values(encoder), actor or archer.actor(**low), **loop | changed)

    def offline(make: Callable[..., AlgorithmConfig], tau: float = 0.9, actor: Any = None, **more: Any) -> AlgorithmConfig:
        return make(archer.offline_values(heads, own, tau=tau, **shape), actor or archer.actor(**low), **data, **more)

    beside = {"actor": archer.actor(**low, auxiliaries=(Imitation(1.0),)), "imitated": 64}
    return {
        "archer": online,
        "shared": lambda: online(encoder=PolicyTrunk()),
        "clipped": lambda: online(archer.clipped_actor(2, **low)),
        "baseline": lambda: online(archer.baseline_actor(HEAD, 1e-3, **low)),
        "monte_carlo": lambda: archer.archer(archer.monte_carlo_values(heads, own, game.gamma, **shape), archer.actor(**low), **loop),
        "forgetful": lambda: online(capacity=480),
        "chai": lambda: archer.chai(values(), critic_steps=20, batch=64, capacity=10_000),
        "ppo": lambda: critics.ppo(HEAD, **rates(game)),
        "online_filtered": lambda: lmrl.online_filtered(**rates(game)),
        "filtered": lambda: None,
        "iql_awr": lambda: offline(archer.archer_offline),
        "sarsa_awr": lambda: offline(archer.archer_offline, 0.5),
        "iql_reinforce": lambda: offline(archer.reinforce_offline),
        "iql_reinforce_bc": lambda: offline(archer.reinforce_offline, **beside),
    }  # fmt: skip
