"""One episode of one seat: prompt, call, parse, step, until the world or a limit ends it."""

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.context import ContextManager
from agentrl_jax.engine import Engine
from agentrl_jax.messages import Message
from agentrl_jax.rendering import Ids, Renderer
from agentrl_jax.trajectories import Call, Key, Sampling, StopReason, Trajectory, Turn
from agentrl_jax.workers import Task, World


@dataclass(frozen=True)
class Agent:
    """A seat's player: how it reads and writes, what it remembers, and which engine samples for it."""

    name: str
    renderer: Renderer
    context: ContextManager
    sampling: Sampling
    engine: str = "policy"
    trainable: bool = True

    def __post_init__(self) -> None:
        if not self.sampling.stop_ids:
            object.__setattr__(self, "sampling", dataclasses.replace(self.sampling, stop_ids=self.renderer.stop_ids))


class Prompter:
    """Makes each next prompt: the last call's ids plus a bridge where the view only grew, rendered anew elsewhere."""

    def __init__(self, agent: Agent, opening: Sequence[Message]) -> None:
        self._agent, self._opening = agent, opening
        self._view: list[Message] = []
        self._call: Call | None = None

    def next(self, turns: Sequence[Turn]) -> tuple[Ids, Call | None]:
        """The prompt, and the call that it extends (or None)."""
        view = list(self._agent.context.view(self._opening, turns))
        before, self._view = self._view, view
        if self._call is not None and turns:
            new = turns[-1].observation
            if view == [*before, turns[-1].action, *new]:
                bridge = self._agent.renderer.bridge(self._call, [*before, turns[-1].action], new)
                if bridge is not None:
                    return np.concatenate([self._call.prompt, self._call.action, bridge]), self._call
        return self._agent.renderer.render(view).ids, None

    def called(self, call: Call) -> None:
        self._call = call


async def play(world: World, task: Task, agent: Agent, engine: Engine, key: Key, sample: int = 0, seat: int = 0) -> Trajectory:
    """Play one episode; `key` is (run, step, task, sample). Raises EnvironmentFailure where the world fails."""
    opening, _ = await world.reset()
    prompter, turns = Prompter(agent, opening), []
    call: Call | None = None
    stop: StopReason = "context"
    try:
        while True:
            ids, parent = prompter.next(turns)
            if call is not None and parent is None:
                engine.release(call)
            call = await asyncio.wrap_future(engine.submit(ids, agent.sampling, (*key, seat, len(turns)), parent))
            if len(call.action) == 0:  # the context is full
                break
            prompter.called(call)
            action = agent.renderer.parse(call.action)
            observation, reward, terminated, truncated, info = await world.step(action)
            rewards = info.pop("rewards", {"task": reward})
            turns.append(Turn((call,), action, observation, reward, rewards, terminated, truncated, info))
            if terminated or truncated:
                stop = "terminated" if terminated else "truncated"
                break
    finally:
        if call is not None:
            engine.release(call)
    return Trajectory(
        opening, tuple(turns), task.name, task.group, sample, seat, task.seed, agent.name,
        success=turns[-1].info.get("success") if turns else None, stop_reason=stop,
    )  # fmt: skip


async def watch(world: World, task: Task, player: str, seed: int, sample: int = 0) -> Trajectory:
    """An episode of a scripted player: messages and rewards, no calls."""
    opening, _ = await world.reset()
    turns = []
    for action, (observation, reward, terminated, truncated, info) in await world.play(player, seed):
        rewards = info.pop("rewards", {"task": reward})
        turns.append(Turn((), Message("assistant", action), observation, reward, rewards, terminated, truncated, info))
    stop: StopReason = "terminated" if turns[-1].terminated else "truncated"
    return Trajectory(
        opening, tuple(turns), task.name, task.group, sample, 0, task.seed, player, success=turns[-1].info.get("success"), stop_reason=stop
    )


def scripted_calls(trajectory: Trajectory, agent: Agent) -> Trajectory:
    """The same trajectory with a `Call` per turn, as if the policy had written it (source: demonstration).

    The ids come from the same prompts and bridges as sampled ones, so demonstrations and samples never differ in form.
    """
    prompter, turns = Prompter(agent, trajectory.opening), []
    sampling = dataclasses.replace(agent.sampling, temperature=1.0)  # likelihoods of demonstrations are not tempered
    for turn in trajectory.turns:
        ids, parent = prompter.next(turns)
        action = agent.renderer.action_ids(turn.action)
        call = Call(
            prompt=ids, action=action, sampler_logp=np.zeros(len(action), np.float32), version=np.full(len(action), -1, np.int32),
            sampling=sampling, finish_reason="stop", source="demonstration", parent=parent,
        )  # fmt: skip
        prompter.called(call)
        turns.append(dataclasses.replace(turn, calls=(call,)))
    return trajectory.replace(turns=tuple(turns))
