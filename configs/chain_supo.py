"""SUPO (arXiv 2510.06727) on a chain longer than the window, whose last places ask for digits that were seen early.

Paper (via a replication): clip .2 and .28, no KL nor entropy, token mean, at most 7 summaries, window .95 of the context; one
advantage per rollout, however many contexts it was split into; what a limit cut without an answer counts and is masked.

An episode takes about 100 tokens, the context has 64: where the next prompt would have 48 or more, the policy answers "?:" with a
summary and goes on from the opening and that. Demonstrations do so too, and sum up the digits that will be asked for. Instruction
and summaries use letters of the world's own, since the tokenizer is made of its texts.

Expected effect: `:base`, the same window without summaries, is cut off before the end; `:sliding`, the last messages that fit,
comes to the end and has to guess there (a row a turn, so it takes several times as long).

agentrl-train --config=configs/chain_supo.py[:base|:sliding]
"""

from typing import Any

from agentrl_jax.algorithms.contexts.asking import Matches, Summarize
from agentrl_jax.algorithms.methods.tools import supo
from agentrl_jax.configs.small import Task, pick, rates, small
from agentrl_jax.context import LastMessages
from agentrl_jax.experiment import Experiment
from agentrl_jax.speaking import Limits

RECALL = Task("Chain-v0", "mixture", 176, 3, {"length": 13, "letters": 10, "recall": 3, "horizon": 25}, sft_steps=400)


def summaries(most: int) -> Summarize:
    return Summarize(48, most, "?:\n", budget=16, demonstrated=Matches("[123]:[0-9]", "="))


def get_config(variant: str = "method") -> Experiment:
    contexts: dict[str, Any] = {"method": summaries(7), "base": summaries(0), "sliding": LastMessages(14, opening=True)}
    context = pick(variant, "chain_supo", **contexts)
    config = small("chain-supo", RECALL, supo(**rates(RECALL)), label="SUPO", steps=30)
    config.agent.context, config.agent.limits = context, Limits(calls=24, context=64)
    return config
