"""BFS-Prover-V2 (arXiv 2509.06493) on a propositional prover: tree search and expert iteration.

Published: the score of the best-first search is the sum of log-probs over length^a; proofs from the
search are imitated, tactics of too low and of too high negative log-likelihood are left out; on a
plateau old problems are solved again and training restarts from the base weights. Not published: a
(.5 here), the cut points (5 % at either end here), the definition of a plateau. Theirs: Lean, 7 and
32 billion weights and 3 million statements; here two in five of the tactics in the fine-tuning data
are an expert's, and no theorem occurs twice. A state stays open for tactics that were not tried
there (`reopen_states`, ours).

Expected effect: after the rounds it proves more held-out theorems, in one attempt each, than
before, and than after as many rounds of independent attempts (`:base`: 8 of at most 12 tactics,
against 12 expansions of 4). `:planner` also has a scripted planner that claims lemmas. The number
of theorems that the search itself solves does not grow from round to round: a policy of low entropy
searches less widely.

Hardware: 2 CPU cores; time: about 155 s; score: success .33 over 3 seeds (docs/methods.md)

    agentrl-train --config=configs/prover_bfs.py[:base|planner|pair]
"""

from dataclasses import replace

from agentrl_jax.algorithms.experience.schedules import RaiseOnPlateau
from agentrl_jax.algorithms.methods.expert_iteration import ExpertIterationConfig, Restart
from agentrl_jax.algorithms.methods.multi_turn import bfs_prover
from agentrl_jax.algorithms.strategies.best_first import BestFirstSearch
from agentrl_jax.algorithms.strategies.planner_search import PlannerSearch
from agentrl_jax.algorithms.strategies.proof_cache import ProofCache
from agentrl_jax.algorithms.strategies.task_reference import WithTaskReference
from agentrl_jax.configs.small import (
    SmallTask,
    pick,
    small_experiment,
    training_settings,
    with_pair,
)
from agentrl_jax.envs.prover.planner import ForwardPlanner
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.tokenizers import ByteTokenizer
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.sources import Rollouts

THEOREMS = SmallTask(
    "Prover-v0",
    "weak",
    96,
    3,
    {"depth": 6, "least": 4, "misleading": 4, "horizon": 12},
    sft_steps=500,
)


@with_pair
def get_config(variant: str = "method") -> Experiment:
    search = BestFirstSearch(max_expansions=12, width=4, length_power=0.5, reopen_states=True)
    strategy = pick(
        variant, "prover_bfs", method=search, base=IndependentEpisodes(group_size=8),
        planner=PlannerSearch(replace(search, proof_cache=ProofCache()), ForwardPlanner()),
    )  # fmt: skip
    restart = Restart(
        RaiseOnPlateau((0, 1), patience=8),
        num_updates=30,
        resolve_strategy=WithTaskReference(strategy),
    )
    update = bfs_prover(
        0.05,
        0.95,
        rescore=True,
        **training_settings(THEOREMS, optimizer=AdamWConfig(5e-4, warmup_steps=3)),
    )
    source = Rollouts(tasks=64, strategy=WithTaskReference(strategy))
    config = small_experiment(
        "prover-bfs",
        THEOREMS,
        ExpertIterationConfig(update, num_updates=2, restart=restart),
        source,
        steps=16,
        label="BFS-Prover",
    )
    return replace(
        config, tokenizer=ByteTokenizer()
    )  # formulas match by letters, so each is a token
