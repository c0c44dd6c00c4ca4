"""`EpisodeDriver`: an environment instance and agent sessions, for strategies with an own loop."""

from collections.abc import Awaitable, Callable, Sequence

from agentrl_jax.messages import Message, ToolSchema
from agentrl_jax.rollout.agent_session import AgentSession, EpisodeStart, WaitTracker
from agentrl_jax.rollout.episode import session_trajectory
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import gather_group
from agentrl_jax.trajectories import Group, RandomKey, Trajectory
from agentrl_jax.workers.pool import EnvHandle, StepResult, Task


class EpisodeDriver:
    """One attempt at an episode that a strategy steps by itself."""

    def __init__(
        self, runtime: Runtime, env: EnvHandle, key: RandomKey, sample: int, watch: WaitTracker
    ) -> None:
        """`key` is (run, step, task)."""
        self.env, self.sample, self.key = env, sample, (*key, sample)
        self.tools: tuple[ToolSchema, ...] = ()  # that the sessions show; `reset` sets them
        self._runtime, self._track_wait = runtime, watch
        self._sessions: list[AgentSession] = []

    def open_session(
        self, agent: str, opening: Sequence[Message], agent_index: int = 0
    ) -> AgentSession:
        """A session of a named agent, closed with the driver."""
        player = self._runtime.agents[agent].for_task(self.env.task.name)
        session = AgentSession(
            player,
            self._runtime.engines[player.engine],
            self.key,
            EpisodeStart(tuple(opening), self.tools, agent_index),
            self.env.timeouts.turn,
            self._track_wait,
            self._runtime.models.write_note,
            self._runtime.invariants,
        )
        self._sessions.append(session)
        return session

    async def ask(self, agent: str, messages: Sequence[Message], turn: int) -> str:
        """An agent's answer to messages outside of the episode: it is not a call of a turn."""
        with self._track_wait(turn, lambda: f"the model {agent!r}"):
            return (await self._runtime.models.ask(agent, messages, (*self.key, 2, turn))).text

    async def step(self, turn: int, action: Message) -> StepResult:
        """The environment's reply to an action."""
        with self._track_wait(turn, self.env.location):
            return await self.env.step(action)

    async def reset(self) -> tuple[Message, ...]:
        """The opening of the environment after a reset to the task's seed."""
        with self._track_wait(0, self.env.location):
            opening, info = await self.env.reset()
        self.tools = EpisodeStart.of_reset(opening, info).tools
        return opening

    def trajectory(self, session: AgentSession, success: bool | None) -> Trajectory:
        """The trajectory of a session that has ended."""
        return session_trajectory(self.env, session, self.sample).replace(success=success)

    def close(self) -> None:
        for session in self._sessions:
            session.close()


async def collect_driven_group(
    task: Task,
    runtime: Runtime,
    agent: str,
    key: RandomKey,
    group_size: int,
    drive: Callable[[EpisodeDriver], Awaitable[Trajectory]],
) -> Group:
    """A group of episodes that `drive` plays, each in a slot of the agent's engine.

    They have the retries and timeouts of any episode.
    """

    async def run_sample(sample: int) -> Trajectory | None:
        async def play(env: EnvHandle, track_wait: WaitTracker) -> Trajectory:
            driver = EpisodeDriver(runtime, env, key, sample, track_wait)
            try:
                return await drive(driver)
            finally:
                driver.close()

        return await runtime.run_in_slot(task, runtime.agents[agent], sample, play)

    return await gather_group(task, [run_sample(sample) for sample in range(group_size)])
