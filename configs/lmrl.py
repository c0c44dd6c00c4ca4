"""LMRL-Gym (arXiv 2311.18232): its tasks and its baselines, each pair of them at a size for a CPU. The variant names the pair.

Tasks: maze_fo, maze_po, nav_fo, nav_po, wordle, chess, endgames, questions, city, dealer. Methods: filtered (behaviour cloning of the best
episodes), mc (Monte-Carlo returns), ilql, ppo, online_filtered; the row SFT of any of them but the first is plain behaviour cloning.

Published: GPT-2 small; the horizons, rewards, data policies and discounts that the tasks and `methods.lmrl` have; what `Game` says is
published; in mazes the moves are ranked, BC's by likelihood and the others' by their values. Ours: 60 to 120 thousand weights, their rates,
fewer episodes, targets that follow faster; 16 of Wordle's 431 words, ten of Twenty Questions', 8 endgames and an opponent without chance in
them; tau .75 in mazes (published .95); phrases as tokens; and moves of chess are ranked too, in training as well, since so small a policy
writes hardly a legal one. `agentrl-bench lmrl` runs the whole table (docs/lmrl.md).

agentrl-train --config=configs/lmrl.py:wordle-ilql
"""

from dataclasses import dataclass, replace
from typing import Any

from agentrl_jax.algorithm import AlgorithmConfig
from agentrl_jax.algorithms.aggregation import token_mean
from agentrl_jax.algorithms.chained import Links, first_turns
from agentrl_jax.algorithms.methods import lmrl
from agentrl_jax.algorithms.ranking import Score, action_value, advantage
from agentrl_jax.algorithms.strategies.ranked import Ranked
from agentrl_jax.configs.small import VOCABULARY, Task, pick, rates, rollouts, small
from agentrl_jax.experiment import Demonstrations, Experiment, Mixed, Rollouts, Source
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
    bias: float = -4.4  # that values start at; published 0 in mazes and -4.4 of Car Dealer, but so few steps hardly move it
    gamma: float = 1.0  # of PPO; the value methods have .99
    imitation: float = 1.0  # PPO's weight of cross entropy on demonstrations
    best: float | None = 0.3  # the share of episodes that filtered cloning keeps; None: all that succeeded

    beta: float = 8.0  # how much the values say where the policy speaks: published 16 and 32, to be tried from 1 on
    returns_beta: float | None = None  # of Monte-Carlo values, where it is another
    ranked: int = 0  # where it is judged, the best of the actions that its world names is played; so many are read side by side
    moves: bool = False  # and where it learns by playing, one of them by its likelihood
    chance: float = 0.0  # temperature of a ranking by values: where places look alike, the best move of each is a loop
    returns_chance: float = 0.0  # by Monte-Carlo values
    links: int = 0  # turns a step that ILQL learns from, each with its next; 0: whole episodes
    episodes: int = 2000
    batch: int = 32  # demonstrations a step
    bins: int = 32  # that these are packed into, about
    tasks: int = 64  # rollouts a step
    tested: int = 256  # worlds of the evaluation
    vocabulary: int = VOCABULARY
    phrases: bool = False  # tokens go on over spaces: these worlds repeat themselves, and a third of the tokens is a third of the time
    steps: int = 600  # of ILQL
    returns: int = 600  # steps of Monte-Carlo values
    final: float = 1.0  # the values' rate's share at the last step
    clip: float = 1.0  # of their gradient's norm
    played: int = 30  # steps of the methods that play
    rate: float = 5e-4  # of these
    slowed: float = 1.0  # this rate's share at the last step


def _maze(world: str, longest: int, **settings: Any) -> Game:
    return Game(
        world, "mixture", longest, 4, tau=0.75, conservative=0.0, bias=-12.0, imitation=0.0, best=None, returns_chance=0.5, ranked=4,
        episodes=1240, tested=100, **settings,
    )  # fmt: skip


def _nav(view: str, longest: int) -> Game:
    return Game(
        "TextNav-v0", "mixture", longest, 16, {"view": view}, tau=0.8, conservative=0.0, bias=0.0, best=None, episodes=2500, batch=24,
        beta=2.0, bins=16, tasks=32, played=40, vocabulary=1024, phrases=True,
    )  # fmt: skip


def _talk(world: str, longest: int, batch: int, rate: float = 1e-3, **settings: Any) -> Game:
    return Game(
        world, "mixture", longest, 24, imitation=0.0, beta=2.0, episodes=8000, batch=batch, played=40, rate=rate, slowed=0.05,
        vocabulary=1024, phrases=True, bins=16, sft_steps=600, **settings,
    )  # fmt: skip


def _board(world: str, longest: int, **settings: Any) -> Game:
    return Game(world, "mixture", longest, 8, conservative=1.0, bias=0.0, best=None, ranked=16, moves=True, links=64, **settings)


