"""SUPO (arXiv 2510.06727) on a chain longer than the window, whose last places ask for digits that were seen early.

Paper (via a replication): clip .2 and .28, no KL nor entropy, token mean, at most 7 summaries, window .95 of the context; one
advantage per rollout, however many contexts it was split into; what a limit cut without an answer counts and is masked.

The last prompt of an episode has 64 tokens at least, and so many the context has in all. Where the next prompt would have 48 or more,
the policy answers "?:" with a summary and goes on from the opening and that. Demonstrations do so too, and sum up the digits that will
be asked for. Instruction and summaries use letters of the world's own, since the tokenizer is made of its texts.

Expected effect: `:base`, the same window without summaries, is cut off before the end.

agentrl-train --config=configs/chain_supo.py[:base]
"""

from agentrl_jax.algorithms.contexts.asking import Matches, Summarize
from agentrl_jax.algorithms.methods.tools import supo
from agentrl_jax.configs.small import Task, pick, rates, small
from agentrl_jax.experiment import Experiment
from agentrl_jax.speaking import Limits

RECALL = Task("Chain-v0", "mixture", 144, 3, {"length": 11, "letters": 5, "recall": 3, "horizon": 20}, sft_steps=600)


def summaries(most: int) -> Summarize:
    return Summarize(48, most, "?:\n", budget=16, demonstrated=Matches("[123]:[0-9]", "="))


def get_config(variant: str = "method") -> Experiment:
    context = pick(variant, "chain_supo", method=summaries(7), base=summaries(0))
    config = small("chain-supo", RECALL, supo(**rates(RECALL)), label="SUPO", steps=40)
    config.agent.context, config.agent.limits = context, Limits(turns=14, context=64)
    return config
