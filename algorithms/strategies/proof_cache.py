"""`ProofCache`: proofs that are shared by the searches of a strategy."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl_jax.messages import Message
from agentrl_jax.rollout.strategy import RolloutPiece
from agentrl_jax.storage import trajectory_json
from agentrl_jax.trajectories import Trajectory
from agentrl_jax.workers.pool import Task

ProveFn = Callable[[], Awaitable[Trajectory | None]]


@dataclass
class ProofCache(RolloutPiece):
    """The last `capacity` proofs, by theorem, shared by all searches, concurrent ones included.

    A hit never runs a prover. Failures are not stored: a later policy may find a proof.
    """

    capacity: int = 4096

    def __post_init__(self) -> None:
        self.hits = 0
        self._proofs: dict[str, Trajectory] = {}
        self._running: dict[str, asyncio.Future[Trajectory | None]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> "ProofCache":
        """A copy with the same proofs; running searches belong to their event loop."""
        other = ProofCache(self.capacity)
        other._proofs = dict(self._proofs)
        memo[id(self)] = other
        return other

    def __len__(self) -> int:
        return len(self._proofs)

    def cache_key(self, task: Task, opening: Sequence[Message]) -> str:
        """The key of a theorem: the opening's text and the environment with its options."""
        return json.dumps(
            [task.environment, task.options, [[m.role, m.text] for m in opening]], sort_keys=True
        )

    async def get_or_prove(self, key: str, prove: ProveFn) -> Trajectory | None:
        """The stored proof of this key, that of a running search, or what `prove` returns."""
        if key in self._proofs:
            self.hits += 1
            return self._proofs[key]
        if key in self._running:
            self.hits += 1
        else:
            self._running[key] = asyncio.ensure_future(self._prove_and_store(key, prove))
        # Shielded: one waiting search may be cancelled while others wait for the same proof.
        return await asyncio.shield(self._running[key])

    async def _prove_and_store(self, key: str, prove: ProveFn) -> Trajectory | None:
        try:
            proof = await prove()
        finally:
            del self._running[key]
        if proof is not None and proof.success:
            self._proofs[key] = proof
            while len(self._proofs) > self.capacity:
                del self._proofs[next(iter(self._proofs))]
        return proof

    def state(self) -> Any:
        return [[key, trajectory_json.encode(self._proofs[key])] for key in sorted(self._proofs)]

    def load(self, state: Any) -> None:
        self._proofs = {key: trajectory_json.decode(data) for key, data in state}
