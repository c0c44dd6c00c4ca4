"""MinD (arXiv 2505.19788): GRPO on sums with reasoning in units, one generation each.

A text that holds several units is penalized. "7+8=?" is demonstrated as the unit "7+8=15" and the
action "15"; three of four demonstrated texts hold up to three further units that say the same,
"7+8=15.8+7=15", as chains of thought repeat themselves. Weights, and the test for several units,
are not published: the marker here is the full stop, the weights .1. One attempt per episode, so
that all episodes are of about the same length.

Expected effect: as many right answers as without the penalty (`:base`) from fewer tokens. The
paper's effect concerns long chains of thought, which no policy of this size generates. `:one_call`
has one generation per action.

Hardware: 2 CPU cores; time: about 35 s; score: see docs/methods.md

    agentrl-train --config=configs/arithmetic_mind.py[:base|pair|one_call]
"""

from collections.abc import Sequence
from dataclasses import replace

from agentrl_jax.algorithms.contexts.policy_notes import StepwiseThinking
from agentrl_jax.algorithms.methods.multi_turn import mind
from agentrl_jax.configs.arithmetic_dr_grpo import SUMS as LONG_SUMS
from agentrl_jax.configs.arithmetic_dr_grpo import repeated_steps
from agentrl_jax.configs.small import (
    pick,
    small_experiment,
    training_settings,
    with_pair,
)
from agentrl_jax.messages import Message
from agentrl_jax.training.config import Experiment

SUMS = replace(LONG_SUMS, max_length=96)


def restate_question(messages: Sequence[Message], action: Message) -> list[str]:
    """The text before an answer, of one to four units: "7+8=15", "7+8=15.8+7=15", ..."""
    return [".".join(repeated_steps(messages, action))]


@with_pair
def get_config(variant: str = "method") -> Experiment:
    units = StepwiseThinking(r"^\d+$", 4, max_tokens=32, demonstration_writer=restate_question)
    context, compactness = pick(
        variant,
        "arithmetic_mind",
        method=(units, 0.1),
        base=(units, 0.0),
        one_call=(None, 0.1),
    )
    algorithm = mind(compactness, (".",), 0.1, **training_settings(SUMS))
    config = small_experiment("arithmetic-mind", SUMS, algorithm, label="MinD")
    config.agent.context = context
    return config
