"""Dr.GRPO (arXiv 2503.20783) on sums with chains of thought of any length: how long are wrong ones?

GRPO divides the loss of a trajectory by its length, so that a token of a long failure is penalized
less than one of a short failure, and failures grow long. "7+8=?" is answered by a step "7+8=15", up
to eleven steps that say it again, "8+7=15", and the answer "15". A wrong first step decides that
the episode fails, whatever follows, and the policy can see it.

Expected effect: failed episodes stay shorter than with GRPO (`:base`).

Hardware: 2 CPU cores; time: about 80 s; score: see docs/methods.md

    agentrl-train --config=configs/arithmetic_dr_grpo.py[:base|pair]
"""

from collections.abc import Sequence
from zlib import crc32

from agentrl_jax.algorithms.contexts.policy_notes import StepwiseThinking
from agentrl_jax.algorithms.methods import dr_grpo, grpo
from agentrl_jax.configs.small import (
    SmallTask,
    pick,
    small_experiment,
    training_settings,
    with_pair,
)
from agentrl_jax.messages import Message
from agentrl_jax.training.config import Experiment

SUMS = SmallTask(
    "Arithmetic-v0",
    "mixture",
    160,
    4,
    {"largest": 9, "operators": "+", "attempts": 1},
    sft_steps=200,
)
MAX_STEPS = 12


def repeated_steps(messages: Sequence[Message], action: Message) -> list[str]:
    """The step that decides the answer and up to three that say it again."""
    left, _, right = messages[0].text.strip().removesuffix("=?").partition("+")
    steps = [f"{left}+{right}={action.text}", f"{right}+{left}={action.text}"]
    return [steps[i % 2] for i in range(1 + crc32(steps[0].encode()) % 4)]


@with_pair
def get_config(variant: str = "method") -> Experiment:
    settings = training_settings(SUMS)
    method = dr_grpo(float(SUMS.max_length), **settings)
    algorithm = pick(variant, "arithmetic_dr_grpo", method=method, base=grpo(**settings))
    config = small_experiment("arithmetic-dr-grpo", SUMS, algorithm, steps=40, label="Dr.GRPO")
    config.agent.context = StepwiseThinking(
        r"^\d+$", MAX_STEPS + 1, max_tokens=12, demonstration_writer=repeated_steps
    )
    return config
