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
)
