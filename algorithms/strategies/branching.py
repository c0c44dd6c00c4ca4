"""`BranchingRollouts`: episodes branch where the policy is uncertain after a tool's answer.

ARPO (arXiv 2507.19849); AEPO (arXiv 2510.14545).
"""

import asyncio
from dataclasses import dataclass, field

import numpy as np

from agentrl_jax.algorithms.strategies.prefix_cache_lease import PrefixCacheLease
from agentrl_jax.algorithms.strategies.uncertainty import (
    AEPOInitialRollouts,
    ARPOBranchRule,
    BranchRule,
    segment_entropy,
)
from agentrl_jax.errors import UserError
from agentrl_jax.keys import uniform_of
from agentrl_jax.messages import Message
from agentrl_jax.rollout.agent_session import AgentSession
from agentrl_jax.rollout.episode import Prefix
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, RandomKey, Trajectory, Turn
from agentrl_jax.workers.pool import Task


@dataclass
class BranchingRollouts:
    """A tree of episodes with exactly `group_size` leaves.

    `initial_rollouts` episodes start at the root (ARPO: half of the group; with
    `AEPOInitialRollouts` a probe, which is one of them, decides). Turn by turn, and within a turn
    from the first episode to the last, the entropy of the first `entropy_tokens` tokens after the
    environment's reply is compared with that of the episode's first ones; where `branch_rule`
    holds, new episodes branch off after the same reply with other random numbers, at most `beam` -
    1 at a time, until there are `group_size`. Missing leaves, once all episodes have ended, start
    at the root.

    No episode waits for another: the branches of a turn are decided once all episodes have played
    it, and they start from the recorded turns. So the tree follows from the key alone. A branch's
    own turns start at `branch_turn`; the turns before are its parent's, with calls shared by id
    (hard attribution: `transforms.PrefixMean`).
    """

    vocab_size: int  # its logarithm is the largest entropy
    group_size: int = 16
    initial_rollouts: int | AEPOInitialRollouts = 8
    branch_rule: BranchRule = field(default_factory=ARPOBranchRule)
    beam: int = 2
    entropy_tokens: int = 20
    agent: str = "policy"

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        if (
            min(self.group_size, self.beam, self.entropy_tokens) < 1
            or self.vocab_size < 2
            or (isinstance(self.initial_rollouts, int) and self.initial_rollouts < 1)
        ):
            raise UserError(
                "branching needs group_size, initial_rollouts, beam and entropy_tokens >= 1 and a "
                f"vocabulary: {self}"
            )
        with PrefixCacheLease(runtime.engines[runtime.agents[self.agent].engine]) as cache_lease:
            return await _RolloutTree(self, task, runtime, key, cache_lease).collect()


@dataclass(eq=False)
class _Branch:
    """An episode of the tree."""

    sample: int
    parent: int | None = None
    branch_turn: int | None = None  # number of turns shared with the parent
    opening: tuple[Message, ...] = ()
    turns: tuple[Turn, ...] = ()  # so far; a retry continues from them
    consecutive_branches: int = 0
    is_finished: bool = False
    trajectory: Trajectory | None = None  # None: not finished, or dropped

    @property
    def prefix(self) -> Prefix | None:
        return Prefix(self.opening, self.turns, self.sample) if self.turns else None


