"""MARS (MARSHAL, arXiv 2510.15414) in self-play on two of its three games in one run.

The variant is the game that self-play never plays; fine-tuning imitates random play of all three.
Credit is centered by game and player, or one game's rewards would be the other's baseline.

Expected effect: better in the games of self-play, no change in the one held out.

Hardware: 2 CPU cores; time: 4.2 minutes of processor time; after fine-tuning and after MARS,
exploitability of Kuhn .53 and .09 (seed 0), .49 and .12 (seed 1); mean returns (512 games, 95 %)
Kuhn -.07 and .21, .02 and .17 (+- .13), Hanabi 1.71 and 1.97, 1.73 and 2.01 (+- .11), held out
tic-tac-toe -.01 and -.03, .00 and -.07 (+- .08)

    agentrl-train --config=configs/games_mars.py[:kuhn|:hanabi]
"""

from agentrl_jax.algorithms.losses.regularizers import KL
from agentrl_jax.algorithms.methods.multi_turn import mars
from agentrl_jax.algorithms.strategies.self_play import SelfPlay
from agentrl_jax.configs.small import SmallTask, pick, small_experiment, training_settings
from agentrl_jax.training.config import DemonstrationConfig, Experiment
from agentrl_jax.training.mixture import Mixture
from agentrl_jax.training.sources import Rollouts
from agentrl_jax.training.task_source import EnvironmentSpec

GAMES = {
    "kuhn": EnvironmentSpec("agentrl_jax.envs:agentrl/Kuhn-v0", {"opponent": "random"}),
    "tictactoe": EnvironmentSpec("agentrl_jax.envs:agentrl/TicTacToe-v0", {"opponent": "random"}),
    "hanabi": EnvironmentSpec("agentrl_jax.envs:agentrl/MiniHanabi-v0"),
}
TASK = SmallTask("Kuhn-v0", "random", 160, 3, {"opponent": "random"}, sft_steps=400)


def get_config(variant: str = "tictactoe") -> Experiment:
    held_out = pick(variant, "games_mars", **{label: label for label in GAMES})
    mixture = Mixture({label: game for label, game in GAMES.items() if label != held_out})
    algorithm = mars(**training_settings(TASK, regularizers={"kl": KL(0.2)}, rewards=None))
    rollouts = Rollouts(32, SelfPlay(8), mixture)
    config = small_experiment("games-mars", TASK, algorithm, rollouts, steps=120, label="MARS")
    config.demonstrations = DemonstrationConfig("random", 4000, task_source=Mixture(GAMES))
    config.evaluation.environments, config.evaluation.episodes = GAMES, 512
    return config
