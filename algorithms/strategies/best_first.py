"""`BestFirst`: a task as a tree of states, of which the likeliest open one is expanded first (BFS-Prover-V2, arXiv 2509.06493)."""

import asyncio
import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from agentrl_jax.algorithms.strategies.proof_cache import ProofCache
from agentrl_jax.context import Asking
from agentrl_jax.episodes import Agent, Prompter, Watch
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.messages import Message
from agentrl_jax.rendering import Ids
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Call, Group, Key, Trajectory, Turn
from agentrl_jax.workers import StepResult, Task, World

Opening = tuple[Message, ...]
LEAST = 1e-9  # of the actions' probability, that is left where all seem to have been tried


@dataclass(frozen=True, eq=False)
class Node:
    """A state: how it was reached, what the policy is shown there, and how likely the way was."""

    turns: tuple[Turn, ...]
    prompt: Ids
    logp: float  # sum over the tokens of all actions on the way
    tried: Mapping[str, float] = field(default_factory=dict)  # the actions that were written here, with their log-probs

    def score(self, power: float) -> float:
        """logp / length^power: with power 0 the pure sum of log-probs, with 1 their mean over actions.

        Where actions were tried, logp is that of the way and of writing none of these.
        """
        left = 1.0 - sum(math.exp(logp) for logp in self.tried.values())
        return (self.logp + math.log(max(left, LEAST))) / max(len(self.turns), 1) ** power


@dataclass
class Counts:
    """What a search took; in the last turn's info as `search`."""

    expansions: int = 0
    sampled: int = 0  # actions
    refused: int = 0  # those that the world refused, or that ended it without success
    duplicates: int = 0  # those that were written before in this state, or led to a state that was known
    failed: int = 0  # those on which the world failed at every attempt, or that were empty


@dataclass
class BestFirst:
    """Best-first search: each expansion samples `width` actions in the best open state and keeps the new states that they lead to.

    The group is one trajectory, as if an episode had gone straight to success: the accepted path, its calls exactly as sampled, each
    from the prompt that an episode's would have had. Its turns' info has `weight` 1. Where nothing is found the trajectory has no turn.
    States are the same where the policy is shown the same: with a context of the last message alone that is the world's text, with the
    whole history no two states are. Any state is reached by playing its path again in a fresh world, so any deterministic world will do.

    A state is expanded once. With `reopen` it stays open, for as likely as an action is that was not tried there: then a sure policy's
    search does not run out of states (ours; the paper says nothing of it).

    An action whose world fails is given up alone; the whole search has an episode's deadline. With a `cache`, whoever has the same
    opening shares one search: only for worlds whose opening says all.
    """

    expansions: int = 32
    width: int = 8
    length_power: float = 0.0  # not published for V2
    agent: str = "policy"
    cache: ProofCache | None = None
    reopen: bool = False

    def __post_init__(self) -> None:
        if min(self.expansions, self.width) < 1 or self.length_power < 0:
            raise UserError("a search needs expansions and width >= 1 and length_power >= 0")

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        who = runtime.agents[self.agent]
        if who.limits.tokens or who.limits.context:
            raise UserError("a search takes of an agent's limits only turns: leave tokens and context at 0")
        if isinstance(who.context, Asking):
            raise UserError(f"a search samples actions alone: {type(who.context).__name__}, which asks for notes, is no context for it")
        opening = await runtime.attempt(task, 0, opening_of)
        found: Trajectory | None = None
        if opening is not None and self.cache is not None:
            name = self.cache.name(task, opening)  # the key is the theorem's, not the task's: it does not matter who comes first
            search = _Search(self, runtime, task, opening, (*key[:2], seed_of(*name.encode())))
            found = await self.cache.proof(name, search.run)
            if found is not None and not search.counts.expansions:
                found = _counted(found, search.counts)  # somebody else's
        elif opening is not None:
            found = await _Search(self, runtime, task, opening, key).run()
        if found is None:
            runtime.failures.drop(task)
            return Group(task.name, (), dropped=1)
        return Group(task.name, (found.replace(task=task.name, group=task.group, seed=task.seed),))


def _counted(found: Trajectory, counts: Counts) -> Trajectory:
    """The trajectory with what its search took in its last turn's info."""
    if not found.turns:
        return found
    *before, last = found.turns
    return found.replace(turns=(*before, replace(last, info={**last.info, "search": asdict(counts)})))


async def opening_of(world: World, watch: Watch) -> Opening:
    """What a world says first."""
    with watch(0, world.where):
        return (await world.reset())[0]


