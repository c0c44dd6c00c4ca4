"""Comparisons whose claim, measure, settings and seeds were declared before a cell of them ran.

Ten seeds find a difference of one standard deviation of the paired differences with a power of
80 %. Base and method start from the same fine-tuned weights, in one run a seed. Settings are the
same on both sides, and were chosen by two seeds that are not compared.
"""

from typing import Any

from agentrl_jax.launch.benchmarks.claims.comparison import (
    TEN_SEEDS,
    on_both_sides,
    paired_comparison,
)
from agentrl_jax.launch.benchmarks.claims.measures import correction, distinct_answers
from agentrl_jax.launch.sweeps.measures import final_success, mean_of_last, std_of_changes

SEEDS: dict[str, Any] = {"seeds": TEN_SEEDS, "tuning_seeds": (100, 101)}
# So that a run takes a minute: the measures read the rollouts, not the evaluation; the engine's
# batch is as large as a step's, and its calls of few tokens end early.
SETTINGS = {
    "demonstrations.episodes": "500",
    "phases.sft.source.batch": "16",
    "evaluation.episodes": "128",
    "engine.rows": "32",
    "engine.min_decode_steps": "3",
    "engine.batching_delay": "0.02",
}


UFO_SETTINGS = {
    **SETTINGS,
    **on_both_sides({"steps": "32", "source.tasks": "8"}),
    "demonstrations.episodes": "200",
    "evaluation.episodes": "512",
    "engine.rows": "64",
}

PLANNED = (
    paired_comparison(
        "epo",
        "chain_epo",
        "EPO, arXiv 2509.22576",
        "Where an entropy bonus lets entropy diverge, a band around earlier entropy keeps success.",
        SETTINGS,
        measure=mean_of_last("rollout/success", 8),
        **SEEDS,
    ),
    paired_comparison(
        "epo_entropy",
        "chain_epo",
        "EPO, arXiv 2509.22576",
        "With the band, entropy changes more evenly from step to step.",
        SETTINGS,
        measure=std_of_changes("entropy"),
        higher_is_better=False,
        **SEEDS,
    ),
    paired_comparison(
        "ufo",
        "arithmetic_ufo",
        "UFO, arXiv 2507.14295",
        "Trained on several attempts more is solved within five than by single-turn RL.",
        UFO_SETTINGS,
        measure=final_success,
        **SEEDS,
    ),
    paired_comparison(
        "ufo_distinct",
        "arithmetic_ufo",
        "UFO, arXiv 2507.14295",
        "After a wrong answer fewer are repeated than by single-turn RL.",
        UFO_SETTINGS,
        measure=distinct_answers,
        **SEEDS,
    ),
    paired_comparison(
        "score",
        "arithmetic_score",
        "SCoRe, arXiv 2409.12917",
        "The second attempt improves on the first, by more than with REINFORCE on both rewards.",
        {**SETTINGS, "phases.sft.steps": "150", "engine.rows": "128"},
        measure=correction,
        seeds=tuple(range(20)),
        tuning_seeds=(100, 101),
    ),
    paired_comparison(
        "ui_s1",
        "form_ui_s1",
        "UI-S1, arXiv 2509.11543",
        "Played live, semi-online rollouts succeed more often than offline step RL.",
        {
            **on_both_sides({"algorithm.optimizer.learning_rate": "1e-4"}),  # the base's best of 3
            "evaluation.episodes": "512",
        },
        measure=final_success,
        **SEEDS,
    ),
)
