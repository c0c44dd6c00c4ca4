"""One episode of a multi-agent environment, which names the player that acts next."""

from collections.abc import Mapping
from typing import Any

from agentrl_jax.engine import Engine
from agentrl_jax.errors import EnvironmentFailure
from agentrl_jax.invariants import Invariants
from agentrl_jax.messages import Message, assistant
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.agent_session import (
    AgentSession,
    EpisodeStart,
    NoteWriter,
    WaitTracker,
    untracked_wait,
)
from agentrl_jax.rollout.episode import session_trajectory
from agentrl_jax.trajectories import Episode, RandomKey, TurnTime
from agentrl_jax.workers.pool import EnvHandle

EMPTY_ACTION = assistant("")  # of a player that its limits have stopped, or whose game is over


async def play_match(
    env: EnvHandle,
    agents: Mapping[int, Agent],
    engines: Mapping[str, Engine],
    key: RandomKey,
    sample: int = 0,
    track_wait: WaitTracker = untracked_wait,
    write_note: NoteWriter | None = None,
    invariants: Invariants | None = None,
) -> Episode:
    """Play one episode with an agent for each player.

    The environment names in `info["seat"]` (0 where it does not) the player that each reply is for.
    After its limits have stopped it, a player's actions are empty, and the game moves for it.

    Args:
        env: A fresh environment instance.
        agents: By player index.
        engines: By name.
        key: (run, step, task, sample).
        sample: The episode's index in its group.
        track_wait: Reports waits to the watchdog.
        write_note: Answers a context's requests to other models than the agent's.
        invariants: That the engines' answers are checked by.

    Raises EnvironmentFailure where the environment fails, names a player without an agent, or a
    call or a reply exceeds its timeout.
    """
    sessions: dict[int, AgentSession] = {}
    last_actions: dict[int, Message] = {}
    step_times: dict[int, TurnTime | None] = {}  # of the last actions
    with track_wait(0, env.location):
        messages, info = await env.reset()
    tools = EpisodeStart.of_reset(messages, info).tools
    reward, terminated, truncated = 0.0, False, False
    try:
        while True:
            player = _next_player(info, agents)
            session = sessions.get(player)
            if session is None:
                agent = agents[player].for_task(env.task.name)
                engine, seconds = engines[agent.engine], env.timeouts.turn
                start = EpisodeStart(messages, tools, player)
                session = AgentSession(
                    agent, engine, key, start, seconds, track_wait, write_note, invariants
                )
                sessions[player] = session
                if terminated or truncated:
                    session.stop_reason = "terminated" if terminated else "truncated"
            elif session.stop_reason is None:
                outcome = messages, reward, terminated, truncated, info
                session.observe(last_actions[player], *outcome, time=step_times[player])
            next_action = await session.act() if session.stop_reason is None else None
            if len(sessions) == len(agents) and all(s.stop_reason for s in sessions.values()):
                break
            last_actions[player] = EMPTY_ACTION if next_action is None else next_action
            with track_wait(len(session.turns), env.location):
                step_result = await env.step(last_actions[player])
            step_times[player] = env.step_time
            messages, reward, terminated, truncated, info = step_result
    finally:
        for session in sessions.values():
            session.close()
    trajectories = [
        session_trajectory(env, session, sample) for _, session in sorted(sessions.items())
    ]
    return Episode(env.task.seed, tuple(trajectories))


def _next_player(info: Mapping[str, Any], agents: Mapping[int, Agent]) -> int:
    """The player that an environment's reply is for. Raises EnvironmentFailure if none plays it."""
    player = info.get("seat", 0)
    if player not in agents:
        raise EnvironmentFailure(
            f"the environment replies to player {player}, which no agent plays", "nonsense"
        )
    return player
