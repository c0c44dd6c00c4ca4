"""The comparisons of `agentrl-bench methods`, on tasks that train in a few minutes on a CPU.

Base and method are variants of one config with the same steps, episodes and learning rates.
"""

from typing import Any

from agentrl_jax.launch.benchmarks.claims.comparison import (
    SECOND_TEN,
    SIDES,
    Comparison,
    Side,
    on_both_sides,
    paired_comparison,
    variant_comparison,
)
from agentrl_jax.launch.benchmarks.claims.measures import seconds_until_level
from agentrl_jax.launch.benchmarks.claims.planned import PLANNED
from agentrl_jax.launch.benchmarks.claims.planned_dialogues import PLANNED_DIALOGUES
from agentrl_jax.launch.benchmarks.claims.planned_exploration import PLANNED_EXPLORATION
from agentrl_jax.launch.benchmarks.claims.planned_rewards import PLANNED_REWARDS
from agentrl_jax.launch.sweeps.measures import area_under_curve, final_return, maximum

FIVE_SEEDS = tuple(range(5))
# So that learning takes more than a few steps.
LOWER_LEARNING_RATE = {"phases.rl.algorithm.optimizer.learning_rate": "3e-4"}
FEW_DEMONSTRATIONS = {"demonstrations.episodes": "1000"}

VAPO_CONFIG = "configs/chain_vapo.py"
# A cycle of the flywheel after 10 and 20 steps, of which the first 10 train the critic alone.
TARS_SETTINGS = {**FEW_DEMONSTRATIONS, "phases.rl.steps": "25"}
# Fine-tuning to a fifth of successes, and 32 episodes a step.
VLA_SETTINGS = {
    **FEW_DEMONSTRATIONS,
    "phases.sft.steps": "100",
    "phases.rl.steps": "30",
    "phases.rl.source.tasks": "8",
    "phases.rl.source.strategy.group_size": "4",
}


def staleness_comparison(staleness: int, **seeds: Any) -> Comparison:
    """Truncated importance weights against none, with asynchronous rollouts and no latency, from
    one fine-tuning. The learning rate is 15 times that of the config, so that old samples do harm.
    """
    settings = {
        "demonstrations.episodes": "500",
        "evaluation.episodes": "128",
        "engine.min_decode_steps": "3",
        "engine.batching_delay": "0.02",
        "environment.delay.seconds": "0",
        **on_both_sides(
            {
                "source.staleness": str(staleness),
                "algorithm.optimizer.learning_rate": "3e-3",
                "steps": "30",
            }
        ),
    }
    base, method = (Side("configs/chain_async.py:stale", settings, phase) for phase in SIDES)
    return Comparison(
        f"stale_{staleness}",
        "DART, arXiv 2509.23866",
        f"Truncated weights keep training steady at staleness {staleness}.",
        base,
        method,
        measure=area_under_curve("rollout/success"),
        **{"seeds": SECOND_TEN, "tuning_seeds": (100, 101), **seeds},
    )


COMPARISONS = (
    variant_comparison(
        "simpletir",
        "calculator_simpletir",
        "SimpleTIR, arXiv 2509.02479",
        "Masking void trajectories removes gradient spikes.",
        measure=maximum("gradient_spike"),
        higher_is_better=False,
    ),
    variant_comparison(
        "scaling_inter",
        "keydoor_scaling_inter",
        "ScalingInter-RL, arXiv 2509.08755",
        "Growing horizons beat the full one from the start.",
    ),
    variant_comparison(
        "supo",
        "chain_supo",
        "SUPO, arXiv 2510.06727",
        "Summaries beat a window that cuts the episode off.",
        measure=final_return,
        by_construction=True,
    ),
    variant_comparison(
        "bfs_prover",
        "prover_bfs",
        "BFS-Prover-V2, arXiv 2509.06493",
        "Expert iteration by tree search proves more held-out theorems than by independent "
        "attempts.",
    ),
    paired_comparison(
        "async_time",
        "chain_async",
        "DART, arXiv 2509.23866",
        "With environments that take .1 s a turn, asynchronous rollouts get there sooner.",
        {"demonstrations.episodes": "1000", **on_both_sides({"steps": "30"})},
        measure=seconds_until_level("rollout/success", 0.95),
        higher_is_better=False,
        seeds=SECOND_TEN,
        tuning_seeds=(0, 1, 2),  # three seeds of each side in runs of their own: 19 s against 24
    ),
    variant_comparison(
        "epo_critical",
        "chain_epo_strategic",
        "EPO (strategic), arXiv 2502.12486",
        "Rewards for critical turns train a better strategist of a frozen agent than the outcome.",
        {**FEW_DEMONSTRATIONS, **LOWER_LEARNING_RATE},
        measure=area_under_curve("rollout/success"),
        seeds=FIVE_SEEDS,
    ),
    Comparison(
        "ui_tars_flywheel",
        "UI-TARS-2, arXiv 2509.02544",
        "With turns of the data flywheel more episodes succeed than by RL alone.",
        Side(f"{VAPO_CONFIG}:ui_tars_2", TARS_SETTINGS),
        Side(f"{VAPO_CONFIG}:flywheel", TARS_SETTINGS),
        measure=area_under_curve("rollout/success"),
        seeds=FIVE_SEEDS,
    ),
    variant_comparison(
        "vla_rl",
        "keydoor_vla_rl",
        "VLA-RL, arXiv 2505.18719",
        "A warm critic and a curriculum over tasks make more episodes succeed.",
        VLA_SETTINGS,
        seeds=FIVE_SEEDS,
    ),
    staleness_comparison(1),
    staleness_comparison(2),
    # The standard deviation of its first ten seeds asks for thirty new ones, which alone count.
    staleness_comparison(4, seeds=tuple(range(20, 50)), tuning_seeds=(*SECOND_TEN, 100, 101)),
    *PLANNED,
    *PLANNED_REWARDS,
    *PLANNED_EXPLORATION,
    *PLANNED_DIALOGUES,
)
