"""MinD (arXiv 2505.19788): GRPO on sums that are thought through in units, one a call; a unit that holds several is penalised.

"7+8=?" is demonstrated as the unit "7+8=15" and the action "15". Weights, and the test for several units, are not published: the
marker here is a second "=", the weights .1. One attempt an episode, so that all are about as long.

Expected effect: more right answers than before. The paper's, fewer tokens at the same accuracy, is about long chains of thought that no
policy of this size writes; `:base` has one call an action.

agentrl-train --config=configs/arithmetic_mind.py[:base]
"""

from collections.abc import Sequence
from typing import Any

from agentrl_jax.algorithms.contexts.asking import Decomposed
from agentrl_jax.algorithms.methods.dialogue import mind
from agentrl_jax.configs.small import Task, pick, rates, small
from agentrl_jax.experiment import Experiment
from agentrl_jax.messages import Message

SUMS = Task("Arithmetic-v0", "mixture", 64, 4, {"largest": 9, "operators": "+", "attempts": 1}, sft_steps=200)


def restated(messages: Sequence[Message], action: Message) -> list[str]:
    """The unit before an answer: the question with it, "7+8=15"."""
    return [messages[0].text.strip().removesuffix("?") + action.text]


def get_config(variant: str = "method") -> Experiment:
    contexts: dict[str, Any] = {"method": Decomposed(r"^\d+$", 4, budget=8, demonstrated=restated), "base": None}
    config = small("arithmetic-mind", SUMS, mind(0.1, ("=",), 0.1, **rates(SUMS)), label="MinD")
    config.agent.context = pick(variant, "arithmetic_mind", **contexts)
    return config
