"""`BestFirstSearch`: a tree of states whose likeliest open state is expanded first.

BFS-Prover-V2 (arXiv 2509.06493).
"""

import asyncio
import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from agentrl_jax.algorithms.strategies.proof_cache import ProofCache
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.messages import Message
from agentrl_jax.renderer import TokenIds
from agentrl_jax.rollout.agent import Agent, PromptBuilder
from agentrl_jax.rollout.agent_session import WaitTracker
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Call, Group, RandomKey, Trajectory, Turn, TurnTime
from agentrl_jax.workers.pool import EnvHandle, StepResult, Task

Opening = tuple[Message, ...]
# A lower bound on the probability of untried actions, where all seem to have been tried.
MIN_REMAINING_PROBABILITY = 1e-9


@dataclass(frozen=True, eq=False)
class SearchNode:
    """A state: the turns that lead to it, the policy's prompt there, and the path's log-prob."""

    turns: tuple[Turn, ...]
    prompt: TokenIds
    logp: float  # sum over the tokens of all actions on the path
    # The actions that were sampled here, with their log-probs.
    tried_actions: Mapping[str, float] = field(default_factory=dict)

    def action_budget(self, agent: Agent) -> int:
        """The most tokens of an action here, as in an episode; below 1 where a limit ends it."""
        turns, tokens = len(self.turns), sum(len(turn.calls[-1].action) for turn in self.turns)
        if agent.limits.stop_reason(turns, tokens, turns):
            return 0
        return agent.limits.call_budget(agent.sampling.budget, tokens, len(self.prompt))

    def score(self, length_power: float) -> float:
        """logp / length^power: with power 0 the sum of log-probs, with 1 their mean over actions.

        Where actions were tried, logp is that of the path and of sampling none of these.
        """
        remaining = 1.0 - sum(math.exp(logp) for logp in self.tried_actions.values())
        logp = self.logp + math.log(max(remaining, MIN_REMAINING_PROBABILITY))
        return logp / max(len(self.turns), 1) ** length_power


@dataclass
class SearchCounts:
    """The cost of a search; in the last turn's info as `search`."""

    expansions: int = 0
    sampled: int = 0  # actions
    refused: int = 0  # actions that the environment refused, or that ended it without success
    duplicates: int = 0  # actions that were tried before here, or that led to a known state
    failed: int = 0  # actions on which the environment failed at every attempt, or empty ones


@dataclass
class BestFirstSearch:
    """Best-first search: each expansion samples `width` actions in the best open state.

    The group is one trajectory, the accepted path as if an episode had gone straight to success:
    its calls are exactly as sampled, each from the prompt that an episode would have had. Its
    turns' info has `weight` 1. Where no proof is found the trajectory has no turns. Two states are
    equal where the policy's prompts are: with a context of the last message only, where the
    environment's texts are; with the whole history no two states are. A state is reached by
    replaying its path in a fresh environment, so any deterministic environment will do.

    The agent's limits cut a path as they cut an episode. A state is expanded once. With
    `reopen_states` it stays open, scored by the probability of an action that was not tried there:
    then a confident policy's search does not run out of states (ours, not the paper's).

    An action whose environment fails is dropped; the search has an episode's timeout. With a
    `proof_cache`, tasks of one opening share a search: only where the opening determines the task.
    """

    max_expansions: int = 32
    width: int = 8
    length_power: float = 0.0  # not published for V2
    agent: str = "policy"
    proof_cache: ProofCache | None = None
    reopen_states: bool = False

    def __post_init__(self) -> None:
        if min(self.max_expansions, self.width) < 1 or self.length_power < 0:
            raise UserError("a search needs max_expansions and width >= 1 and length_power >= 0")

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        opening = await runtime.with_retries(task, 0, fetch_opening)
        return await self.search_from(opening, task, runtime, key)

    async def search_from(
        self, opening: Opening | None, task: Task, runtime: Runtime, key: RandomKey
    ) -> Group:
        """The group of a search from the task's opening; a dropped one where that is None."""
        agent = runtime.agents[self.agent].for_task(task.name)
        if agent.context.writes_notes:
            raise UserError(
                "a search samples actions only: leave out the context "
                f"{type(agent.context).__name__}, which requests notes"
            )
        proof: Trajectory | None = None
        if opening is not None and self.proof_cache is not None:
            # The random key is the theorem's, not the task's: the order of tasks does not matter.
            theorem = self.proof_cache.cache_key(task, opening)
            search = _Search(self, runtime, task, opening, (*key[:2], seed_of(*theorem.encode())))
            proof = await self.proof_cache.get_or_prove(theorem, search.run)
            if proof is not None and not search.counts.expansions:
                proof = _with_search_counts(proof, search.counts)  # from another search
        elif opening is not None:
            proof = await _Search(self, runtime, task, opening, key).run()
        if proof is None:
            runtime.failures.add_dropped(task)
            return Group(task.name, (), num_dropped=1)
        return Group(task.name, (proof.replace(task=task.name, group=task.group, seed=task.seed),))


