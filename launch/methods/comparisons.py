"""What `agentrl-bench methods` compares. A cell trains for a few minutes on a CPU, so a claim is tested on a small task.

Base and method are variants of one config, with the same budget of steps and episodes and the same rates.
"""

from collections.abc import Mapping
from typing import Any

from agentrl_jax.launch.methods.comparison import Comparison, Side
from agentrl_jax.launch.methods.exploiting import exploitability
from agentrl_jax.launch.methods.measures import correction, distinct_answers, seconds_until, turns_until, within
from agentrl_jax.launch.sweeps.measures import area, final_return, largest, mean_of_last

WORDLE = {
    "environment.options.words": "16", "demonstrations.episodes": "2000", "sft.steps": "150", "rl.steps": "60",
    "rl.source.tasks": "16", "rl.algorithm.optimizer.learning_rate": "3e-4", "evaluation.episodes": "256",
}  # fmt: skip
SIX = tuple(range(6))  # where three told nothing, as the interval was wider than the difference
SLOWER = {"rl.algorithm.optimizer.learning_rate": "3e-4"}  # so that it takes more than a few steps

ASYNC = "configs/chain_async.py"


def stale(staleness: int, **more: Any) -> Comparison:
    """Truncated weights against none, both streaming as far ahead as they may: with worlds that answer at once."""
    settings = {
        "rl.source.staleness": str(staleness), "environment.delay.seconds": "0", "rl.algorithm.optimizer.learning_rate": "3e-3",
        "rl.steps": "30",
    }  # fmt: skip
    return Comparison(
        f"stale_{staleness}", "DART, arXiv 2509.23866", f"Truncated weights keep training steady at staleness {staleness}.",
        Side(f"{ASYNC}:plain", settings), Side(ASYNC, settings), measure=area("rollout/success"), **more,
    )  # fmt: skip


def variants(name: str, config: str, paper: str, claim: str, overrides: Mapping[str, str] | None = None, **more: Any) -> Comparison:
    """A config against its own variant `base`, with the same overrides."""
    path, same = f"configs/{config}.py", dict(overrides or {})
    return Comparison(name, paper, claim, Side(f"{path}:base", same), Side(path, same), **more)


COMPARISONS = (
    Comparison(
        name="dr_grpo",
        paper="arXiv 2503.20783",
        claim="Without the division by the group's std and the trajectory's length, GRPO wins more often.",
        base=Side("configs/wordle_grpo.py:smoke", WORDLE),
        method=Side("configs/wordle_dr_grpo.py:smoke", WORDLE),
    ),
    variants("gated", "desk_gated", "G-RA, arXiv 2508.10548", "A gate on the outcome stops the farming of step rewards."),
    variants(
        "simpletir", "calculator_simpletir", "SimpleTIR, arXiv 2509.02479", "Masking void trajectories removes gradient spikes.",
        measure=largest("gradient_spike"), higher_is_better=False,
    ),
    variants(
        "scaling_inter", "keydoor_scaling_inter", "ScalingInter-RL, arXiv 2509.08755", "Growing horizons beat the full one from the start.",
    ),
    variants(
        "epo", "chain_epo", "EPO, arXiv 2509.22576", "A band around earlier entropy keeps the policy's entropy in it.",
        measure=within("entropy", 0.8, 1.2),
    ),
    variants(
        "arpo_replay", "keydoor_arpo", "ARPO (GUI), arXiv 2505.16282", "A stored success gives all-failed groups a signal.", SLOWER,
        measure=area("groups_with_signal"), seeds=SIX,
    ),
    variants("arpo_success", "keydoor_arpo", "ARPO (GUI), arXiv 2505.16282", "With replay more episodes of the tasks it plays succeed.",
             SLOWER, measure=area("rollout/success"), seeds=SIX),
    variants(
        "score", "arithmetic_score", "SCoRe, arXiv 2409.12917", "The second attempt improves on the first.", measure=correction
    ),
    variants(
        "igpo_signal", "lookup_igpo", "IGPO, arXiv 2510.14967", "Information gain gives a signal where outcomes tie.",
        measure=area("groups_with_signal"),
    ),
    variants("igpo_success", "lookup_igpo", "IGPO, arXiv 2510.14967", "Information gain makes more episodes succeed."),
    variants(
        "critic_warmup", "chain_vapo", "VAPO, arXiv 2504.05118", "A critic of random values should learn before the policy moves.",
        {**SLOWER, "rl.algorithm.critic.head.scale": "1"}, measure=mean_of_last("rollout/success", 25),
    ),
    variants("truncated_weights", "keydoor_dart", "DART, arXiv 2509.23866", "Truncated importance weights help on stale samples."),
    variants(
        "ufo", "arithmetic_ufo", "UFO, arXiv 2507.14295", "Answers of an episode differ more.", measure=distinct_answers,
        seeds=SIX,
    ),
    variants("gigpo", "chain_gigpo", "GiGPO, arXiv 2505.10978", "Comparing steps from the same state makes more succeed.",
             SLOWER, measure=area("rollout/success")),
    variants("supo", "chain_supo", "SUPO, arXiv 2510.06727", "Summaries beat a window that cuts the episode off.",
             measure=final_return),
    variants(
        "spear", "keydoor_spear", "SPEAR, arXiv 2509.22601", "Self-imitation makes more episodes succeed.", SLOWER,
        measure=area("rollout/success"),
    ),
    variants(
        "arpo_calls", "lookup_arpo", "ARPO, arXiv 2507.19849", "Branching reaches a success rate of 0.8 with fewer tool calls.", SLOWER,
        measure=turns_until("rollout/success", 0.8), higher_is_better=False,
    ),
    variants("ui_s1", "keydoor_ui_s1", "UI-S1, arXiv 2509.11543", "Played live, semi-online walks beat offline step RL.", SLOWER),
    variants(
        "self_play", "kuhn_mars", "MARS, arXiv 2510.15414", "Self-play is harder to exploit than training against a fixed opponent.",
        measure=exploitability, higher_is_better=False,
    ),
    variants(
        "bfs_prover", "prover_bfs", "BFS-Prover-V2, arXiv 2509.06493",
        "Expert iteration by tree search proves more held-out theorems than by independent attempts.",
    ),
    variants("async_time", "chain_async", "DART, arXiv 2509.23866", "With worlds that take .1 s a turn, streaming is there sooner.",
             measure=seconds_until("rollout/success", 0.95), higher_is_better=False),
    stale(1), stale(2), stale(4, seeds=SIX),
)  # fmt: skip
