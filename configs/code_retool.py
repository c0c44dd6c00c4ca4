"""ReTool (arXiv 2504.11536): RL with code against RL on texts alone, from one start.

Both begin with the same fine-tuning, in whose demonstrations answers at once are frequent, and
mostly wrong. Reward: 1, or for a failure -1 to -.6 with the number of its messages; clip .2 and
.28, no KL. `:text` trains without the tool, `:pair` both from one fine-tuning, `:smoke` takes two
steps of each phase.

Hardware: 2 CPU cores; time: about 6 minutes for `:pair`; score: docs/code.md

    agentrl-train --config=configs/code_retool.py[:text|pair]
"""

from functools import partial

from agentrl_jax.algorithms.methods import retool
from agentrl_jax.configs.code_task import TRAINING_SETTINGS, code_experiment, code_spec
from agentrl_jax.configs.small import pick, rollouts, with_pair
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.mixture import Mixture

RETOOL = {"protocol": "retool", "reward": "retool"}


@partial(with_pair, base="text", method="tool")
def get_config(variant: str = "tool") -> Experiment:
    label = pick(variant, "code_retool", tool="tool", text="text", smoke="tool")
    smoke = variant == "smoke"
    both = {"tool": code_spec(**RETOOL), "text": code_spec(**RETOOL, tools=False)}
    return code_experiment(
        f"code-retool-{variant}",
        retool(**TRAINING_SETTINGS),
        rollouts(2 if smoke else 8, 4, task_source=Mixture({label: both[label]})),
        RETOOL,
        smoke,
        sft_steps=260,
        evaluated={
            "test-tool": code_spec(**RETOOL, split="test"),
            "test-text": code_spec(**RETOOL, split="test", tools=False),
        },
    )
