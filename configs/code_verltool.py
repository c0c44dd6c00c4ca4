r"""VerlTool (arXiv 2509.01055): GRPO whose tool runs on a server, asked as soon as a turn ends.

The server is VerlTool's or this library's, on port 5000; it keeps a state for each trajectory. Its
answers are appended token by token and have no loss. `:smoke` takes two short steps.

Hardware: 2 CPU cores; time: 6 minutes on one of them; score: success .28, SFT .08 (seed 0)

    export TOOL_SERVER_KEY=...
    agentrl-tools --protocol=verltool --tool=python --format=fenced --port=5000 \
        --api_key_variable=TOOL_SERVER_KEY &
    agentrl-train --config=configs/code_verltool.py[:smoke]
"""

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.configs.code_task import SERVED, TRAINING_SETTINGS, code_experiment
from agentrl_jax.configs.small import pick, rollouts
from agentrl_jax.training.config import Experiment


def get_config(variant: str = "method") -> Experiment:
    smoke = pick(variant, "code_verltool", method=False, smoke=True)
    return code_experiment(
        f"code-verltool-{variant}",
        grpo(**TRAINING_SETTINGS),
        rollouts(tasks=2 if smoke else 8, group_size=4),
        {"key_variable": "TOOL_SERVER_KEY"},
        smoke,
        environment=SERVED,
    )
