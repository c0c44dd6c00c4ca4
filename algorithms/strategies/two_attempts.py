"""`TwoAttempts`: an answer, an instruction to correct it, and another answer (SCoRe, arXiv 2409.12917)."""

from dataclasses import dataclass

from agentrl_jax.algorithms.strategies.staging import Stage, staged
from agentrl_jax.messages import user
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Group, Key, Trajectory
from agentrl_jax.workers import Task

MATHEMATICS = (
    "There might be an error in the solution above because of lack of understanding of the question. "
    "Please correct the error, if any, and rewrite the solution.\n"
)
CODE = (
    "# There might be an error in the code above because of lack of understanding of the question. "
    "Please correct the error (if any) and rewrite the solution. Only output the final correct Python program!\n"
)


@dataclass
class TwoAttempts:
    """`group_size` episodes of exactly two turns, both scored by the world; between them stands the instruction, and nothing else.

    What the world says to the first attempt is not shown, so that it tells nothing of how good it was. Where the first attempt
    ended the world, a fresh one of the same seed scores the second. The second decides about success. In a world that asks for
    two attempts itself, in the same words, these are plain independent episodes.
    """

    group_size: int = 8
    instruction: str = MATHEMATICS
    agent: str = "policy"

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        return await staged(task, runtime, self.agent, key, self.group_size, self._attempted)

    async def _attempted(self, stage: Stage) -> Trajectory:
        speaker, success = stage.speaker(self.agent, await stage.reset()), None
        over = False
        for attempt in range(2):
            action = await speaker.say() if speaker.stop is None else None
            if action is None:
                break
            if over:
                await stage.reset()
            observation, reward, terminated, truncated, info = await stage.step(attempt, action)
            over, found = terminated or truncated, info.pop("success", None)
            if attempt == 0:
                speaker.hear(action, (user(self.instruction),), reward, False, False, info)
            else:
                success = None if found is None else bool(found)
                speaker.hear(action, observation, reward, True, False, info if found is None else {**info, "success": found})
        return stage.trajectory(speaker, success)
