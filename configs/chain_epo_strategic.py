"""EPO for strategic reasoning (arXiv 2502.12486) on chains whose letters are planned first.

A strategist is trained; the agent that acts is frozen. Paper: REINFORCE on scored turns, gamma .99,
the largest return of an episode being 1, a mean over turns, neither ratio nor clip nor KL. The
paper's judge is a language model; here a turn of a solved chain is critical where it made progress.
The demonstrations of fine-tuning contain plans that are mostly wrong and an agent that mostly
follows them: that policy acts, on an engine of its own, and a copy of it is trained to plan.

Expected effect: as both planner and actor, the trained policy succeeds more often, since it plans
better.

Hardware: 2 CPU cores; time: about 3 minutes; score: its plans raise the frozen agent's success from
.69 to 1.00 in 5 steps (.78 at step 25), but as both planner and actor it succeeds in .01 of the
evaluation, SFT in .72 (seed 0): the settings are not tuned

    agentrl-train --config=configs/chain_epo_strategic.py
"""

from collections.abc import Sequence

from agentrl_jax.algorithms.methods.multi_turn import epo_strategic
from agentrl_jax.algorithms.strategies.strategist import StrategistRollouts
from agentrl_jax.configs.small import SmallTask, pick, small_experiment, training_settings
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.model_configs import FrozenPolicy
from agentrl_jax.training.sources import Rollouts
from agentrl_jax.trajectories import Trajectory

CHAIN_WITH_PLANS = SmallTask("Chain-v0", "follower", 160, 3, {"length": 6, "plans": True})


def progress_turns(trajectory: Trajectory) -> Sequence[bool]:
    """Whether each turn of a solved chain led on."""
    left = [int(turn.info["anchor"].partition("@")[2]) for turn in trajectory.turns]
    return [after > before for before, after in zip(left, [*left[1:], left[-1] + 1])]


def get_config(variant: str = "method") -> Experiment:
    strategy = pick(
        variant,
        "chain_epo_strategic",
        method=StrategistRollouts(8, send_strategy_to_env=True, critical_turn_judge=progress_turns),
    )
    algorithm = epo_strategic(agent="policy", scale=1.0, **training_settings(CHAIN_WITH_PLANS))
    return small_experiment(
        "chain-epo-strategic",
        CHAIN_WITH_PLANS,
        algorithm,
        Rollouts(tasks=16, strategy=strategy),
        label="EPO",
        models={"actor": FrozenPolicy("sft")},
    )
