"""MINT (arXiv 2309.10691): success within k turns, with and without feedback, before and after RL.

A turn is code or one of two proposals; the policy reads how many of both are left. It is evaluated
at k = 1 to 5 (one proposal at k = 1) and, at k = 5, with a critic by rules that knows the answer.
`:feedback` trains with that critic, `:pair` both from one fine-tuning, `:smoke` takes two steps of
each phase. Half of the demonstrations are with the critic.

Hardware: 2 CPU cores; time: `:pair` 11 minutes on one of them

    agentrl-train --config=configs/code_mint.py[:feedback|pair]
"""

from functools import partial

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.configs.code_task import TRAINING_SETTINGS, code_experiment, code_spec
from agentrl_jax.configs.small import pick, rollouts, with_pair
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.mixture import Mixture

MAX_LENGTH = 768  # with what the policy is told of its budget
MINT = {"protocol": "mint", "budget_notice": True, "proposals": 2}


@partial(with_pair, base="method", method="feedback")
def get_config(variant: str = "method") -> Experiment:
    feedback = pick(variant, "code_mint", method="none", feedback="textual", smoke="textual")
    budgets = {
        f"k{k}": code_spec(**MINT | {"split": "test", "horizon": k, "proposals": min(k, 2)})
        for k in range(1, 6)
    }
    critic = code_spec(**MINT, split="test", horizon=5, feedback="textual")
    tasks = {x: code_spec(**MINT, horizon=5, feedback=x) for x in ("none", "textual")}
    smoke = variant == "smoke"
    return code_experiment(
        f"code-mint-{variant}",
        grpo(**TRAINING_SETTINGS),
        rollouts(2 if smoke else 8, 4, task_source=Mixture({feedback: tasks[feedback]})),
        MINT | {"horizon": 5},
        smoke,
        demonstrated=tasks,
        steps=12,
        evaluation_episodes=32,
        max_length=MAX_LENGTH,
        evaluated={**budgets, "k5-feedback": critic},
    )
