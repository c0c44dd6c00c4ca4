"""Environments, one folder per family.

Importing this package registers their ids with Gymnasium and loads none of them.
"""

import gymnasium

# id -> (entry point, keyword arguments). A horizon is a rule of its environment, so
# `max_episode_steps` is never set.
ENVIRONMENTS = {
    "agentrl/Wordle-v0": ("agentrl_jax.envs.lmrl.wordle:Wordle", {}),
    "agentrl/MazeFO-v0": ("agentrl_jax.envs.lmrl.maze:Maze", {"view": "position"}),
    "agentrl/MazePO-v0": ("agentrl_jax.envs.lmrl.maze:Maze", {"view": "walls"}),
    "agentrl/TextNav-v0": ("agentrl_jax.envs.lmrl.text_nav:TextNav", {}),
    "agentrl/Chess-v0": ("agentrl_jax.envs.lmrl.chess.chess:Chess", {}),
    "agentrl/ChessEndgames-v0": ("agentrl_jax.envs.lmrl.chess.endgames:ChessEndgames", {}),
    "agentrl/TwentyQuestions-v0": (
        "agentrl_jax.envs.lmrl.twenty_questions.game:TwentyQuestions",
        {},
    ),
    "agentrl/GuessCity-v0": ("agentrl_jax.envs.lmrl.guess_city.game:GuessCity", {}),
    "agentrl/CarDealer-v0": ("agentrl_jax.envs.lmrl.car_dealer.game:CarDealer", {}),
    "agentrl/Arithmetic-v0": ("agentrl_jax.envs.diagnostic.arithmetic:Arithmetic", {}),
    "agentrl/Calculator-v0": ("agentrl_jax.envs.diagnostic.calculator:Calculator", {}),
    "agentrl/Chain-v0": ("agentrl_jax.envs.diagnostic.chain:Chain", {}),
    "agentrl/CountSquares-v0": ("agentrl_jax.envs.diagnostic.count_squares:CountSquares", {}),
    "agentrl/Desk-v0": ("agentrl_jax.envs.diagnostic.desk:Desk", {}),
    "agentrl/Form-v0": ("agentrl_jax.envs.diagnostic.form:Form", {}),
    "agentrl/KeyDoor-v0": ("agentrl_jax.envs.diagnostic.keydoor:KeyDoor", {}),
    "agentrl/Lookup-v0": ("agentrl_jax.envs.diagnostic.lookup:Lookup", {}),
    "agentrl/Kuhn-v0": ("agentrl_jax.envs.games.kuhn:Kuhn", {}),
    "agentrl/TicTacToe-v0": ("agentrl_jax.envs.games.tictactoe:TicTacToe", {}),
    "agentrl/MiniHanabi-v0": ("agentrl_jax.envs.games.hanabi:MiniHanabi", {}),
    "agentrl/OpenSpiel-v0": ("agentrl_jax.envs.adapters.open_spiel:OpenSpiel", {}),
    "agentrl/PettingZoo-v0": ("agentrl_jax.envs.adapters.pettingzoo_games:PettingZoo", {}),
    "agentrl/TextArena-v0": ("agentrl_jax.envs.adapters.textarena_game:TextArena", {}),
    "agentrl/TextCraft-v0": ("agentrl_jax.envs.textcraft.textcraft:TextCraft", {}),
    "agentrl/TextWorld-v0": ("agentrl_jax.envs.adapters.textworld_game:TextWorld", {}),
    "agentrl/BabyAI-v0": ("agentrl_jax.envs.adapters.babyai:BabyAI", {}),
    "agentrl/ALFWorld-v0": ("agentrl_jax.envs.adapters.alfworld:ALFWorld", {}),
    "agentrl/Jericho-v0": ("agentrl_jax.envs.adapters.jericho_game:Jericho", {}),
    "agentrl/BrowserGym-v0": ("agentrl_jax.envs.adapters.browsergym_task:BrowserGym", {}),
    "agentrl/ScienceWorld-v0": ("agentrl_jax.envs.adapters.scienceworld:ScienceWorld", {}),
    "agentrl/GymnasiumText-v0": ("agentrl_jax.envs.adapters.gymnasium_text:GymnasiumText", {}),
    "agentrl/HarbourCase-v0": ("agentrl_jax.envs.fiction.harbour:HarbourCase", {}),
    "agentrl/SearchProposals-v0": ("agentrl_jax.envs.search.search_proposals:SearchProposals", {}),
    "agentrl/SearchQuestions-v0": ("agentrl_jax.envs.search.search_questions:SearchQuestions", {}),
    "agentrl/Shop-v0": ("agentrl_jax.envs.shop.shop:Shop", {}),
    "agentrl/Advice-v0": ("agentrl_jax.envs.dialogue.advice:Advice", {}),
    "agentrl/PriceList-v0": ("agentrl_jax.envs.tool_use.price_list:PriceList", {}),
    "agentrl/RemotePriceList-v0": (
        "agentrl_jax.envs.tool_use.remote_price_list:RemotePriceList",
        {},
    ),
    "agentrl/AgentGym-v0": ("agentrl_jax.envs.remote.agent_gym:AgentGym", {}),
    "agentrl/OpenEnv-v0": ("agentrl_jax.envs.remote.openenv:OpenEnv", {}),
    "agentrl/NemoGym-v0": ("agentrl_jax.envs.remote.nemo_gym:NemoGym", {}),
    "agentrl/CodeProblems-v0": ("agentrl_jax.envs.code.code_problems:CodeProblems", {}),
    "agentrl/ServedCodeProblems-v0": (
        "agentrl_jax.envs.code.served_code_problems:ServedCodeProblems",
        {},
    ),
    "agentrl/ReasoningGym-v0": ("agentrl_jax.envs.code.reasoning_gym_problems:ReasoningGym", {}),
    "agentrl/TableQuestions-v0": (
        "agentrl_jax.envs.code.tables.table_questions:TableQuestions",
        {},
    ),
    "agentrl/SqlQuestions-v0": ("agentrl_jax.envs.sql.sql_questions:SqlQuestions", {}),
    "agentrl/SqlGrounding-v0": ("agentrl_jax.envs.sql.sql_grounding:SqlGrounding", {}),
    "agentrl/SceneQuestions-v0": ("agentrl_jax.envs.vision.scene_questions:SceneQuestions", {}),
    "agentrl/SceneCaptions-v0": ("agentrl_jax.envs.vision.scene_captions:SceneCaptions", {}),
    "agentrl/RegionQuestions-v0": ("agentrl_jax.envs.vision.region_questions:RegionQuestions", {}),
    "agentrl/VideoQuestions-v0": ("agentrl_jax.envs.vision.video_questions:VideoQuestions", {}),
    "agentrl/GridGrounding-v0": ("agentrl_jax.envs.vision.grounding:GridGrounding", {}),
    "agentrl/PageQuestions-v0": ("agentrl_jax.envs.vision.page_questions:PageQuestions", {}),
    "agentrl/RoomLayouts-v0": ("agentrl_jax.envs.vision.room_layouts:RoomLayouts", {}),
    "agentrl/TransformedImages-v0": (
        "agentrl_jax.envs.vision.transformed_images:TransformedImages",
        {},
    ),
    "agentrl/Prover-v0": ("agentrl_jax.envs.prover.prover:Prover", {}),
}

for name, (entry_point, options) in ENVIRONMENTS.items():
    if name not in gymnasium.registry:  # overriding an id, after a reload, would warn
        gymnasium.register(name, entry_point=entry_point, kwargs=options)
