"""One episode of one seat: what the agent says, what the world answers, until either ends it."""

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.context import ContextManager, Demonstrable
from agentrl_jax.engine import Engine
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import Message
from agentrl_jax.speaking import Agent, Prompter, Speaker, Watch, unwatched, with_names
from agentrl_jax.trajectories import Call, Key, StopReason, Trajectory, Turn
from agentrl_jax.workers import World

# Told after every turn: it may look, set `speaker.stop`, or start episodes that go on from here. Those must not be waited for.
After = Callable[[Speaker], Awaitable[None]]


@dataclass(frozen=True)
class Prefix:
    """The first turns of an episode, from which others go on: a branch."""

    opening: tuple[Message, ...]
    turns: tuple[Turn, ...]
    sample: int  # the episode that they were played in


async def play(
    world: World,
    agent: Agent,
    engine: Engine,
    key: Key,
    sample: int = 0,
    watch: Watch = unwatched,
    prefix: Prefix | None = None,
    after: After | None = None,
) -> Trajectory:
    """Play one episode; `key` is (run, step, task, sample). With a `prefix` its actions are played again, and then it goes on.

    Raises EnvironmentFailure where the world fails, does not answer a prefix as before, or anybody is late.
    """
    with watch(0, world.where):
        opening, info = await world.reset()
    seat = info.get("seat", 0)
    speaker = Speaker(agent, engine, key, opening, world.deadlines.turn, seat, watch)
    try:
        if prefix is not None:
            await _replayed(world, opening, prefix, watch)
            await speaker.recall(prefix.turns)
        while speaker.stop is None:
            action = await speaker.say()
            if action is None:
                break
            with watch(len(speaker.turns), world.where):
                answer = await world.step(action)
            speaker.hear(action, *answer)
            if after is not None:
                await after(speaker)
    finally:
        speaker.close()
    assert speaker.stop is not None
    trajectory = trajectory_of(world, opening, speaker.turns, sample, agent.name, speaker.stop, seat)
    return trajectory if prefix is None else trajectory.replace(parent=prefix.sample, branch_turn=len(prefix.turns))


async def _replayed(world: World, opening: Sequence[Message], prefix: Prefix, watch: Watch) -> None:
    """Bring a fresh world to the end of the prefix."""
    same = tuple(opening) == prefix.opening
    for i, turn in enumerate(prefix.turns):
        with watch(i, world.where):
            observation, *_ = await world.step(turn.action)
        same = same and observation == turn.observation
    if not same:
        raise EnvironmentFailure("the world is not deterministic under its seed: it answers a branch's first turns otherwise than before")


async def scripted(world: World, player: str, seed: int, sample: int = 0, watch: Watch = unwatched) -> Trajectory:
    """An episode of a scripted player: messages and rewards, no calls."""
    with watch(0, world.where):
        opening, info = await world.reset()
        played = await world.play(player, seed)
    turns, seat = [], info.get("seat", 0)
    for action, (observation, reward, terminated, truncated, info) in played:
        rewards = info.pop("rewards", {"task": reward})
        turns.append(Turn((), Message("assistant", action), observation, reward, rewards, terminated, truncated, info))
    return trajectory_of(world, opening, turns, sample, player, "terminated" if turns[-1].terminated else "truncated", seat)


def trajectory_of(
    world: World, opening: Sequence[Message], turns: Sequence[Turn], sample: int, who: str, stop: StopReason, seat: int
) -> Trajectory:
    """The record of a seat."""
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
        calls: list[Call] = []
        notes: list[Message] = []
        names: list[str] = []
        while True:
            ids, parent, question = prompter.asked(turns, notes)
            note = None if question is None else _shown(agent.context, trajectory.opening, turns, notes, turn.action)
            message = turn.action if note is None else note
            action = agent.renderer.action_ids(message)
            call = Call(
                prompt=ids, action=action, sampler_logp=np.zeros(len(action), np.float32), version=np.full(len(action), -1, np.int32),
                sampling=sampling, finish_reason="stop", source="demonstration", parent=parent,
            )  # fmt: skip
            prompter.called(call, message)
            calls.append(call)
            if note is None or question is None:
                break
            notes.append(note)
            names.append(question.name)
        turns.append(dataclasses.replace(turn, calls=tuple(calls), notes=tuple(notes), info=with_names(turn.info, names)))
    return trajectory.replace(turns=tuple(turns))


def _shown(
    context: ContextManager, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message], action: Message
) -> Message | None:
    if not isinstance(context, Demonstrable):
        raise UserError(f"{type(context).__name__} asks for notes, and cannot say what demonstrations answer: give it a `shown` method")
    return context.shown(opening, turns, notes, action)
