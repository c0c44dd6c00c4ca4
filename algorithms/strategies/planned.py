"""`Planned`: a search that, where it fails, has a planner split the theorem into claims (BFS-Prover-V2, arXiv 2509.06493)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from agentrl_jax.algorithms.strategies.best_first import BestFirst, opening_of
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import texts
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Group, Key, Trajectory
from agentrl_jax.workers import Task


@runtime_checkable
class Planner(Protocol):
    """Splits a theorem; a language model may stand in (`runtime.sample`). What it says may be anything: a claim that is none just fails."""

    async def plan(self, theorem: str, proven: Sequence[str], failed: Sequence[str], runtime: Runtime, key: Key) -> Sequence[str]:
        """Claims that would help to prove what the opening says, given those that were proven and those that could not be."""
        ...


def planned_task(task: Task, proven: Sequence[str], claim: str = "") -> Task:
    """The task with what was proven as lemmas, and with the claim to prove in place of its goal."""
    options = {**(task.reset_options or {}), "lemmas": list(proven), **({"claim": claim} if claim else {})}
    return replace(task, reset_options=options)


def is_lemma(trajectory: Trajectory) -> bool:
    """Whether it proves a part of a plan, and not the task itself."""
    return any(turn.info.get("lemma") for turn in trajectory.turns[-1:])


@dataclass
class Planned:
    """Search for the theorem; then, at most `plans` times: ask for claims, search for these, and for the theorem with the proven ones.

    For worlds with the reset options `lemmas` and `claim` (`agentrl/Prover-v0`). The group holds the attempt at the theorem that
    counts, and after it the proofs of claims, whose last turn's info says `lemma`.
    """

    search: BestFirst
    planner: Planner
    plans: int = 2
    claims: int = 4  # that are taken from a plan

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        main = await self.search.collect(task, runtime, key)
        proven: dict[str, Trajectory] = {}
        failed: dict[str, None] = {}
        for plan in range(1, self.plans + 1):
            if not main.trajectories or main.trajectories[0].success:
                break
            await runtime.attempt(planned_task(task, ()), 0, opening_of)  # a world without these options says so
            theorem = texts(main.trajectories[0].opening)[-1].strip()
            claims = await self._asked(task, theorem, list(proven), list(failed), runtime, (*key, -plan))
            works = [self._claimed(task, runtime, list(proven), claim, (*key, plan, i)) for i, claim in enumerate(claims)]
            found = dict(zip(claims, await asyncio.gather(*works)))
            proven |= {claim: proof for claim, proof in found.items() if proof is not None}
            failed |= {claim: None for claim, proof in found.items() if proof is None}
            if any(proof is not None for proof in found.values()):
                again = await self._tried(planned_task(task, list(proven)), runtime, (*key, plan, len(claims)))
                main = again if again is not None and again.trajectories else main
        return Group(task.name, (*main.trajectories, *proven.values()), main.dropped)

    async def _asked(self, task: Task, theorem: str, proven: Sequence[str], failed: Sequence[str], runtime: Runtime, key: Key) -> list[str]:
        """New claims of the planner; none where it is late."""
        try:
            said = await self.planner.plan(theorem, proven, failed, runtime, key)
        except EnvironmentFailure as failure:
            runtime.failures.add(failure, task)
            return []
        return [claim for claim in dict.fromkeys(map(str, said)) if claim.strip() and claim not in proven][: self.claims]

    async def _claimed(self, task: Task, runtime: Runtime, proven: Sequence[str], claim: str, key: Key) -> Trajectory | None:
        """A proof of the claim, or None."""
        group = await self._tried(planned_task(task, proven, claim), runtime, key)
        proof = group.trajectories[0] if group is not None and group.trajectories else None
        if proof is None or not proof.success:
            return None
        *before, last = proof.turns
        return proof.replace(turns=(*before, replace(last, info={**last.info, "lemma": claim})))

    async def _tried(self, task: Task, runtime: Runtime, key: Key) -> Group | None:
        """None where the world cannot make sense of what the planner said."""
        try:
            return await self.search.collect(task, runtime, key)
        except UserError:
            return None
