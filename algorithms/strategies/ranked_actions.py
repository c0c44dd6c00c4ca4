"""`RankedActions`: episodes of the best of the environment's named actions.

LMRL-Gym (arXiv 2311.18232).
"""

import asyncio
import dataclasses
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.offline.action_ranking import (
    ActionRanker,
    RankingRequest,
    TokenScoreBuilder,
    log_likelihood,
)
from agentrl_jax.engine import PromptImage
from agentrl_jax.errors import UserError
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.messages import assistant
from agentrl_jax.policy import Params, Policy
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.agent_session import WaitTracker
from agentrl_jax.rollout.episode import play_episode
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import RolloutPiece, gather_group
from agentrl_jax.training.config import RunContext
from agentrl_jax.trajectories import Call, Group, RandomKey, Sampling, Trajectory
from agentrl_jax.workers.pool import EnvHandle, Task


@dataclass
class RankedActions(RolloutPiece):
    """`group_size` episodes in which each turn is the action with the highest score.

    The score is the sum of `score` over the action's tokens; the environment names the actions
    (`Environment.actions`). At temperature T an action is drawn by softmax(scores / T); at 0 it is
    the best, of equals the first named. A call's source is "ranked", its log-probs are those of
    this choice. An episode ends where a limit leaves no room for the chosen action: it is not cut.
    """

    score: TokenScoreBuilder = log_likelihood
    temperature: float | None = None  # None: that of the agent's sampling
    group_size: int = 1
    agent: str = "policy"
    max_action_tokens: int = 16  # with the stop token
    actions_per_row: int = 8  # actions that share one pass over their prompt

    def __post_init__(self) -> None:
        if min(self.max_action_tokens, self.actions_per_row) < 1:
            raise UserError(f"max_action_tokens and actions_per_row must be at least 1: {self}")
        self._ranker: ActionRanker | None = None

    def set_policy(
        self, policy: Policy, params: Params, engine: EngineConfig, version: int = 0
    ) -> None:
        """Rank by these weights from now on; value heads are included."""
        if self._ranker is None:
            self._ranker = ActionRanker(
                self.score,
                policy,
                engine,
                params,
                version,
                self.max_action_tokens,
                self.actions_per_row,
            )
        else:
            self._ranker.set_weights(params, version)

    def attach(self, run: RunContext) -> None:
        """Follow the weights that are published during the phase."""

        def on_publish(params: Params, version: int, engine: str) -> None:
            if engine == "policy":
                self.set_policy(run.policy, params, run.experiment.engine, version)

        run.runtime.publish_callbacks.append(on_publish)

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        agent, ranker = runtime.agents[self.agent], self._ranker
        if ranker is None:
            raise UserError(
                "ranking needs a policy's weights: use the strategy in a run's phase or "
                "evaluation, or call its set_policy"
            )
        sampling = agent.sampling
        if (sampling.top_k, sampling.top_p, sampling.min_p) != (0, 1.0, 0.0):
            raise UserError(
                "ranking has no top_k, top_p and min_p: leave them off, and set the temperature"
            )
        if self.temperature is not None:
            sampling = dataclasses.replace(sampling, temperature=self.temperature)
            agent = dataclasses.replace(agent, sampling=sampling)

        async def run_sample(sample: int) -> Trajectory | None:
            async def play(env: EnvHandle, track_wait: WaitTracker) -> Trajectory:
                engine = _RankingEngine(ranker, env, agent)
                return await play_episode(
                    env,
                    agent,
                    engine,
                    (*key, sample),
                    sample,
                    track_wait,
                    write_note=runtime.models.write_note,
                )

            return await runtime.run_in_slot(task, agent, sample, play)

        return await gather_group(task, [run_sample(sample) for sample in range(self.group_size)])


def without_action(call: Call) -> Call:
    """The call without any token: no action fits into what the agent's limits leave."""
    return dataclasses.replace(
        call,
        action=call.action[:0],
        sampler_logp=call.sampler_logp[:0],
        version=call.version[:0],
        finish_reason="budget",
    )


@dataclass(frozen=True, eq=False)
class _RankingEngine:
    """Implements `Engine` for one episode: the ranker's choice among the environment's actions."""

    ranker: ActionRanker
    env: EnvHandle
    agent: Agent
    num_slots: int = 1
    positions: int = 2**31 - 1  # the ranker's own engine bounds them

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Sequence[PromptImage] = (),
    ) -> "Future[Call]":
        if images:
            raise UserError("actions are ranked without images: leave ranking off")
        return asyncio.run_coroutine_threadsafe(
            self._choose_action(ids, sampling, key, parent), asyncio.get_running_loop()
        )

    async def _choose_action(
        self, ids: np.ndarray, sampling: Sampling, key: RandomKey, parent: Call | None
    ) -> Call:
        texts = await self.env.actions()
        if not texts:
            raise UserError(
                f"{self.env.task.name} names no actions to rank: let its environment define "
                "actions, or leave ranking off"
            )
        actions = [self.agent.renderer.action_ids(assistant(text)) for text in texts]
        if (longest := max(map(len, actions))) > (budget := self.agent.sampling.budget):
            raise UserError(
                f"an action of {self.env.task.name} has {longest} tokens, an agent's budget is "
                f"{budget}: raise it"
            )
        call = await asyncio.wrap_future(
            self.ranker.submit(RankingRequest(ids, actions, sampling, key, parent))
        )
        return call if len(call.action) <= sampling.budget else without_action(call)

    def release(self, call: Call) -> None: ...

    def publish(self, params: Params, version: int, recompute: bool = False) -> None: ...

    def close(self) -> None: ...
