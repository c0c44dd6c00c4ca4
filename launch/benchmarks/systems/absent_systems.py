"""Systems that nothing here reproduces yet, with the pieces that they would be made of."""

from agentrl_jax.launch.benchmarks.systems.system import System

ABSENT_SYSTEMS = (
    System("RecoWorld", "2509.10397", "", "a recommender's user with moods and instructions"),
    System(
        "MUA-RL",
        "2508.18669",
        "`grpo` after fine-tuning, `ToolEnvironment` whose tools change its state",
        "services with a database (retail, airline), a simulated user",
    ),
    System(
        "DoctorAgent-RL",
        "2505.19630",
        "`grpo`, rewards of turns, `Judge`",
        "a simulated patient, a budget of turns that is told to the doctor",
    ),
    System(
        "Zhongjing",
        "2308.03549",
        "`TextDocuments` for continued pretraining, `RewardModelConfig`, `RewardModelScore` with "
        "`ppo`, files of `Preferences`",
        "medical dialogues and their ranked replies",
    ),
    System(
        "ViGoRL",
        "2505.23678",
        "`grpo`, `SceneQuestions` with its turns and rewards",
        "a config, search for demonstrations",
    ),
    System(
        "MGPO", "2507.05920", "`grpo`, `LastImages`, `RegionQuestions` with its turns", "a config"
    ),
    System(
        "FrameThinker",
        "2509.24304",
        "`grpo`, `VideoQuestions` with its turns, consistency and rewards",
        "a config",
    ),
    System(
        "VRAG-RL",
        "2505.22019",
        "`grpo`, `PageQuestions` with its turns and reward",
        "a config, retrieval by images",
    ),
    System(
        "CodeVision",
        "2512.03746",
        "`grpo`, `TransformedImages` with its tool and reward, `ToolNecessity`",
        "a config",
    ),
    System(
        "MetaSpatial",
        "2503.18470",
        "`grpo`, `RoomLayouts` with its turns and reward, `SpanFactors` and `SpanModulated` (3D-SPO)",
        "a config, marks of a model on rendered views",
    ),
)
