"""MinD (arXiv 2505.19788): GRPO on sums that are thought through in units, one a call; a unit that holds several is penalised.

"17+25=?" is demonstrated as "7+5=12", "1+2+1=4" and the action "42". Weights, and the test for several units, are not
published: the marker here is a second "=", the weights .1.

Expected effect: more right answers than without units (`:base`, one call an action); the paper's, fewer tokens at the same
accuracy, is about long chains of thought that no policy of this size writes.

agentrl-train --config=configs/arithmetic_mind.py[:base]
"""

import re
from collections.abc import Sequence
from typing import Any

from agentrl_jax.algorithms.contexts.asking import Decomposed
from agentrl_jax.algorithms.methods.dialogue import mind
from agentrl_jax.configs.small import Task, pick, rates, small
from agentrl_jax.experiment import Experiment
from agentrl_jax.messages import Message

SUMS = Task("Arithmetic-v0", "expert", 128, 4, {"largest": 49, "operators": "+", "attempts": 1}, sft_steps=200)


def columns(messages: Sequence[Message], action: Message) -> list[str]:
    """The units of a sum: its ones, then its tens with what is carried."""
    found = re.match(r"(\d+)\+(\d+)", messages[0].text)
    assert found is not None, "a sum begins with its numbers"
    (left, a), (right, b) = (divmod(int(number), 10) for number in found.groups())
    carried = (a + b) // 10
    return [f"{a}+{b}={a + b}", f"{left}+{right}+{carried}={left + right + carried}"]


def get_config(variant: str = "method") -> Experiment:
    contexts: dict[str, Any] = {"method": Decomposed(r"^\d+$", 4, budget=10, demonstrated=columns), "base": None}
    config = small("arithmetic-mind", SUMS, mind(0.1, ("=",), 0.1, **rates(SUMS)), label="MinD")
    config.agent.context = pick(variant, "arithmetic_mind", **contexts)
    return config
