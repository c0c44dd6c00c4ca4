"""`Ranked`: an agent that plays the best of the actions which its world names, and writes none of its own (LMRL-Gym, arXiv 2311.18232)."""

import asyncio
import dataclasses
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.ranking import Choice, Ranker, Score, likelihood
from agentrl_jax.engine import Image
from agentrl_jax.episodes import play
from agentrl_jax.errors import UserError
from agentrl_jax.local_engine import EngineConfig
from agentrl_jax.messages import assistant
from agentrl_jax.policy import Params, Policy
from agentrl_jax.rendering import Renderer
from agentrl_jax.run import Run
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Watch
from agentrl_jax.strategies import gathered
from agentrl_jax.trajectories import Call, Group, Key, Sampling, Trajectory
from agentrl_jax.workers import Task, World


@dataclass
class Ranked:
    """`group_size` episodes in which each turn is the action with the highest score, the sum of `score` over its tokens.

    Its world names the actions (`Environment.actions`). At temperature T one is drawn by softmax(scores / T); at 0 it is the best, of
    equals the first named. A call's source is "ranked", its log-probs are those of this choice.
    """

    score: Score = likelihood
    temperature: float | None = None  # None: that of the agent's sampling
    group_size: int = 1
    agent: str = "policy"
    longest: int = 16  # tokens of an action, with its end
    together: int = 8  # actions beside each other after one reading of their prompt

    def __post_init__(self) -> None:
        if min(self.longest, self.together) < 1:
            raise UserError(f"ranking needs longest and together of at least 1: {self}")
        self._ranker: Ranker | None = None

    def hold(self, policy: Policy, params: Params, engine: EngineConfig, version: int = 0) -> None:
        """Rank by these weights from now on: all of them, and not only those that an engine samples with."""
        if self._ranker is None:
            self._ranker = Ranker(self.score, policy, engine, params, version, self.longest, self.together)
        else:
            self._ranker.hold(params, version)

    def join(self, run: Run) -> None:
        """Follow the weights that are published while a phase is trained on such episodes."""

        def follow(params: Params, version: int, engine: str) -> None:
            if engine == "policy":
                self.hold(run.policy, params, run.experiment.engine, version)

        run.runtime.followers.append(follow)

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        who, ranker = runtime.agents[self.agent], self._ranker
        if ranker is None:
            raise UserError("ranking needs a policy's weights: let a run's phase or evaluation have the strategy, or call its hold")
        if (who.sampling.top_k, who.sampling.top_p, who.sampling.min_p) != (0, 1.0, 0.0):
            raise UserError("ranking knows no top_k, top_p and min_p: leave them off, and set the temperature")
        if self.temperature is not None:
            who = dataclasses.replace(who, sampling=dataclasses.replace(who.sampling, temperature=self.temperature))

        async def one(sample: int) -> Trajectory | None:
            async def act(world: World, watch: Watch) -> Trajectory:
                return await play(world, who, _Chooser(ranker, world, who.renderer), (*key, sample), sample, watch)

            return await runtime.driven(task, who, sample, act)

        return await gathered(task, [one(sample) for sample in range(self.group_size)])


@dataclass(frozen=True, eq=False)
class _Chooser:
    """Implements `Engine` for one episode: of the actions that its world names, the ranker's choice."""

    ranker: Ranker
    world: World
    renderer: Renderer
    places: int = 1

    def submit(
        self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None = None, images: Sequence[Image] = ()
    ) -> "Future[Call]":
        return asyncio.run_coroutine_threadsafe(self._chosen(ids, sampling, key, parent), asyncio.get_running_loop())

    async def _chosen(self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None) -> Call:
        texts = await self.world.actions()
        if not texts:
            raise UserError(f"{self.world.task.name} names no actions to rank: let its environment define actions, or leave ranking off")
        actions = [self.renderer.action_ids(assistant(text)) for text in texts]
        if (longest := max(map(len, actions))) > sampling.budget:
            raise UserError(f"an action of {self.world.task.name} has {longest} tokens, an agent's budget is {sampling.budget}: raise it")
        return await asyncio.wrap_future(self.ranker.choose(Choice(ids, actions, sampling, key, parent)))

    def release(self, call: Call) -> None: ...

    def publish(self, params: Params, version: int, recompute: bool = False) -> None: ...

    def close(self) -> None: ...
