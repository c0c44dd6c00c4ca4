"""One episode of one agent, or of a scripted policy."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from agentrl_jax.engine import Engine
from agentrl_jax.errors import EnvironmentFailure
from agentrl_jax.invariants import Invariants
from agentrl_jax.messages import Message
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.agent_session import (
    AgentSession,
    EpisodeStart,
    NoteWriter,
    WaitTracker,
    untracked_wait,
)
from agentrl_jax.trajectories import RandomKey, StopReason, Trajectory, Turn
from agentrl_jax.workers.pool import EnvHandle, StepResult

# Called after every turn. It may read the session, set its `stop_reason`, or start episodes that
# branch off here; it must not wait for those.
TurnCallback = Callable[[AgentSession], Awaitable[None]]


@dataclass(frozen=True)
class Prefix:
    """The first turns of an episode, from which a branch continues."""

    opening: tuple[Message, ...]
    turns: tuple[Turn, ...]
    sample: int  # of the episode that the turns are from


async def play_episode(
    env: EnvHandle,
    agent: Agent,
    engine: Engine,
    key: RandomKey,
    sample: int = 0,
    track_wait: WaitTracker = untracked_wait,
    prefix: Prefix | None = None,
    on_turn: TurnCallback | None = None,
    write_note: NoteWriter | None = None,
    invariants: Invariants | None = None,
) -> Trajectory:
    """Play one episode.

    Args:
        env: A fresh environment instance.
        agent: The agent that acts.
        engine: Samples its calls.
        key: (run, step, task, sample).
        sample: The episode's index in its group.
        track_wait: Reports waits to the watchdog.
        prefix: Turns whose actions are replayed first.
        on_turn: Called after each turn.
        write_note: Answers a context's requests to other models than the agent's.
        invariants: That the engine's answers are checked by.

    Raises EnvironmentFailure where the environment fails, replies to the prefix in another way than
    before, or a call or a reply exceeds its timeout.
    """
    agent = agent.for_task(env.task.name)
    with track_wait(0, env.location):
        opening, info = await env.reset()
    start = EpisodeStart.of_reset(opening, info)
    session = AgentSession(
        agent, engine, key, start, env.timeouts.turn, track_wait, write_note, invariants
    )
    try:
        if prefix is not None:
            await _replay_prefix(env, opening, prefix, track_wait)
            await session.replay_turns(prefix.turns)
        while session.stop_reason is None:
            action = await session.act()
            if action is None:
                break
            with track_wait(len(session.turns), env.location):
                step_result = await env.step(action)
            session.observe(action, *step_result, time=env.step_time)
            if on_turn is not None:
                await on_turn(session)
    finally:
        session.close()
    trajectory = session_trajectory(env, session, sample)
    if prefix is None:
        return trajectory
    return trajectory.replace(parent=prefix.sample, branch_turn=len(prefix.turns))


async def _replay_prefix(
    env: EnvHandle, opening: Sequence[Message], prefix: Prefix, track_wait: WaitTracker
) -> None:
    """Bring a fresh environment instance to the end of the prefix."""
    is_same = tuple(opening) == prefix.opening
    for i, turn in enumerate(prefix.turns):
        with track_wait(i, env.location):
            observation, *_ = await env.step(turn.action)
        is_same = is_same and observation == turn.observation
    if not is_same:
        raise EnvironmentFailure(
            "the environment is not deterministic under its seed: it replies to a branch's first "
            "turns in another way than before"
        )


async def play_scripted_episode(
    env: EnvHandle,
    player: str,
    seed: int,
    sample: int = 0,
    track_wait: WaitTracker = untracked_wait,
) -> Trajectory:
    """One episode of a scripted policy of the environment: messages and rewards, no calls."""
    with track_wait(0, env.location):
        opening, info = await env.reset()
        steps = await env.play_scripted(player, seed)
    start = EpisodeStart.of_reset(opening, info)
    return trajectory_of_steps(env, start, steps, sample, player)


def trajectory_of_steps(
    env: EnvHandle,
    start: EpisodeStart,
    steps: Sequence[tuple[Message, StepResult]],
    sample: int,
    agent_name: str,
) -> Trajectory:
    """The trajectory of actions without calls, and the environment's answers up to its end."""
    turns = []
    for action, (observation, reward, terminated, truncated, info) in steps:
        rewards = info.pop("rewards", {"task": reward})
        turns.append(Turn((), action, observation, reward, rewards, terminated, truncated, info))
    stop_reason: StopReason = "terminated" if turns[-1].terminated else "truncated"
    return make_trajectory(env, start, turns, sample, agent_name, stop_reason)


def session_trajectory(env: EnvHandle, session: AgentSession, sample: int) -> Trajectory:
    """The trajectory of a session that has stopped."""
    assert session.stop_reason is not None
    return make_trajectory(
        env, session.start, session.turns, sample, session.agent.name, session.stop_reason
    )


def make_trajectory(
    env: EnvHandle,
    start: EpisodeStart,
    turns: Sequence[Turn],
    sample: int,
    agent_name: str,
    stop_reason: StopReason,
) -> Trajectory:
    """The trajectory of one agent in the environment's task."""
    task = env.task
    return Trajectory(
        opening=start.opening,
        turns=tuple(turns),
        task=task.name,
        group=task.group,
        sample=sample,
        agent_index=start.agent_index,
        seed=task.seed,
        agent=agent_name,
        success=turns[-1].info.get("success") if turns else None,
        stop_reason=stop_reason,
        tools=start.tools,
    )
