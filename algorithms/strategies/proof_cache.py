"""`ProofCache`: what one search proved, no other has to prove again."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl_jax import journal
from agentrl_jax.messages import Message
from agentrl_jax.trajectories import Trajectory
from agentrl_jax.workers import Task

Prove = Callable[[], Awaitable[Trajectory | None]]


@dataclass
class ProofCache:
    """The last `size` proofs by what they prove, shared by all searches of a strategy, those that run at the same time too.

    A hit never runs a prover. What failed is not kept: the policy may know better next time.
    """

    size: int = 4096

    def __post_init__(self) -> None:
        self.hits = 0
        self._proofs: dict[str, Trajectory] = {}
        self._running: dict[str, asyncio.Future[Trajectory | None]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> "ProofCache":
        """A run's own, with what is known; searches at work belong to the loop that they run on."""
        twin = ProofCache(self.size)
        twin._proofs = dict(self._proofs)
        memo[id(self)] = twin
        return twin

    def __len__(self) -> int:
        return len(self._proofs)

    def name(self, task: Task, opening: Sequence[Message]) -> str:
        """What is to be proved: the opening's text, in a world made like this."""
        return json.dumps([task.environment, task.options, [[m.role, m.text] for m in opening]], sort_keys=True)

    async def proof(self, name: str, prove: Prove) -> Trajectory | None:
        """The proof of that name: the one that is known, the one that somebody is at, or what `prove` finds."""
        if name in self._proofs:
            self.hits += 1
            return self._proofs[name]
        if name in self._running:
            self.hits += 1
        else:
            self._running[name] = asyncio.ensure_future(self._proved(name, prove))
        return await asyncio.shield(self._running[name])  # whoever waits may be given up; others wait too

    async def _proved(self, name: str, prove: Prove) -> Trajectory | None:
        try:
            found = await prove()
        finally:
            del self._running[name]
        if found is not None and found.success:
            self._proofs[name] = found
            while len(self._proofs) > self.size:
                del self._proofs[next(iter(self._proofs))]
        return found

    def state(self) -> Any:
        """Plain JSON data."""
        return [[name, journal.encode(self._proofs[name])] for name in sorted(self._proofs)]

    def load(self, state: Any) -> None:
        self._proofs = {name: journal.decode(data) for name, data in state}
