"""The tasks of LMRL-Gym (arXiv 2311.18232) at the size of a CPU, for the runs of `lmrl.py`."""

from dataclasses import dataclass
from typing import Any

from agentrl_jax.configs.small import VOCABULARY, SmallTask


@dataclass(frozen=True)
class LmrlTask(SmallTask):
    """A task with the constants of its released scripts; those in the last block are ours."""

    tau: float = 0.7  # ILQL's expectile
    conservative: float = 0.01  # CQL's weight
    # initial bias of the value heads: published 0 in mazes and -4.4 in Car Dealer, but so few steps
    # hardly change it
    value_bias: float = -4.4
    gamma: float = 1.0  # of PPO; the value methods have .99
    imitation: float = 1.0  # PPO's weight of cross entropy on demonstrations
    # the fraction of episodes, by return, that filtered BC clones; None: all successful ones
    top_fraction: float | None = 0.3

    # weight of the values in the logits of value-guided decoding; published 16 and 32, to be tuned
    # from 1 on
    beta: float = 8.0
    mc_beta: float | None = None  # with Monte-Carlo values; None: `beta`
    # the evaluation plays the best-ranked of the environment's actions, this many scored per packed
    # row; 0: the policy generates its actions
    num_ranked_actions: int = 0
    rank_in_training: bool = False  # online methods, too, sample among these actions by likelihood
    # temperature of ranking by values; where many states look alike, a deterministic choice loops
    ranking_temperature: float = 0.0
    mc_ranking_temperature: float = 0.0  # with Monte-Carlo values
    # turns that ILQL samples per step, each with its successor; 0: whole episodes
    transitions_per_step: int = 0
    episodes: int = 2000  # of demonstrations
    batch: int = 32  # demonstrations per step
    bins: int = 32  # packed rows per gradient call
    tasks: int = 64  # rollouts per step
    evaluation_episodes: int = 256
    vocabulary: int = VOCABULARY
    # tokens may span spaces: the observations repeat themselves, and a third of the tokens takes a
    # third of the time
    phrases: bool = False
    ilql_steps: int = 600
    mc_steps: int = 600  # of the Monte-Carlo method
    value_final_fraction: float = 1.0  # of the values' learning rate: last over first
    value_clip_norm: float = 1.0  # of the values' gradient
    online_steps: int = 30  # of the online methods
    online_learning_rate: float = 5e-4
    online_final_fraction: float = 1.0  # last learning rate over the first


def _maze_task(environment: str, max_length: int, **settings: Any) -> LmrlTask:
    return LmrlTask(
        environment,
        "mixture",
        max_length,
        4,
        tau=0.75,
        conservative=0.0,
        value_bias=-12.0,
        imitation=0.0,
        top_fraction=None,
        mc_ranking_temperature=0.5,
        num_ranked_actions=4,
        episodes=1240,
        evaluation_episodes=100,
        **settings,
    )


def _nav_task(view: str, max_length: int) -> LmrlTask:
    return LmrlTask(
        "TextNav-v0",
        "mixture",
        max_length,
        16,
        {"view": view},
        tau=0.8,
        conservative=0.0,
        value_bias=0.0,
        top_fraction=None,
        episodes=2500,
        batch=24,
        beta=2.0,
        bins=16,
        tasks=32,
        online_steps=40,
        vocabulary=1024,
        phrases=True,
    )


def _dialogue_task(
    environment: str,
    max_length: int,
    batch: int,
    online_learning_rate: float = 1e-3,
    **settings: Any,
) -> LmrlTask:
    return LmrlTask(
        environment,
        "mixture",
        max_length,
        24,
        imitation=0.0,
        beta=2.0,
        episodes=8000,
        batch=batch,
        online_steps=40,
        online_learning_rate=online_learning_rate,
        online_final_fraction=0.05,
        vocabulary=1024,
        phrases=True,
        bins=16,
        sft_steps=600,
        **settings,
    )


def _chess_task(environment: str, max_length: int, **settings: Any) -> LmrlTask:
    return LmrlTask(
        environment,
        "mixture",
        max_length,
        8,
        conservative=1.0,
        value_bias=0.0,
        top_fraction=None,
        num_ranked_actions=16,
        rank_in_training=True,
        transitions_per_step=64,
        **settings,
    )


TASKS = {
    "maze_fo": _maze_task(
        "MazeFO-v0",
        72,
        gamma=0.99,
        batch=8,
        transitions_per_step=256,
        tasks=32,
        ilql_steps=4000,
        value_final_fraction=0.05,
        value_clip_norm=5.0,
    ),
    "maze_po": _maze_task(
        "MazePO-v0",
        96,
        batch=8,
        transitions_per_step=64,
        tasks=16,
        phrases=True,
        mc_steps=150,
        ranking_temperature=0.5,
    ),
    "nav_fo": _nav_task("full", 320),
    "nav_po": _nav_task("partial", 256),
    "wordle": LmrlTask(
        "Wordle-v0",
        "mixture",
        32,
        4,
        {"words": 16},
        mc_beta=4.0,
        episodes=8000,
        batch=64,
        vocabulary=1024,
        phrases=True,
        ilql_steps=1200,
        value_final_fraction=0.05,
        sft_steps=1000,
    ),
    "chess": _chess_task(
        "Chess-v0", 160, gamma=0.99, episodes=300, batch=4, tasks=8, evaluation_episodes=32
    ),
    "endgames": _chess_task(
        "ChessEndgames-v0",
        80,
        options={"positions": 8, "blunder": 0.0, "noise": 0.0},
        imitation=0.0,
        batch=16,
        online_steps=40,
        online_learning_rate=2e-4,
        evaluation_episodes=128,
        sft_steps=800,
    ),
    "questions": _dialogue_task("TwentyQuestions-v0", 128, 32, options={"words": "subset"}),
    "city": _dialogue_task("GuessCity-v0", 384, 20),
    "dealer": _dialogue_task("CarDealer-v0", 160, 40, 3e-4, value_bias=0.0),
}
