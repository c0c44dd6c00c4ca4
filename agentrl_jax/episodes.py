"""One episode of one seat: prompt, call, parse, step, until the world or a limit ends it."""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np

from agentrl_jax.context import ContextManager
from agentrl_jax.deadlines import within
from agentrl_jax.engine import Engine
from agentrl_jax.errors import DeadlineExceeded, UserError
from agentrl_jax.messages import Message
from agentrl_jax.rendering import Ids, Renderer
from agentrl_jax.trajectories import Call, Key, Sampling, StopReason, Trajectory, Turn
from agentrl_jax.workers import World

# Around a wait: given the turn, and what is waited for in words.
Watch = Callable[[int, Callable[[], str]], AbstractContextManager[None]]


def unwatched(turn: int, target: Callable[[], str]) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass
class Limits:
    """Where an agent's episode is cut; 0: nowhere. A turn that a limit cuts short is still played, and none is sampled after it."""

    turns: int = 0  # of an episode
    tokens: int = 0  # that it may sample in an episode
    context: int = 0  # tokens of a prompt with its action

    def check(self) -> "Limits":
        """Raises UserError where a limit is negative."""
        if min(self.turns, self.tokens, self.context) < 0:
            raise UserError(f"limits must be positive, or 0 for none, not {self}")
        return self

    def reached(self, turns: int, tokens: int) -> StopReason | None:
        """Why an episode that came so far ends here."""
        if self.turns and turns >= self.turns:
            return "turns"
        return "tokens" if self.tokens and tokens >= self.tokens else None

    def budget(self, budget: int, tokens: int, prompt: int) -> int:
        """The tokens of a call: its own budget, what the episode has left, what the context has left."""
        left = self.tokens - tokens if self.tokens else budget
        return min(budget, left, self.context - prompt if self.context else budget)


@dataclass(frozen=True)
class Agent:
    """A seat's player: how it reads and writes, what it remembers, and which engine samples for it."""

    name: str
    renderer: Renderer
    context: ContextManager
    sampling: Sampling
    engine: str = "policy"
    trainable: bool = True
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self.limits.check()
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


async def sampled(engine: Engine, ids: Ids, sampling: Sampling, key: Key, parent: Call | None, deadline: float, name: str) -> Call:
    """One call of an engine. Given up, by its deadline or by others, it gives its place back when it ends.

    Raises DeadlineExceeded after `deadline` seconds.
    """
    future = engine.submit(ids, sampling, key, parent)

    def give_back(ended: "Future[Call]") -> None:
        if not ended.cancelled() and ended.exception() is None:
            engine.release(ended.result())

    try:
        async with within(deadline, f"a call of the engine {name!r}"):
            return await asyncio.wrap_future(future)
    except (asyncio.CancelledError, DeadlineExceeded) as error:
        if isinstance(error, DeadlineExceeded) and future.done() and not future.cancelled() and future.exception() is None:
            return future.result()  # it was in time, the event loop was not
        future.add_done_callback(give_back)
        raise


async def play(
    world: World, agent: Agent, engine: Engine, key: Key, sample: int = 0, seat: int = 0, watch: Watch = unwatched
) -> Trajectory:
    """Play one episode; `key` is (run, step, task, sample). Raises EnvironmentFailure where the world fails or anybody is late."""
    with watch(0, world.where):
        opening, _ = await world.reset()
    prompter, turns, tokens = Prompter(agent, opening), [], 0
    call: Call | None = None
    stop: StopReason | None = None
    try:
        while stop is None:
            ids, parent = prompter.next(turns)
            if call is not None and parent is None:
                engine.release(call)
                call = None
            budget = agent.limits.budget(agent.sampling.budget, tokens, len(ids))
            if budget < 1:
                stop = "context"
                break
            sampling = agent.sampling if budget == agent.sampling.budget else dataclasses.replace(agent.sampling, budget=budget)
            with watch(len(turns), lambda: f"the engine {agent.engine!r}"):
                call = await sampled(engine, ids, sampling, (*key, seat, len(turns)), parent, world.deadlines.turn, agent.engine)
            if len(call.action) == 0:
                stop = "context"
                break
            prompter.called(call)
            tokens += len(call.action)
            action = agent.renderer.parse(call.action)
            with watch(len(turns), world.where):
                observation, reward, terminated, truncated, info = await world.step(action)
            rewards = info.pop("rewards", {"task": reward})
            turns.append(Turn((call,), action, observation, reward, rewards, terminated, truncated, info))
            stop = "terminated" if terminated else "truncated" if truncated else agent.limits.reached(len(turns), tokens)
    finally:
        if call is not None:
            engine.release(call)
    return _trajectory(world, opening, turns, sample, seat, agent.name, stop)


async def scripted(world: World, player: str, seed: int, sample: int = 0, watch: Watch = unwatched) -> Trajectory:
    """An episode of a scripted player: messages and rewards, no calls."""
    with watch(0, world.where):
        opening, _ = await world.reset()
        played = await world.play(player, seed)
    turns = []
    for action, (observation, reward, terminated, truncated, info) in played:
        rewards = info.pop("rewards", {"task": reward})
        turns.append(Turn((), Message("assistant", action), observation, reward, rewards, terminated, truncated, info))
    return _trajectory(world, opening, turns, sample, 0, player, "terminated" if turns[-1].terminated else "truncated")


def _trajectory(
    world: World, opening: Sequence[Message], turns: Sequence[Turn], sample: int, seat: int, who: str, stop: StopReason
) -> Trajectory:
    task = world.task
    return Trajectory(
        tuple(opening), tuple(turns), task.name, task.group, sample, seat, task.seed, who,
        success=turns[-1].info.get("success") if turns else None, stop_reason=stop,
    )  # fmt: skip


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
