"""EPO for strategic reasoning (arXiv 2502.12486) on chains whose letters are planned first: a strategist is trained, who acts is frozen.

Paper: REINFORCE on judged turns, gamma .99, the largest return of an episode being 1, a mean over turns, no ratio, clip nor KL. Its
judge is a language model; here a turn of a solved chain is critical where it led on. Fine-tuning shows plans that are mostly wrong, and
who mostly keeps to them: that policy acts, on an engine of its own, and a copy of it is trained to plan.

Expected effect: played by itself in both parts, the trained policy succeeds more often, since it plans better.

agentrl-train --config=configs/chain_epo_strategic.py
"""

from collections.abc import Sequence

from agentrl_jax.algorithms.methods.dialogue import epo_strategic
from agentrl_jax.algorithms.strategies.frozen import WithFrozen
from agentrl_jax.algorithms.strategies.guided import Guided
from agentrl_jax.configs.small import Task, pick, rates, small
from agentrl_jax.experiment import Experiment, Rollouts
from agentrl_jax.trajectories import Trajectory

PLANNED = Task("Chain-v0", "follower", 160, 3, {"length": 6, "plans": True})


def leading_on(trajectory: Trajectory) -> Sequence[bool]:
    """Whether each turn of a solved chain led on."""
    left = [int(turn.info["anchor"].partition("@")[2]) for turn in trajectory.turns]
    return [after > before for before, after in zip(left, [*left[1:], left[-1] + 1])]


def get_config(variant: str = "method") -> Experiment:
    strategy = pick(variant, "chain_epo_strategic", method=Guided(8, heard=True, judge=leading_on))
    algorithm = epo_strategic(agent="policy", scale=1.0, **rates(PLANNED))
    source = WithFrozen(Rollouts(tasks=16, strategy=strategy))
    return small("chain-epo-strategic", PLANNED, algorithm, source, label="EPO")
