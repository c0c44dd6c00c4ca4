"""WebAgent-R1's M-GRPO (arXiv 2505.16421) on a chain: three nested means over rollouts, actions and tokens; old observations hidden.

Released: KL .001, std + 1e-4, gradient clip .01. An empty line stands in the context for every observation but the last, so nearly
every turn is a row of its own: an action is scored in the context it was sampled in, where the released training sequence
holds placeholders for all observations but the last of the episode.

Expected effect: a short rollout weighs as much as a long one; success as with one mean over all tokens (`:base`) or better on long
episodes, and as with the whole history (`:whole`), from shorter prompts.

agentrl-train --config=configs/chain_webagent_r1.py[:base|:whole]
"""

from agentrl_jax.algorithms.aggregation import token_mean
from agentrl_jax.algorithms.contexts.rewriting import Placeholders
from agentrl_jax.algorithms.methods.tools import webagent_r1
from agentrl_jax.configs.small import CHAIN, pick, rates, small
from agentrl_jax.experiment import Experiment


def get_config(variant: str = "method") -> Experiment:
    settings = rates(CHAIN)
    method, base = webagent_r1(**settings), webagent_r1(**settings, aggregation=token_mean)
    config = small("chain-webagent-r1", CHAIN, pick(variant, "chain_webagent_r1", method=method, base=base, whole=method), label="M-GRPO")
    config.agent.context = None if variant == "whole" else Placeholders("\n")
    return config
