"""BFS-Prover-V2 (arXiv 2509.06493) on a propositional prover: best-first tree search and expert iteration.

Published: the search's score is the sum of log-probs over length^a; found proofs are imitated, tactics of too low and of too high negative
log-likelihood are left out; on a plateau old problems are solved again and training starts over from the base weights. Not published:
a (.5 here), the cut points (5 % at either end here), when a plateau is one. Theirs are Lean, 7 and 32 billion weights and 3 million
statements; here two in five of the tactics that fine-tuning shows are an expert's, and no theorem comes twice. A state stays open
for what was not tried there (`reopen`, ours).

Expected effect: after the rounds it proves more theorems that it has not seen, in one attempt each, than before, and than after as
many rounds of independent attempts (`:base`: 8 of at most 12 tactics, against 12 expansions of 4). `:planner` also lets a scripted
planner claim lemmas. What the search itself solves does not grow from round to round: a sure policy searches less widely.

agentrl-train --config=configs/prover_bfs.py[:base|planner]
"""

from dataclasses import replace

from agentrl_jax.algorithms.methods.dialogue import bfs_prover
from agentrl_jax.algorithms.methods.expert_iteration import ExpertIterationConfig, Restart
from agentrl_jax.algorithms.schedules import RaiseOnPlateau
from agentrl_jax.algorithms.strategies.best_first import BestFirst
from agentrl_jax.algorithms.strategies.planned import Planned
from agentrl_jax.algorithms.strategies.proof_cache import ProofCache
from agentrl_jax.algorithms.strategies.recallable import Recallable
from agentrl_jax.configs.small import Task, pick, rates, small
from agentrl_jax.envs.prover.planner import Forward
from agentrl_jax.experiment import Experiment, Rollouts
from agentrl_jax.models.tokenizers import Bytes
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.strategies import Independent

THEOREMS = Task("Prover-v0", "weak", 96, 3, {"depth": 6, "least": 4, "misleading": 4}, sft_steps=500)


def get_config(variant: str = "method") -> Experiment:
    search = BestFirst(expansions=12, width=4, length_power=0.5, reopen=True)
    strategy = pick(
        variant, "prover_bfs", method=search, base=Independent(group_size=8),
        planner=Planned(replace(search, cache=ProofCache()), Forward()),
    )  # fmt: skip
    restart = Restart(RaiseOnPlateau((0, 1), patience=8), updates=30, resolve=Recallable(strategy))
    update = bfs_prover(0.05, 0.95, rescore=True, **rates(THEOREMS, optimizer=AdamWConfig(5e-4, warmup_steps=3)))
    source = Rollouts(tasks=64, strategy=Recallable(strategy))
    made = small("prover-bfs", THEOREMS, ExpertIterationConfig(update, updates=2, restart=restart), source, steps=16, label="BFS-Prover")
    return replace(made, tokenizer=Bytes())  # letters apart: what is matched is letters
