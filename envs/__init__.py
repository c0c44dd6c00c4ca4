"""Environments, one folder a family. Importing this package registers their ids with Gymnasium and loads none of them."""

import gymnasium

# id -> (entry point, keyword arguments). Horizons are rules of the games, so `max_episode_steps` is never set.
ENVIRONMENTS = {
    "agentrl/Wordle-v0": ("agentrl_jax.envs.lmrl.wordle:Wordle", {}),
    "agentrl/MazeFO-v0": ("agentrl_jax.envs.lmrl.maze:Maze", {"view": "position"}),
    "agentrl/MazePO-v0": ("agentrl_jax.envs.lmrl.maze:Maze", {"view": "walls"}),
    "agentrl/TextNav-v0": ("agentrl_jax.envs.lmrl.text_nav:TextNav", {}),
    "agentrl/Chess-v0": ("agentrl_jax.envs.lmrl.chess.chess:Chess", {}),
    "agentrl/ChessEndgames-v0": ("agentrl_jax.envs.lmrl.chess.endgames:ChessEndgames", {}),
    "agentrl/TwentyQuestions-v0": ("agentrl_jax.envs.lmrl.twenty_questions.game:TwentyQuestions", {}),
    "agentrl/GuessCity-v0": ("agentrl_jax.envs.lmrl.guess_city.game:GuessCity", {}),
    "agentrl/CarDealer-v0": ("agentrl_jax.envs.lmrl.car_dealer.game:CarDealer", {}),
    "agentrl/Arithmetic-v0": ("agentrl_jax.envs.probes.arithmetic:Arithmetic", {}),
    "agentrl/Calculator-v0": ("agentrl_jax.envs.probes.calculator:Calculator", {}),
    "agentrl/Chain-v0": ("agentrl_jax.envs.probes.chain:Chain", {}),
    "agentrl/Desk-v0": ("agentrl_jax.envs.probes.desk:Desk", {}),
    "agentrl/KeyDoor-v0": ("agentrl_jax.envs.probes.keydoor:KeyDoor", {}),
    "agentrl/Lookup-v0": ("agentrl_jax.envs.probes.lookup:Lookup", {}),
    "agentrl/Kuhn-v0": ("agentrl_jax.envs.games.kuhn:Kuhn", {}),
    "agentrl/TicTacToe-v0": ("agentrl_jax.envs.games.tictactoe:TicTacToe", {}),
    "agentrl/MiniHanabi-v0": ("agentrl_jax.envs.games.hanabi:MiniHanabi", {}),
    "agentrl/HarbourCase-v0": ("agentrl_jax.envs.fiction.harbour:HarbourCase", {}),
    "agentrl/Shop-v0": ("agentrl_jax.envs.shop.shop:Shop", {}),
    "agentrl/Advice-v0": ("agentrl_jax.envs.dialogue.advice:Advice", {}),
    "agentrl/Prover-v0": ("agentrl_jax.envs.prover.prover:Prover", {}),
}

for name, (entry_point, options) in ENVIRONMENTS.items():
    if name not in gymnasium.registry:  # a second import (a reload) would warn that it overrides the first
        gymnasium.register(name, entry_point=entry_point, kwargs=options)
