"""WebAgent-R1's M-GRPO (arXiv 2505.16421) on a chain: three nested means, old observations hidden.

The means are over rollouts, actions and tokens. Released: KL .001, std + 1e-4, gradient clip .01.
In the context an empty line replaces every observation but the last, so nearly every turn is a row
of its own: an action is scored in the context in which it was sampled, where the released training
sequence holds placeholders for all observations but the last of the episode.

Expected effect: a short rollout weighs as much as a long one; success as with one mean over all
tokens (`:base`) or better on long episodes, and as with the whole history (`:whole`), from shorter
prompts.

Hardware: 2 CPU cores; time: about 4 minutes; score: success 1.00, SFT .72 (seed 0)

    agentrl-train --config=configs/chain_webagent_r1.py[:base|:whole]
"""

from agentrl_jax.algorithms.advantages.token_weights import token_mean
from agentrl_jax.algorithms.contexts.history_views import ObservationPlaceholders
from agentrl_jax.algorithms.methods.tool_use import webagent_r1
from agentrl_jax.configs.small import CHAIN, pick, small_experiment, training_settings
from agentrl_jax.training.config import Experiment


def get_config(variant: str = "method") -> Experiment:
    settings = training_settings(CHAIN)
    method, base = webagent_r1(**settings), webagent_r1(**settings, aggregation=token_mean)
    config = small_experiment(
        "chain-webagent-r1",
        CHAIN,
        pick(variant, "chain_webagent_r1", method=method, base=base, whole=method),
        label="M-GRPO",
    )
    config.agent.context = None if variant == "whole" else ObservationPlaceholders("\n")
    return config
