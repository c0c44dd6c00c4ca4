"""MARS (MARSHAL, arXiv 2510.15414) in self-play on three games of OpenSpiel in one run.

The variant is the game that self-play never plays, or several, joined by +; fine-tuning imitates
random play of all four. `:smoke` fine-tunes and trains for a few steps, with tic-tac-toe held out.

Expected effect: better in the games of self-play, no change in those held out.

Hardware: one CPU core, 3 minutes; ratings and exploitability: docs/games.md

    pip install 'agentrl_jax[open-spiel]'
    agentrl-train --config=configs/open_spiel_mars.py[:kuhn|:leduc|:dice|:dice+tictactoe|:smoke]
"""

from agentrl_jax.algorithms.losses.regularizers import KL
from agentrl_jax.algorithms.methods.multi_turn import mars
from agentrl_jax.algorithms.strategies.self_play import SelfPlay
from agentrl_jax.configs.small import SmallTask, small_experiment, training_settings
from agentrl_jax.errors import UserError
from agentrl_jax.training.config import DemonstrationConfig, Experiment
from agentrl_jax.training.mixture import Mixture
from agentrl_jax.training.sources import Rollouts
from agentrl_jax.training.task_source import EnvironmentSpec

NAMES = {
    "kuhn": "kuhn_poker",
    "leduc": "leduc_poker",
    "dice": "liars_dice(dice_sides=3)",
    "tictactoe": "tic_tac_toe",
}
GAMES = {
    label: EnvironmentSpec("agentrl_jax.envs:agentrl/OpenSpiel-v0", {"game": game})
    for label, game in NAMES.items()
}
TASK = SmallTask("OpenSpiel-v0", "random", 128, 8, {"game": "kuhn_poker"}, sft_steps=400)


def get_config(variant: str = "tictactoe") -> Experiment:
    is_smoke = variant == "smoke"
    held_out = {"tictactoe"} if is_smoke else {*variant.split("+")}
    if not held_out < {*GAMES}:
        raise UserError(
            "configs/open_spiel_mars.py has the variant smoke, and those of one to three games of "
            f"{', '.join(GAMES)}, joined by +, not {variant!r}"
        )
    mixture = Mixture({label: game for label, game in GAMES.items() if label not in held_out})
    algorithm = mars(**training_settings(TASK, regularizers={"kl": KL(0.2)}, rewards=None))
    rollouts = Rollouts(6 if is_smoke else 32, SelfPlay(4 if is_smoke else 8), mixture)
    name = "open-spiel-mars-smoke" if is_smoke else "open-spiel-mars"
    steps = 3 if is_smoke else 120
    config = small_experiment(name, TASK, algorithm, rollouts, steps=steps, label="MARS")
    config.demonstrations = DemonstrationConfig("random", 4000, task_source=Mixture(GAMES))
    config.evaluation.environments, config.evaluation.episodes = GAMES, 512
    if is_smoke:
        config.phases["sft"].steps = 30
        config.demonstrations.episodes = 200
        config.evaluation.episodes = 16
    return config
