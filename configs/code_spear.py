"""SPEAR (arXiv 2509.22601) on problems that are solved with code: scheduled self-imitation.

Its setting of mathematics with a code interpreter: calls of the tool are rewarded, .1 for each and
at most 1, with a coefficient that falls from 1 to 0 over two thirds of the run (as 200 of 300
steps), while that of the replayed better trajectories rises to 1 over the run; groups are chosen by
their spread, and void and overlong episodes are left out. `:base` is its base without replay and
without that reward, `:pair` trains both from one fine-tuning, `:smoke` takes two steps of each
phase.

Expected effect: the base succeeds less in the last third of the run.

Hardware: 2 CPU cores; time: `:pair` 9 minutes on one of them

    agentrl-train --config=configs/code_spear.py[:base|pair]
"""

from agentrl_jax.algorithms.methods.tool_use import spear
from agentrl_jax.configs.code_task import MAX_LENGTH, TRAINING_SETTINGS, code_experiment
from agentrl_jax.configs.small import pick, rollouts, with_pair
from agentrl_jax.training.config import Experiment


@with_pair
def get_config(variant: str = "method") -> Experiment:
    smoke, steps, tokens = variant == "smoke", 24, float(MAX_LENGTH)
    method = spear(
        tokens,
        anneal_steps=steps,
        tool_reward_steps=2 * steps // 3,
        replay_size=16,
        **TRAINING_SETTINGS,
    )
    base = spear(tokens, reward_tool_use=False, **{**TRAINING_SETTINGS, "auxiliaries": ()})
    return code_experiment(
        f"code-spear-{variant}",
        pick(variant, "code_spear", method=method, base=base, smoke=method),
        rollouts(tasks=2 if smoke else 8, group_size=4),
        {"protocol": "retool"},
        smoke,
        steps=steps,
        sft_steps=260,
    )
