"""EPO for strategic reasoning (arXiv 2502.12486) on chains whose letters are planned first.

A strategist is trained; the agent that acts is frozen. Paper: REINFORCE on scored turns, gamma .99,
the largest return of an episode being 1, a mean over turns, neither ratio nor clip nor KL. The
paper's judge is a language model; here a turn of a solved chain is critical where it made progress.
The demonstrations of fine-tuning contain plans that are mostly wrong and an agent that mostly
follows them: that policy acts, on an engine of its own, and a copy of it is trained to plan.

Eight actions are allowed for six letters, so that the plans of fine-tuning seldom succeed.

Expected effect: the trained plans raise the frozen agent's success, with marks of critical turns
faster than with the outcome alone (`:base`).

Hardware: 2 CPU cores; time: about 105 s on a busy machine; score over 5 seeds, with 1,000
demonstrations and learning rate 3e-4 (`--config.demonstrations.episodes=1000`,
`--config.phases.rl.algorithm.optimizer.learning_rate=3e-4`): its plans raise the frozen agent's
success from .17 to .89 in 12 steps; two seeds fall back later (docs/methods.md)

    agentrl-train --config=configs/chain_epo_strategic.py[:base]
"""

from collections.abc import Sequence

from agentrl_jax.algorithms.methods.multi_turn import epo_strategic
from agentrl_jax.algorithms.strategies.strategist import StrategistRollouts
from agentrl_jax.configs.small import SmallTask, pick, small_experiment, training_settings
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.model_configs import FrozenPolicy
from agentrl_jax.training.sources import Rollouts
from agentrl_jax.trajectories import Trajectory

CHAIN_WITH_PLANS = SmallTask(
    "Chain-v0",
    "follower",
    160,
    3,
    {"length": 6, "plans": True, "horizon": 16},
    sft_steps=150,
)


def progress_turns(trajectory: Trajectory) -> Sequence[bool]:
    """Whether each turn of a solved chain led on."""
    left = [int(turn.info["anchor"].partition("@")[2]) for turn in trajectory.turns]
    return [after > before for before, after in zip(left, [*left[1:], left[-1] + 1])]


def get_config(variant: str = "method") -> Experiment:
    strategy = pick(
        variant,
        "chain_epo_strategic",
        method=StrategistRollouts(8, send_strategy_to_env=True, critical_turn_judge=progress_turns),
        base=StrategistRollouts(8, send_strategy_to_env=True),
    )
    algorithm = epo_strategic(agent="policy", scale=1.0, **training_settings(CHAIN_WITH_PLANS))
    return small_experiment(
        "chain-epo-strategic",
        CHAIN_WITH_PLANS,
        algorithm,
        Rollouts(tasks=4, strategy=strategy),
        label="EPO",
        models={"actor": FrozenPolicy("sft")},
    )
