"""MinD (arXiv 2505.19788): GRPO on sums with reasoning in units, one generation each.

A unit that holds several is penalized. "7+8=?" is demonstrated as the unit "7+8=15" and the action
"15". Weights, and the test for several units, are not published: the marker here is a second "=",
the weights .1. One attempt per episode, so that all episodes are of about the same length.

Expected effect: more right answers than before. The paper's effect, fewer tokens at the same
accuracy, concerns long chains of thought, which no policy of this size generates. `:base` has one
generation per action.

Hardware: 2 CPU cores; time: about 1 minute; score: success .88, SFT .53 (seed 0)

    agentrl-train --config=configs/arithmetic_mind.py[:base]
"""

from collections.abc import Sequence
from typing import Any

from agentrl_jax.algorithms.contexts.policy_notes import StepwiseThinking
from agentrl_jax.algorithms.methods.multi_turn import mind
from agentrl_jax.configs.small import SmallTask, pick, small_experiment, training_settings
from agentrl_jax.messages import Message
from agentrl_jax.training.config import Experiment

SUMS = SmallTask(
    "Arithmetic-v0",
    "mixture",
    64,
    4,
    {"largest": 9, "operators": "+", "attempts": 1},
    sft_steps=200,
)


def restate_question(messages: Sequence[Message], action: Message) -> list[str]:
    """The unit before an answer: the question with it, "7+8=15"."""
    return [messages[0].text.strip().removesuffix("?") + action.text]


def get_config(variant: str = "method") -> Experiment:
    contexts: dict[str, Any] = {
        "method": StepwiseThinking(
            r"^\d+$", 4, max_tokens=8, demonstration_writer=restate_question
        ),
        "base": None,
    }
    config = small_experiment(
        "arithmetic-mind", SUMS, mind(0.1, ("=",), 0.1, **training_settings(SUMS)), label="MinD"
    )
    config.agent.context = pick(variant, "arithmetic_mind", **contexts)
    return config
