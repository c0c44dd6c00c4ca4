"""Sums, one attempt each, by a program that knows only OpenAI's client (`envs/programs/player.py`), trained through the capture endpoint.

The policy begins with demonstrations, is trained by GRPO on what the program's calls became, and is evaluated in the world itself.
`:single` starts a program for each episode, as one must where a program is not made to play several; fewer episodes then.

Expected effect: the share of right answers goes up as it does without the endpoint (`:base`).

agentrl-train --config=configs/capture_arithmetic.py[:single|base]     (needs openai: pip install 'agentrl_jax[dev]')
"""

from dataclasses import replace

from agentrl_jax.algorithms.grpo import grpo
from agentrl_jax.capture.strategy import Captured
from agentrl_jax.configs.small import ARITHMETIC, pick, rates, rollouts, small
from agentrl_jax.experiment import Experiment, Rollouts

TASK = replace(ARITHMETIC, options={**ARITHMETIC.options, "attempts": 1})
PLAYER = ("{python}", "-m", "agentrl_jax.envs.programs.player")


def get_config(variant: str = "method") -> Experiment:
    source = pick(
        variant,
        "capture_arithmetic",
        method=Rollouts(tasks=16, strategy=Captured((*PLAYER, "--pool"), pool=1, at_once=64)),
        single=Rollouts(tasks=8, strategy=Captured(PLAYER, group_size=4, at_once=4)),
        base=rollouts(),
    )
    return small("capture-arithmetic", TASK, grpo(**rates(TASK)), source, steps=20, label="GRPO")