class _RolloutTree:
    """The episodes of one group and the branching decisions."""

    def __init__(
        self,
        config: BranchingRollouts,
        task: Task,
        runtime: Runtime,
        key: RandomKey,
        cache_lease: PrefixCacheLease,
    ) -> None:
        self._config, self._task, self._runtime, self._key = config, task, runtime, key
        self._cache_lease = cache_lease
        self._branches: list[_Branch] = []
        self._episode_tasks: set[asyncio.Task[None]] = set()
        self._next_turn = 0  # the next one whose branches are decided; 0: none

    async def collect(self) -> Group:
        group_size, num_initial = self._config.group_size, self._config.initial_rollouts
        try:
            if isinstance(num_initial, AEPOInitialRollouts):
                probe = self._start(_Branch(0))
                await self._wait_until_finished()
                num_initial = num_initial(group_size, *self._probe_entropies(probe))
            self._start_root_episodes(num_initial)
            self._next_turn = 1
            self._branch_finished_turns()
            await self._wait_until_finished()
            self._next_turn = 0
            self._start_root_episodes(group_size)
            await self._wait_until_finished()
        finally:
            for episode_task in self._episode_tasks:
                episode_task.cancel()
            await asyncio.gather(*self._episode_tasks, return_exceptions=True)
        trajectories = tuple(b.trajectory for b in self._branches if b.trajectory is not None)
        num_dropped = len(self._branches) - len(trajectories)
        return Group(self._task.name, trajectories, num_dropped=num_dropped)

    def _start_root_episodes(self, count: int) -> None:
        """Start episodes at the root until the tree has `count`."""
        while len(self._branches) < min(count, self._config.group_size):
            self._start(_Branch(len(self._branches)))

    def _start(self, branch: _Branch) -> _Branch:
        self._branches.append(branch)
        self._episode_tasks.add(asyncio.ensure_future(self._run_episode(branch)))
        return branch

    async def _run_episode(self, branch: _Branch) -> None:
        async def on_turn(session: AgentSession) -> None:
            if len(session.turns) > len(branch.turns):
                branch.opening, branch.turns = session.opening, tuple(session.turns)
            if self._has_room:
                await self._cache_lease(session)
            self._branch_finished_turns()

        trajectory = await self._runtime.episode(
            self._task, self._config.agent, self._key, branch.sample, lambda: branch.prefix, on_turn
        )
        branch.trajectory = trajectory and trajectory.replace(
            parent=branch.parent, branch_turn=branch.branch_turn
        )
        branch.is_finished = True
        self._branch_finished_turns()

    async def _wait_until_finished(self) -> None:
        """Wait until no episode is running. Raises what an episode raised."""
        while self._episode_tasks:
            done, _ = await asyncio.wait(
                tuple(self._episode_tasks), return_when=asyncio.FIRST_COMPLETED
            )
            self._episode_tasks -= done
            for episode_task in done:
                episode_task.result()

    @property
    def _has_room(self) -> bool:
        return len(self._branches) < self._config.group_size

    def _branch_finished_turns(self) -> None:
        """Branch at all turns that every running episode has played."""
        while self._next_turn and self._has_room:
            longer = [branch for branch in self._branches if len(branch.turns) > self._next_turn]
            shorter = [branch for branch in self._branches if branch not in longer]
            if not longer or not all(branch.is_finished for branch in shorter):
                return
            for branch in longer:
                self._branch_after_turn(branch)
            self._next_turn += 1

    def _branch_after_turn(self, branch: _Branch) -> None:
        """Decide which episodes branch off before the next turn of this one."""
        config, turn = self._config, self._next_turn
        entropy_change = self._turn_entropy(branch, turn) - self._turn_entropy(branch, 0)
        for i in range(config.beam - 1):
            if not self._has_room:
                return
            uniform = uniform_of(*self._key, branch.sample, turn, i)
            if not config.branch_rule(uniform, entropy_change, branch.consecutive_branches):
                branch.consecutive_branches = 0
                continue
            branch.consecutive_branches += 1
            self._start(
                _Branch(
                    sample=len(self._branches),
                    parent=branch.sample,
                    branch_turn=turn,
                    opening=branch.opening,
                    turns=branch.turns[:turn],
                    consecutive_branches=branch.consecutive_branches,
                )
            )

    def _turn_entropy(self, branch: _Branch, turn: int) -> float:
        return segment_entropy(
            branch.turns[turn].calls[0], self._config.entropy_tokens, self._config.vocab_size
        )

    def _probe_entropies(self, branch: _Branch) -> tuple[float, float]:
        """The entropy at the root and the mean one after replies; both 0 without a reply."""
        if len(branch.turns) < 2:
            return 0.0, 0.0
        root, *later = (self._turn_entropy(branch, turn) for turn in range(len(branch.turns)))
        return root, float(np.mean(later))
