"""SUPO (arXiv 2510.06727) on a chain longer than the context window.

The chain's last positions ask for digits that were observed early. Paper (via a replication): clip
.2 and .28, neither KL nor entropy, token mean, at most 7 summaries, window .95 of the context; one
advantage per rollout, however many contexts it was split into; a rollout that a limit truncated
without an answer counts and is masked.

The last prompt of an episode has at least 64 tokens, which is the context's length. Where the next
prompt would have 48 or more, the policy answers "?:" with a summary and continues from the opening
and that summary. The demonstrations do the same, and summarize the digits that will be asked for.
Instruction and summaries use letters of the environment's own, since the tokenizer is trained on
its texts.

Expected effect: `:base`, the same window without summaries, is truncated before the end.

Hardware: 2 CPU cores; time: about 187 s; score: success .95 over 3 seeds (docs/methods.md)

    agentrl-train --config=configs/chain_supo.py[:base]
"""

from agentrl_jax.algorithms.contexts.policy_notes import RegexMatches, Summarize
from agentrl_jax.algorithms.methods.tool_use import supo
from agentrl_jax.configs.small import SmallTask, pick, small_experiment, training_settings
from agentrl_jax.rollout.agent import Limits
from agentrl_jax.training.config import Experiment

CHAIN_WITH_RECALL = SmallTask(
    "Chain-v0",
    "mixture",
    144,
    3,
    {"length": 11, "letters": 5, "recall": 3, "horizon": 20},
    sft_steps=600,
)


def summarizing_context(max_summaries: int) -> Summarize:
    return Summarize(
        48,
        max_summaries,
        "?:\n",
        max_tokens=16,
        demonstration_writer=RegexMatches("[123]:[0-9]", "="),
    )


def get_config(variant: str = "method") -> Experiment:
    context = pick(
        variant, "chain_supo", method=summarizing_context(7), base=summarizing_context(0)
    )
    config = small_experiment(
        "chain-supo",
        CHAIN_WITH_RECALL,
        supo(**training_settings(CHAIN_WITH_RECALL)),
        label="SUPO",
        steps=40,
    )
    config.agent.context, config.agent.limits = context, Limits(turns=14, context=64)
    return config