GAMES = {
    "maze_fo": _maze("MazeFO-v0", 72, gamma=0.99, batch=8, links=256, tasks=32, steps=4000, final=0.05, clip=5.0),
    "maze_po": _maze("MazePO-v0", 96, batch=8, links=64, tasks=16, phrases=True, returns=150, chance=0.5),
    "nav_fo": _nav("full", 320),
    "nav_po": _nav("partial", 256),
    "wordle": Game(
        "Wordle-v0", "mixture", 32, 4, {"words": 16}, returns_beta=4.0, episodes=8000, batch=64, vocabulary=1024, phrases=True, steps=1200,
        final=0.05, sft_steps=1000,
    ),
    "chess": _board("Chess-v0", 160, gamma=0.99, episodes=300, batch=4, tasks=8, tested=32),
    "endgames": _board(
        "ChessEndgames-v0", 80, options={"positions": 8, "blunder": 0.0, "noise": 0.0}, imitation=0.0, batch=16, played=40, rate=2e-4,
        tested=128, sft_steps=800,
    ),
    "questions": _talk("TwentyQuestions-v0", 128, 32, options={"words": "subset"}),
    "city": _talk("GuessCity-v0", 384, 20),
    "dealer": _talk("CarDealer-v0", 160, 40, 3e-4, bias=0.0),
}  # fmt: skip


IMITATED = 32  # turns a step of cloning, where episodes are learned from turn by turn


def _filtered(game: Game, name: str) -> Experiment:
    """Imitation of the best episodes alone."""
    config = _experiment(game, name, None)
    assert config.sft
    kept = Demonstrations(game.batch, won=True) if game.best is None else Demonstrations(game.batch, best=game.best)
    config.sft.label, config.sft.source = "filtered BC", _linked(kept, IMITATED if game.links else 0)
    return config


def _mc(game: Game, name: str) -> Experiment:
    algorithm = lmrl.monte_carlo(conservative=game.conservative, **_values(game))
    game = replace(game, beta=game.returns_beta or game.beta, chance=game.returns_chance)
    return _steered(game, name, algorithm, Demonstrations(game.batch), action_value, "MC", 1, game.returns)


def _ilql(game: Game, name: str) -> Experiment:
    aggregation = first_turns if game.links else token_mean
    algorithm = lmrl.ilql(tau=game.tau, conservative=game.conservative, aggregation=aggregation, **_values(game))
    source = _linked(Demonstrations(game.batch), game.links)
    return _steered(game, name, algorithm, source, advantage, "ILQL", 2, game.steps)


def _ppo(game: Game, name: str) -> Experiment:
    head = HeadConfig(layers=0, bias=game.bias)
    algorithm = lmrl.ppo(head, game.gamma, imitation=game.imitation, **_playing(game))
    source = Mixed(_played(game), Demonstrations(game.batch)) if game.imitation else _played(game)
    return _experiment(game, name, algorithm, source, steps=game.played, label="PPO")


def _online_filtered(game: Game, name: str) -> Experiment:
    algorithm = lmrl.online_filtered(**_playing(game))
    return _experiment(game, name, algorithm, _played(game), steps=game.played, label="online filtered BC")


METHODS = {"filtered": _filtered, "mc": _mc, "ilql": _ilql, "ppo": _ppo, "online_filtered": _online_filtered}


def get_config(variant: str = "wordle-ilql") -> Experiment:
    game, _, method = variant.partition("-")
    return pick(method, "lmrl", **METHODS)(pick(game, "lmrl", **GAMES), f"lmrl-{variant}")


def _experiment(game: Game, name: str, algorithm: AlgorithmConfig | None, source: Source | None = None, **settings: Any) -> Experiment:
    config = small(name, game, algorithm, source, players=("random", game.player, "expert"), **settings)
    assert config.demonstrations and config.sft
    config.tokenizer = BytePairs(vocab_size=game.vocabulary, all_bytes=False, phrases=game.phrases)
    config.demonstrations.episodes, config.evaluation.episodes = game.episodes, game.tested
    config.sft.source = _linked(Demonstrations(game.batch), IMITATED if game.links else 0)
    for phase in config.phases.values() if game.ranked else ():
        phase.evaluation = _ranked(game)
    return config


def _linked(source: Demonstrations, count: int) -> Source:
    return Links(source, count) if count else source


def _values(game: Game) -> dict[str, Any]:
    optimizer = AdamWConfig(2e-3, warmup_steps=20, final_fraction=game.final, b2=0.95, clip_norm=game.clip)
    return {"optimizer": optimizer, "polyak": 0.1, "bin_length": game.longest, "microbatch": game.bins}


def _playing(game: Game) -> dict[str, Any]:
    return rates(game, optimizer=AdamWConfig(game.rate, warmup_steps=3, final_fraction=game.slowed), microbatch=game.bins)


def _steered(
    game: Game, name: str, algorithm: AlgorithmConfig, source: Source, score: Score, label: str, twins: int, steps: int
) -> Experiment:
    config = _experiment(game, name, algorithm, source, steps=steps, label=label)
    assert isinstance(config.policy, DecoderConfig) and config.rl
    head = HeadConfig(bias=game.bias)
    config.policy = SteeredConfig(config.policy, head, head, twins, game.beta)
    if game.ranked:
        config.rl.evaluation = _ranked(game, score=score, temperature=game.chance)
    return config


def _ranked(game: Game, **settings: Any) -> Ranked:
    return Ranked(longest=game.budget, together=game.ranked, **settings)


def _played(game: Game) -> Rollouts:
    return Rollouts(game.tasks, _ranked(game)) if game.moves else rollouts(game.tasks, 1)
