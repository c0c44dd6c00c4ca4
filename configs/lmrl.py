"""LMRL-Gym (arXiv 2311.18232): its tasks and its baselines, each pair of them at a size for a CPU. The variant names the pair.

Tasks: maze_fo, maze_po, nav_fo, nav_po, wordle, chess, endgames, questions, city, dealer. Methods: filtered (behaviour cloning of the best
episodes), mc (Monte-Carlo returns), ilql, ppo, online_filtered; the row SFT of any of them but the first is plain behaviour cloning.

Published: GPT-2 small, the horizons, rewards, data policies and discounts that the tasks and `methods.lmrl` have, and what `Game` says
is published. Ours: 60 thousand weights, their rates, fewer episodes, target networks that follow in 50 steps instead of 200,
and 64 words of Wordle's 431. `agentrl-bench lmrl` runs the whole table (docs/lmrl.md).

agentrl-train --config=configs/lmrl.py:wordle-ilql
"""

from dataclasses import dataclass
from typing import Any

from agentrl_jax.algorithm import AlgorithmConfig
from agentrl_jax.algorithms.methods import lmrl
from agentrl_jax.configs.small import VOCABULARY, Task, pick, rates, rollouts, small
from agentrl_jax.experiment import Demonstrations, Experiment, Mixed, Source
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.steered import SteeredConfig
from agentrl_jax.models.tokenizers import BytePairs
from agentrl_jax.optimizer import AdamWConfig


@dataclass(frozen=True)
class Game(Task):
    """A task with the constants of its released scripts; those in the last block are ours."""

    tau: float = 0.7
    conservative: float = 0.01  # CQL's weight
    bias: float = -4.4  # that values start at
    gamma: float = 1.0  # of PPO; the value methods have .99
    imitation: float = 1.0  # PPO's weight of cross entropy on demonstrations

    best: float = 0.3  # the share of episodes that filtered cloning keeps; where success is known, about those that succeeded
    beta: float = 8.0
    episodes: int = 2000
    batch: int = 32  # demonstrations a step
    tasks: int = 64  # rollouts a step
    tested: int = 256  # worlds of the evaluation
    vocabulary: int = VOCABULARY


GAMES = {
    "maze_fo": Game(
        "MazeFO-v0", "mixture", 48, 4, tau=0.95, conservative=0.0, bias=0.0, gamma=0.99, imitation=0.0, best=0.1, episodes=1240, batch=8,
        tasks=32,
    ),
    "maze_po": Game(
        "MazePO-v0", "mixture", 360, 4, tau=0.95, conservative=0.0, bias=0.0, imitation=0.0, best=0.1, episodes=1240, batch=2, tasks=16,
        tested=100,
    ),
    "nav_fo": Game("TextNav-v0", "mixture", 1152, 8, {"view": "full"}, tau=0.8, conservative=0.0, bias=0.0, batch=8, vocabulary=256),
    "nav_po": Game("TextNav-v0", "mixture", 896, 8, {"view": "partial"}, tau=0.8, conservative=0.0, bias=0.0, batch=8, vocabulary=256),
    "wordle": Game("Wordle-v0", "mixture", 80, 12, {"words": 64}, episodes=4000),
    "chess": Game("Chess-v0", "mixture", 96, 8, conservative=1.0, bias=0.0, gamma=0.99, best=0.57, episodes=300, batch=4, tasks=8,
        tested=64,
    ),
    "endgames": Game("ChessEndgames-v0", "mixture", 48, 7, conservative=1.0, bias=0.0, best=0.59, batch=16, tasks=32),
    "questions": Game("TwentyQuestions-v0", "mixture", 320, 24, {"words": "subset"}, vocabulary=256),
    "city": Game("GuessCity-v0", "mixture", 512, 24, batch=16, vocabulary=256),
    "dealer": Game("CarDealer-v0", "mixture", 400, 40, batch=16, vocabulary=256),
}  # fmt: skip


def _filtered(game: Game, name: str) -> Experiment:
    """Imitation of the best episodes alone."""
    config = _experiment(game, name, lmrl.online_filtered())
    assert config.sft
    config.sft.label, config.sft.source, config.rl = "filtered BC", Demonstrations(game.batch, best=game.best), None
    return config


def _mc(game: Game, name: str) -> Experiment:
    return _steered(game, name, lmrl.monte_carlo(conservative=game.conservative, **_values(game)), "MC", 1)


def _ilql(game: Game, name: str) -> Experiment:
    return _steered(game, name, lmrl.ilql(tau=game.tau, conservative=game.conservative, **_values(game)), "ILQL", 2)


def _ppo(game: Game, name: str) -> Experiment:
    head = HeadConfig(layers=0, bias=game.bias)
    algorithm = lmrl.ppo(head, game.gamma, imitation=game.imitation, **rates(game, optimizer=AdamWConfig(5e-4, warmup_steps=3)))
    source = rollouts(game.tasks, 1)
    return _experiment(game, name, algorithm, Mixed(source, Demonstrations(game.batch)) if game.imitation else source, label="PPO")


def _online_filtered(game: Game, name: str) -> Experiment:
    algorithm = lmrl.online_filtered(**rates(game, optimizer=AdamWConfig(5e-4, warmup_steps=3)))
    return _experiment(game, name, algorithm, rollouts(game.tasks, 1), label="online filtered BC")


METHODS = {"filtered": _filtered, "mc": _mc, "ilql": _ilql, "ppo": _ppo, "online_filtered": _online_filtered}


def get_config(variant: str = "wordle-ilql") -> Experiment:
    game, _, method = variant.partition("-")
    return pick(method, "lmrl", **METHODS)(pick(game, "lmrl", **GAMES), f"lmrl-{variant}")


def _experiment(game: Game, name: str, algorithm: AlgorithmConfig, source: Source | None = None, **settings: Any) -> Experiment:
    config = small(name, game, algorithm, source, players=("random", game.player, "expert"), **settings)
    assert config.demonstrations and config.sft
    config.tokenizer = BytePairs(vocab_size=game.vocabulary, all_bytes=False)
    config.demonstrations.episodes, config.evaluation.episodes = game.episodes, game.tested
    config.sft.source = Demonstrations(game.batch)
    return config


def _values(game: Game) -> dict[str, Any]:
    return {"optimizer": AdamWConfig(1e-3, warmup_steps=20, b2=0.95), "polyak": 0.02, "bin_length": game.longest, "microbatch": 16}


def _steered(game: Game, name: str, algorithm: AlgorithmConfig, label: str, twins: int) -> Experiment:
    config = _experiment(game, name, algorithm, Demonstrations(game.batch), steps=300, label=label)
    assert isinstance(config.policy, DecoderConfig)
    head = HeadConfig(bias=game.bias)
    config.policy = SteeredConfig(config.policy, head, head, twins, game.beta)
    return config
