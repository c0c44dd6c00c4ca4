"""`Branching`: more episodes where the policy is uncertain after a tool's answer (ARPO, arXiv 2507.19849; AEPO, 2510.14545)."""

import asyncio
from dataclasses import dataclass, field

import numpy as np

from agentrl_jax.algorithms.strategies.holding import Held
from agentrl_jax.algorithms.strategies.uncertainty import Rule, Split, Uncertain, segment_entropy
from agentrl_jax.episodes import Prefix
from agentrl_jax.errors import UserError
from agentrl_jax.keys import chance_of
from agentrl_jax.messages import Message
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Speaker
from agentrl_jax.trajectories import Group, Key, Trajectory, Turn
from agentrl_jax.workers import Task


@dataclass
class Branching:
    """A tree of episodes with exactly `group_size` leaves.

    `first` episodes start at the root (ARPO: half of them; with `Split` a probe decides, which is one of them). Turn by turn, and
    within a turn from the first episode to the last, the entropy of the first `tokens` tokens after the world's answer is
    compared with that of the episode's first ones; where the `rule` says so, others go on from the same answer with other random
    numbers, at most `beam` - 1 at a time, until there are `group_size`. What is missing when all have ended starts at the root.

    No episode waits for another: a turn is decided once all have played it, and branches start from what was recorded. So the
    tree follows from the key alone. A branch counts from its first own turn (`branch_turn`); the turns before are its parent's,
    the calls shared by id (hard attribution: `transforms.PrefixMean`).
    """

    vocabulary: int  # tokens of it, whose logarithm is the largest entropy
    group_size: int = 16
    first: int | Split = 8
    rule: Rule = field(default_factory=Uncertain)
    beam: int = 2
    tokens: int = 20
    agent: str = "policy"

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        if min(self.group_size, self.beam, self.tokens) < 1 or self.vocabulary < 2 or (isinstance(self.first, int) and self.first < 1):
            raise UserError(f"branching needs group_size, first, beam and tokens >= 1 and a vocabulary: {self}")
        with Held(runtime.engines[runtime.agents[self.agent].engine]) as held:
            return await _Tree(self, task, runtime, key, held).grown()


@dataclass(eq=False)
class _Chain:
    """An episode of the tree."""

    sample: int
    parent: int | None = None
    born: int | None = None  # turns that it shares with its parent
    opening: tuple[Message, ...] = ()
    turns: tuple[Turn, ...] = ()  # played so far; a retry goes on from them
    in_a_row: int = 0  # branches
    ended: bool = False
    trajectory: Trajectory | None = None  # None: not there yet, or given up

    @property
    def prefix(self) -> Prefix | None:
        return Prefix(self.opening, self.turns, self.sample) if self.turns else None


class _Tree:
    """The episodes of one group and who decides about them."""

    def __init__(self, settings: Branching, task: Task, runtime: Runtime, key: Key, held: Held) -> None:
        self._settings, self._task, self._runtime, self._key, self._held = settings, task, runtime, key, held
        self._chains: list[_Chain] = []
        self._playing: set[asyncio.Task[None]] = set()
        self._turn = 0  # the next one to be decided; 0: none

    async def grown(self) -> Group:
        s = self._settings
        try:
            first = s.first
            if isinstance(first, Split):
                probe = self._start(_Chain(0))
                await self._all_ended()
                first = first(s.group_size, *self._probed(probe))
            self._fill(first)
            self._turn = 1
            self._decide()
            await self._all_ended()
            self._turn = 0
            self._fill(s.group_size)
            await self._all_ended()
        finally:
            for one in self._playing:
                one.cancel()
            await asyncio.gather(*self._playing, return_exceptions=True)
        done = tuple(chain.trajectory for chain in self._chains if chain.trajectory is not None)
        return Group(self._task.name, done, dropped=len(self._chains) - len(done))

    def _fill(self, count: int) -> None:
        """Episodes from the root until there are so many, of all."""
        while len(self._chains) < min(count, self._settings.group_size):
            self._start(_Chain(len(self._chains)))

    def _start(self, chain: _Chain) -> _Chain:
        self._chains.append(chain)
        self._playing.add(asyncio.ensure_future(self._play(chain)))
        return chain

    async def _play(self, chain: _Chain) -> None:
        async def after(speaker: Speaker) -> None:
            if len(speaker.turns) > len(chain.turns):
                chain.opening, chain.turns = speaker.opening, tuple(speaker.turns)
            if self._room:
                await self._held(speaker)
            self._decide()

        trajectory = await self._runtime.episode(self._task, self._settings.agent, self._key, chain.sample, lambda: chain.prefix, after)
        chain.trajectory = trajectory and trajectory.replace(parent=chain.parent, branch_turn=chain.born)
        chain.ended = True
        self._decide()

    async def _all_ended(self) -> None:
        """Until nobody plays. Raises what an episode raised."""
        while self._playing:
            done, _ = await asyncio.wait(tuple(self._playing), return_when=asyncio.FIRST_COMPLETED)
            self._playing -= done
            for one in done:
                one.result()

    @property
    def _room(self) -> bool:
        return len(self._chains) < self._settings.group_size

    def _decide(self) -> None:
        """Decide all turns that everybody has played."""
        while self._turn and self._room:
            on = [chain for chain in self._chains if len(chain.turns) > self._turn]
            if not on or not all(chain.ended for chain in self._chains if chain not in on):
                return
            for chain in on:
                self._decide_on(chain)
            self._turn += 1

    def _decide_on(self, chain: _Chain) -> None:
        """Whether others go on after the world's answer to the chain's turn before `self._turn`, given what it wrote then."""
        s, turn = self._settings, self._turn
        more = self._entropy(chain, turn) - self._entropy(chain, 0)
        for other in range(s.beam - 1):
            if not self._room:
                return
            if s.rule(chance_of(*self._key, chain.sample, turn, other), more, chain.in_a_row):
                chain.in_a_row += 1
                sample, shared = len(self._chains), chain.turns[:turn]
                self._start(_Chain(sample, chain.sample, turn, chain.opening, shared, chain.in_a_row))
            else:
                chain.in_a_row = 0

    def _entropy(self, chain: _Chain, turn: int) -> float:
        return segment_entropy(chain.turns[turn].calls[0], self._settings.tokens, self._settings.vocabulary)

    def _probed(self, probe: _Chain) -> tuple[float, float]:
        """The entropy at the root and the mean one after the world's answers; equal where there was none."""
        if len(probe.turns) < 2:
            return 0.0, 0.0
        root, *later = (self._entropy(probe, turn) for turn in range(len(probe.turns)))
        return root, float(np.mean(later))
