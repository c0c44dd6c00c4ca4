"""`TwoAttempts`: an answer, an instruction to correct it, and another answer (SCoRe, arXiv 2409.12917)."""

from dataclasses import dataclass

from agentrl_jax.algorithms.strategies.staging import Stage, staged
from agentrl_jax.errors import UserError
from agentrl_jax.keys import chance_of
from agentrl_jax.messages import user
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Group, Key, Trajectory
from agentrl_jax.workers import Task

LENT = -3  # in the place of a turn, in the key of who makes the first attempt
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

    In a `share` of the episodes, drawn by their keys, the first attempt is that of the agent `base`, who is not trained (WithFrozen): a
    call whose source is "patch", to be masked (`masks.Sources`). The paper has some from its base model and does not say how many.
    """

    group_size: int = 8
    instruction: str = MATHEMATICS
    agent: str = "policy"
    base: str = ""
    share: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or (self.share > 0 and not self.base):
            raise UserError(f"the share of first attempts that another agent makes is from 0 to 1, and above 0 it needs a base: {self}")

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        return await staged(task, runtime, self.agent, key, self.group_size, self._attempted)

    async def _attempted(self, stage: Stage) -> Trajectory:
        opening, success, over = await stage.reset(), None, False
        speaker = stage.speaker(self.agent, opening)
        if chance_of(*stage.key, LENT) < self.share:
            base = stage.speaker(self.base, opening)
            if await base.say() is not None:
                speaker.lend(base.calls[-1])
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
