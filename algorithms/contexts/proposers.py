"""Who writes new instructions: a list, or a model that reads what went wrong (INSPO, arXiv 2512.01945)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from agentrl_jax.algorithms.contexts.population import Member
from agentrl_jax.messages import user
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Key, Trajectory


@runtime_checkable
class Proposer(Protocol):
    """Writes candidates. Whatever it does, the run goes on: an error or a late answer is counted as no candidates."""

    async def propose(
        self, members: Sequence[Member], failures: Sequence[Trajectory], count: int, runtime: Runtime, key: Key
    ) -> Sequence[str]:
        """Up to `count` instructions, given all there ever were, and episodes that earned little, the newest last."""
        ...


@dataclass(frozen=True)
class FromList:
    """The next texts of a list that were not there yet."""

    texts: Sequence[str]

    async def propose(
        self, members: Sequence[Member], failures: Sequence[Trajectory], count: int, runtime: Runtime, key: Key
    ) -> Sequence[str]:
        known = {member.text for member in members}
        return [text for text in self.texts if text not in known][:count]


@dataclass(frozen=True)
class Reflecting:
    """An agent of the runtime reads the best instruction and the newest failures, and writes each candidate anew."""

    agent: str = "policy"
    request: str = "Write a better instruction, and nothing else.\n"
    failures: int = 2  # that it reads
    characters: int = 2000  # of each

    async def propose(
        self, members: Sequence[Member], failures: Sequence[Trajectory], count: int, runtime: Runtime, key: Key
    ) -> Sequence[str]:
        best = max((m for m in members if m.alive), key=lambda m: -float("inf") if m.mean is None else m.mean)
        read = failures[-self.failures :] if self.failures else ()
        shown = ["".join(message.text for message in t.messages)[-self.characters :] for t in read]
        parts = [f"Instruction: {best.text}\n", *(f"Failed:\n{text}\n" for text in shown), self.request]
        renderer = runtime.agents[self.agent].renderer
        (calls,) = await runtime.sample(self.agent, [renderer.render([user("".join(parts))]).ids], count, key)
        return [renderer.parse(call.action).text for call in calls]
