"""Proposers of new instructions: a list, or a model that reads failures (INSPO, 2512.01945)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from agentrl_jax.algorithms.contexts.instruction_population import InstructionMember
from agentrl_jax.messages import user
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import RandomKey, Trajectory


@runtime_checkable
class InstructionProposer(Protocol):
    """Writes candidate instructions. An error or a timeout counts as no candidates."""

    async def propose(
        self,
        members: Sequence[InstructionMember],
        failures: Sequence[Trajectory],
        count: int,
        runtime: Runtime,
        key: RandomKey,
    ) -> Sequence[str]:
        """Up to `count` instructions.

        Args:
            members: All instructions so far, pruned ones included.
            failures: Episodes of low return, the newest last.
            count: The largest number of candidates.
            runtime: Samples calls.
            key: Of the calls.
        """
        ...


@dataclass(frozen=True)
class ListProposer:
    """The next texts of a list that are not in the population."""

    texts: Sequence[str]

    async def propose(
        self,
        members: Sequence[InstructionMember],
        failures: Sequence[Trajectory],
        count: int,
        runtime: Runtime,
        key: RandomKey,
    ) -> Sequence[str]:
        known = {member.text for member in members}
        return [text for text in self.texts if text not in known][:count]


@dataclass(frozen=True)
class ReflectiveProposer:
    """An agent reads the best instruction and the newest failures, and writes each candidate."""

    agent: str = "policy"
    request: str = "Write a better instruction, and nothing else.\n"
    num_failures: int = 2  # in its prompt
    max_characters: int = 2000  # of a failure

    async def propose(
        self,
        members: Sequence[InstructionMember],
        failures: Sequence[Trajectory],
        count: int,
        runtime: Runtime,
        key: RandomKey,
    ) -> Sequence[str]:
        best = max(
            (m for m in members if m.alive),
            key=lambda m: -float("inf") if m.mean is None else m.mean,
        )
        newest = failures[-self.num_failures :] if self.num_failures else ()
        failure_texts = [
            "".join(message.text for message in t.messages)[-self.max_characters :] for t in newest
        ]
        parts = [
            f"Instruction: {best.text}\n",
            *(f"Failed:\n{text}\n" for text in failure_texts),
            self.request,
        ]
        renderer = runtime.agents[self.agent].renderer
        (calls,) = await runtime.sample(
            self.agent, [renderer.render([user("".join(parts))]).ids], count, key
        )
        return [renderer.parse(call.action).text for call in calls]
