"""What `agentrl-bench methods` compares. A cell trains for a few minutes on a CPU, so a claim is tested on a small task."""

from agentrl_jax.launch.methods.comparison import Comparison, Side

WORDLE = {
    "environment.options.words": "16", "demonstrations.episodes": "2000", "sft.steps": "150", "rl.steps": "60",
    "rl.source.tasks": "16", "rl.algorithm.optimizer.learning_rate": "3e-4", "evaluation.episodes": "256",
}  # fmt: skip

COMPARISONS = (
    Comparison(
        name="dr_grpo",
        paper="arXiv 2503.20783",
        claim="Without the division by the group's std and the trajectory's length, GRPO wins more often.",
        base=Side("configs/wordle_grpo.py:smoke", WORDLE),
        method=Side("configs/wordle_dr_grpo.py:smoke", WORDLE),
    ),
)
