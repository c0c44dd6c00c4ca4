"""`Stage`: what a strategy needs that drives an episode by itself: its world, and speakers of agents."""

from collections.abc import Awaitable, Callable, Sequence

from agentrl_jax.messages import Message
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Speaker, Watch, sampled
from agentrl_jax.strategies import gathered
from agentrl_jax.trajectories import Group, Key, Trajectory
from agentrl_jax.workers import StepResult, Task, World


class Stage:
    """One attempt at an episode."""

    def __init__(self, runtime: Runtime, world: World, key: Key, sample: int, watch: Watch) -> None:
        """`key` is (run, step, task)."""
        self.world, self.sample, self.key = world, sample, (*key, sample)
        self._runtime, self._watch = runtime, watch
        self._speakers: list[Speaker] = []

    def speaker(self, agent: str, opening: Sequence[Message], seat: int = 0) -> Speaker:
        """A speaker of a named agent."""
        who = self._runtime.agents[agent]
        speaker = Speaker(who, self._runtime.engines[who.engine], self.key, opening, self.world.deadlines.turn, seat, self._watch)
        self._speakers.append(speaker)
        return speaker

    async def aside(self, agent: str, messages: Sequence[Message], turn: int) -> str:
        """What an agent answers to messages, beside the episode: no call of it."""
        who = self._runtime.agents[agent]
        engine, ids = self._runtime.engines[who.engine], who.renderer.render(messages).ids
        with self._watch(turn, lambda: f"the engine {who.engine!r}"):
            call = await sampled(engine, ids, who.sampling, (*self.key, 2, turn), None, self.world.deadlines.turn, who.engine)
        engine.release(call)
        return who.renderer.parse(call.action).text

    async def step(self, turn: int, action: Message) -> StepResult:
        """What the world answers."""
        with self._watch(turn, self.world.where):
            return await self.world.step(action)

    async def reset(self) -> tuple[Message, ...]:
        """The opening of the task's world, from its beginning."""
        with self._watch(0, self.world.where):
            return (await self.world.reset())[0]

    def trajectory(self, speaker: Speaker, success: bool | None) -> Trajectory:
        """What the speaker said and heard."""
        task, stop = self.world.task, speaker.stop
        assert stop is not None
        return Trajectory(
            speaker.opening, tuple(speaker.turns), task.name, task.group, self.sample, speaker.seat, task.seed, speaker.agent.name,
            success=success, stop_reason=stop,
        )  # fmt: skip

    def close(self) -> None:
        for speaker in self._speakers:
            speaker.close()


async def staged(
    task: Task, runtime: Runtime, agent: str, key: Key, group_size: int, act: Callable[[Stage], Awaitable[Trajectory]]
) -> Group:
    """A group of episodes that `act` drives, each in a place of the agent's engine, with the retries and deadlines of any episode."""

    async def one(sample: int) -> Trajectory | None:
        async def drive(world: World, watch: Watch) -> Trajectory:
            stage = Stage(runtime, world, key, sample, watch)
            try:
                return await act(stage)
            finally:
                stage.close()

        return await runtime.driven(task, runtime.agents[agent], sample, drive)

    return await gathered(task, [one(sample) for sample in range(group_size)])
