"""`PlannerSearch`: where a search fails, a planner splits the theorem into claims.

BFS-Prover-V2 (arXiv 2509.06493).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from agentrl_jax.algorithms.strategies.best_first import BestFirstSearch, fetch_opening
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import texts
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, RandomKey, Trajectory
from agentrl_jax.workers.pool import Task


@runtime_checkable
class Planner(Protocol):
    """Splits a theorem, for instance with a language model (`runtime.sample`).

    Its output may be anything: the proof of a claim that makes no sense just fails.
    """

    async def plan(
        self,
        theorem: str,
        proven_claims: Sequence[str],
        failed_claims: Sequence[str],
        runtime: Runtime,
        key: RandomKey,
    ) -> Sequence[str]:
        """Claims that would help to prove the theorem.

        Args:
            theorem: The text of the task's opening.
            proven_claims: Earlier claims that were proven.
            failed_claims: Earlier claims for which no proof was found.
            runtime: Samples calls.
            key: Of the calls.
        """
        ...


def task_with_lemmas(task: Task, lemmas: Sequence[str], claim: str = "") -> Task:
    """The task with proven lemmas, and with the claim to prove in place of its goal."""
    options = {
        **(task.reset_options or {}),
        "lemmas": list(lemmas),
        **({"claim": claim} if claim else {}),
    }
    return replace(task, reset_options=options)


def is_lemma(trajectory: Trajectory) -> bool:
    """Whether the trajectory proves a claim of a plan, and not the task itself."""
    return any(turn.info.get("lemma") for turn in trajectory.turns[-1:])


@dataclass
class PlannerSearch:
    """Search for the theorem; where that fails, search for claims and for the theorem with them.

    At most `max_plans` times the planner names claims, each is searched for, and then the theorem
    with the proven ones as lemmas. For environments with the reset options `lemmas` and `claim`
    (`agentrl/Prover-v0`). The group holds the last attempt at the theorem, and after it the proofs
    of claims, whose last turn's info has `lemma`.
    """

    search: BestFirstSearch
    planner: Planner
    max_plans: int = 2
    max_claims: int = 4  # of a plan; the others are left out

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        main = await self.search.collect(task, runtime, key)
        proven: dict[str, Trajectory] = {}
        failed: dict[str, None] = {}
        for plan in range(1, self.max_plans + 1):
            if not main.trajectories or main.trajectories[0].success:
                break
            # An environment without these options raises here.
            await runtime.with_retries(task_with_lemmas(task, ()), 0, fetch_opening)
            theorem = texts(main.trajectories[0].opening)[-1].strip()
            claims = await self._propose_claims(
                task, theorem, list(proven), list(failed), runtime, (*key, -plan)
            )
            searches = [
                self._prove_claim(task, runtime, list(proven), claim, (*key, plan, i))
                for i, claim in enumerate(claims)
            ]
            proofs = dict(zip(claims, await asyncio.gather(*searches)))
            proven |= {claim: proof for claim, proof in proofs.items() if proof is not None}
            failed |= {claim: None for claim, proof in proofs.items() if proof is None}
            if any(proof is not None for proof in proofs.values()):
                new_main = await self._search(
                    task_with_lemmas(task, list(proven)), runtime, (*key, plan, len(claims))
                )
                main = new_main if new_main is not None and new_main.trajectories else main
        return Group(task.name, (*main.trajectories, *proven.values()), main.num_dropped)

    async def _propose_claims(
        self,
        task: Task,
        theorem: str,
        proven_claims: Sequence[str],
        failed_claims: Sequence[str],
        runtime: Runtime,
        key: RandomKey,
    ) -> list[str]:
        """New claims of the planner; none where it exceeds a timeout."""
        try:
            plan = await self.planner.plan(theorem, proven_claims, failed_claims, runtime, key)
        except EnvironmentFailure as failure:
            runtime.failures.add(failure, task)
            return []
        return [
            claim
            for claim in dict.fromkeys(map(str, plan))
            if claim.strip() and claim not in proven_claims
        ][: self.max_claims]

    async def _prove_claim(
        self, task: Task, runtime: Runtime, proven_claims: Sequence[str], claim: str, key: RandomKey
    ) -> Trajectory | None:
        """A proof of the claim, or None."""
        group = await self._search(task_with_lemmas(task, proven_claims, claim), runtime, key)
        proof = group.trajectories[0] if group is not None and group.trajectories else None
        if proof is None or not proof.success:
            return None
        *before, last = proof.turns
        return proof.replace(turns=(*before, replace(last, info={**last.info, "lemma": claim})))

    async def _search(self, task: Task, runtime: Runtime, key: RandomKey) -> Group | None:
        """The search's group; None where the environment refuses the planner's claims."""
        try:
            opening = await runtime.with_retries(task, 0, fetch_opening)
        except UserError:
            return None
        return await self.search.search_from(opening, task, runtime, key)