def prompt_after(agent: Agent, opening: Opening, turns: Sequence[Turn]) -> Ids:
    """The prompt that an episode has after these turns."""
    prompter = Prompter(agent, opening)
    for i, turn in enumerate(turns):
        prompter.next(turns[:i])
        prompter.called(turn.calls[-1], turn.action)
    return prompter.next(turns)[0]


@dataclass
class _Search:
    """One search."""

    config: BestFirst
    runtime: Runtime
    task: Task
    opening: Opening
    key: Key
    counts: Counts = field(default_factory=Counts)

    @property
    def who(self) -> Agent:
        return self.runtime.agents[self.config.agent]

    async def run(self) -> Trajectory | None:
        """The accepted path, or a trajectory without turns; None where the engine was late."""
        turns: tuple[Turn, ...] = ()
        try:
            async with asyncio.timeout(self.runtime.deadlines.episode) as clock:
                turns = await self._searched()
        except EnvironmentFailure as failure:
            self.runtime.failures.add(failure, self.task)
            return None
        except TimeoutError:
            if not clock.expired():
                raise
        if turns:
            turns = tuple(replace(turn, info={**turn.info, "weight": 1.0}) for turn in turns)
        found = Trajectory(
            self.opening, turns, self.task.name, self.task.group, 0, 0, self.task.seed, self.who.name, success=bool(turns),
            stop_reason="terminated" if turns and turns[-1].terminated else "turns",
        )  # fmt: skip
        return _counted(found, self.counts)

    async def _searched(self) -> tuple[Turn, ...]:
        c, number = self.config, itertools.count()
        root = Node((), prompt_after(self.who, self.opening, ()), 0.0)
        known, heap = {root.prompt.tobytes()}, [(0.0, next(number), root)]
        while heap and self.counts.expansions < c.expansions:
            _, _, node = heapq.heappop(heap)
            node, new, proofs = await self._expanded(node)
            if proofs:
                return max(proofs, key=lambda proof: proof.score(c.length_power)).turns
            if c.reopen:
                heapq.heappush(heap, (-node.score(c.length_power), next(number), node))
            for child in new:
                state = child.prompt.tobytes()
                if state in known:
                    self.counts.duplicates += 1
                elif not self.who.limits.turns or len(child.turns) < self.who.limits.turns:
                    known.add(state)
                    heapq.heappush(heap, (-child.score(c.length_power), next(number), child))
        return ()

    async def _expanded(self, node: Node) -> tuple[Node, list[Node], list[Node]]:
        """The node with what was tried there, the states that new actions lead to, and those among them that end in success."""
        counts, n = self.counts, self.counts.expansions
        ((*calls,),) = await self.runtime.sample(self.config.agent, [node.prompt], self.config.width, (*self.key, n))
        counts.expansions, counts.sampled = n + 1, counts.sampled + len(calls)
        actions: dict[str, tuple[Call, Message]] = {}
        for call in calls:
            action = self.who.renderer.parse(call.action)
            if not len(call.action):
                counts.failed += 1
            elif action.text in node.tried or actions.setdefault(action.text, (call, action))[0] is not call:
                counts.duplicates += 1
        results = await asyncio.gather(*(self._tried(node, action) for _, action in actions.values()))
        likely = {text: float(call.sampler_logp.astype(float).sum()) for text, (call, _) in actions.items()}
        new, proofs = [], []
        for (text, (call, action)), result in zip(actions.items(), results):
            if result is None:
                counts.failed += 1
                continue
            observation, reward, terminated, truncated, info = result
            rewards = info.pop("rewards", {"task": reward})
            turns = (*node.turns, Turn((call,), action, observation, reward, rewards, terminated, truncated, info))
            logp = node.logp + likely[text]
            if info.get("success"):
                proofs.append(Node(turns, node.prompt, logp))
            elif terminated or truncated or info.get("legal") is False:
                counts.refused += 1
            else:
                new.append(Node(turns, prompt_after(self.who, self.opening, turns), logp))
        return replace(node, tried={**node.tried, **likely}), new, proofs

    async def _tried(self, node: Node, action: Message) -> StepResult | None:
        """What a fresh world answers to the action after the node's path; None where it fails at every attempt."""

        async def act(world: World, watch: Watch) -> StepResult:
            with watch(len(node.turns), world.where):
                said = (await world.reset())[0] == self.opening
                for turn in node.turns:
                    said = (await world.step(turn.action))[0] == turn.observation and said
                if not said:
                    raise EnvironmentFailure(f"{self.task.environment} is not deterministic under its seed: the replay differs", "nonsense")
                return await world.step(action)

        return await self.runtime.attempt(self.task, 0, act)
