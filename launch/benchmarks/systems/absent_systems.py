"""Systems that nothing here reproduces yet, with the pieces that they would be made of."""

from agentrl_jax.launch.benchmarks.systems.system import System

ABSENT_SYSTEMS = (
    System(
        "MINT",
        "2309.10691",
        "several attempts, limits of turns",
        "code as a tool, simulated critics",
    ),
    System("RecoWorld", "2509.10397", "", "a recommender's user with moods and instructions"),
    System(
        "MUA-RL", "2508.18669", "`grpo` after fine-tuning", "stateful services, a simulated user"
    ),
    System(
        "DoctorAgent-RL", "2505.19630", "`grpo`, rewards of turns", "a simulated patient and judges"
    ),
    System(
        "Zhongjing",
        "2308.03549",
        "`ppo`, `RewardModelConfig` (for `refuel` alone)",
        "continued pretraining as a phase, PPO against a reward model",
    ),
    System(
        "MARS-SQL",
        "2511.01008",
        "`grpo`, `BestOfNEngine` of utterances",
        "SQL and tables, a validator that chooses among rollouts",
    ),
    System(
        "Search Self-play",
        "2510.18821",
        "`SelfPlay` for games",
        "search, one model as proposer and solver of questions",
    ),
    System(
        "AI-SearchPlanner",
        "2508.20368",
        "`StrategistRollouts`, `ppo`",
        "search, a frozen answerer, the Pareto sweep of cost",
    ),
    System(
        "Chain-of-Agents (AFM)",
        "2508.13167",
        "`grpo` after fine-tuning",
        "its roles and tools, distillation from a team of agents",
    ),
    System(
        "R1-Code-Interpreter",
        "2505.21668",
        "`grpo`, `SuccessRateSampler`",
        "a sandbox for code, stages by potential",
    ),
    System("ReTool", "2504.11536", "`ppo`, `grpo`", "a sandbox for code"),
    System("ARTIST", "2505.01441", "`grpo`", "a sandbox for code, stateful services"),
    System(
        "DataMind",
        "2509.25084",
        "`Imitation` beside policy gradients, `mask_void_trajectories`",
        "SQL, tables and code as tools",
    ),
    System(
        "VerlTool",
        "2509.01055",
        "asynchronous tool calls per trajectory, exact tokens of earlier turns",
        "its tool server and its tools",
    ),
    System("ViGoRL", "2505.23678", "`grpo`", "images, points and crops, search for demonstrations"),
    System("MGPO", "2507.05920", "`grpo`, `LastImages`", "images and crops"),
    System("FrameThinker", "2509.24304", "`grpo`", "videos and the choice of frames"),
    System("VRAG-RL", "2505.22019", "`grpo`", "pages as images, search, crops"),
    System("CodeVision", "2512.03746", "`grpo`, parts of rewards", "code as a tool on images"),
    System("MetaSpatial", "2503.18470", "`grpo`", "layouts of rooms, rendered views"),
)