def _with_search_counts(trajectory: Trajectory, counts: SearchCounts) -> Trajectory:
    """The trajectory with the counts of its search in its last turn's info."""
    if not trajectory.turns:
        return trajectory
    *before, last = trajectory.turns
    return trajectory.replace(
        turns=(*before, replace(last, info={**last.info, "search": asdict(counts)}))
    )


async def fetch_opening(env: EnvHandle, track_wait: WaitTracker) -> Opening:
    """The opening of a task."""
    with track_wait(0, env.location):
        opening, info = await env.reset()
    if info.get("tools"):
        raise UserError("best-first search shows no tools: give it an environment without them")
    return opening


def prompt_for_turns(agent: Agent, opening: Opening, turns: Sequence[Turn]) -> TokenIds:
    """The prompt that an episode has after these turns."""
    builder = PromptBuilder(agent, opening)
    for i, turn in enumerate(turns):
        builder.action_prompt(turns[:i])
        builder.add_call(turn.calls[-1], turn.action)
    return builder.text_prompt(turns)


@dataclass
class _Search:
    """One search."""

    config: BestFirstSearch
    runtime: Runtime
    task: Task
    opening: Opening
    key: RandomKey
    counts: SearchCounts = field(default_factory=SearchCounts)

    @property
    def agent(self) -> Agent:
        return self.runtime.agents[self.config.agent].for_task(self.task.name)

    async def run(self) -> Trajectory | None:
        """The accepted path, or a trajectory without turns; None where the engine timed out."""
        turns: tuple[Turn, ...] = ()
        try:
            async with asyncio.timeout(self.runtime.timeouts.episode) as clock:
                turns = await self._find_proof_turns()
        except EnvironmentFailure as failure:
            self.runtime.failures.add(failure, self.task)
            return None
        except TimeoutError:
            if not clock.expired():
                raise
        if turns:
            turns = tuple(replace(turn, info={**turn.info, "weight": 1.0}) for turn in turns)
        path = Trajectory(
            opening=self.opening,
            turns=turns,
            task=self.task.name,
            group=self.task.group,
            seed=self.task.seed,
            agent=self.agent.name,
            success=bool(turns),
            stop_reason="terminated" if turns and turns[-1].terminated else "turns",
        )
        return _with_search_counts(path, self.counts)

    async def _find_proof_turns(self) -> tuple[Turn, ...]:
        config, counter = self.config, itertools.count()  # the older of equally likely states first
        power, agent = config.length_power, self.agent
        root = SearchNode((), prompt_for_turns(agent, self.opening, ()), 0.0)
        known_states = {root.prompt.tobytes()}
        heap = [(0.0, next(counter), root)] if root.action_budget(agent) > 0 else []
        while heap and self.counts.expansions < config.max_expansions:
            _, _, node = heapq.heappop(heap)
            node, children, proofs = await self._expand(node)
            if proofs:
                return max(proofs, key=lambda proof: proof.score(power)).turns
            if config.reopen_states:
                heapq.heappush(heap, (-node.score(power), next(counter), node))
            for child in children:
                state = child.prompt.tobytes()
                if state in known_states:
                    self.counts.duplicates += 1
                elif child.action_budget(agent) > 0:
                    known_states.add(state)
                    heapq.heappush(heap, (-child.score(power), next(counter), child))
        return ()

    async def _expand(
        self, node: SearchNode
    ) -> tuple[SearchNode, list[SearchNode], list[SearchNode]]:
        """The node with its tried actions, its new child states, and those that end in success."""
        actions = await self._sample_actions(node)
        results = await asyncio.gather(
            *(self._try_action(node, action) for _, action in actions.values())
        )
        logps = {
            text: float(call.sampler_logp.astype(float).sum())
            for text, (call, _) in actions.items()
        }
        children, proofs = [], []
        for (text, (call, action)), result in zip(actions.items(), results):
            if result is None:
                self.counts.failed += 1
                continue
            (observation, reward, terminated, truncated, info), time = result
            rewards = info.pop("rewards", {"task": reward})
            outcome = observation, reward, rewards, terminated, truncated, info
            turns = (*node.turns, Turn((call,), action, *outcome, time=time))
            logp = node.logp + logps[text]
            if terminated and info.get("success") is None:
                raise UserError(
                    f"{self.task.name} does not say whether it was solved: search in an "
                    "environment that does"
                )
            if info.get("success"):
                proofs.append(SearchNode(turns, node.prompt, logp))
            elif terminated or truncated or info.get("legal") is False:
                self.counts.refused += 1
            else:
                prompt = prompt_for_turns(self.agent, self.opening, turns)
                children.append(SearchNode(turns, prompt, logp))
        expanded = replace(node, tried_actions={**node.tried_actions, **logps})
        return expanded, children, proofs

    async def _sample_actions(self, node: SearchNode) -> dict[str, tuple[Call, Message]]:
        """`width` samples of the policy in a state: the new ones among them, by their texts."""
        counts, name, agent = self.counts, self.config.agent, self.agent
        sampling = replace(agent.sampling, budget=node.action_budget(agent))
        runtime = self.runtime.with_agents({name: replace(agent, sampling=sampling)})
        ((*calls,),) = await runtime.sample(
            name, [node.prompt], self.config.width, (*self.key, counts.expansions)
        )
        counts.expansions += 1
        counts.sampled += len(calls)
        actions: dict[str, tuple[Call, Message]] = {}
        for call in calls:
            action = agent.renderer.parse(call.action)
            if not len(call.action):
                counts.failed += 1
            elif action.text in node.tried_actions or action.text in actions:
                counts.duplicates += 1
            else:
                actions[action.text] = (call, action)
        return actions

    async def _try_action(
        self, node: SearchNode, action: Message
    ) -> tuple[StepResult, TurnTime | None] | None:
        """A fresh environment's reply to the action after the node's path, and its time.

        None where it fails at every attempt.
        """

        async def replay_and_step(
            env: EnvHandle, track_wait: WaitTracker
        ) -> tuple[StepResult, TurnTime | None]:
            with track_wait(len(node.turns), env.location):
                is_same = (await env.reset())[0] == self.opening
                for turn in node.turns:
                    observation = (await env.step(turn.action))[0]
                    is_same = is_same and observation == turn.observation
                if not is_same:
                    raise EnvironmentFailure(
                        f"{self.task.environment} is not deterministic under its seed: "
                        "the replay differs",
                        "nonsense",
                    )
                return await env.step(action), env.step_time

        return await self.runtime.with_retries(self.task, 0, replay_and_step)
