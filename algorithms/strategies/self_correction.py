"""`SelfCorrectionRollouts`: an answer, an instruction to correct it, a second answer (SCoRe)."""

from dataclasses import dataclass

from agentrl_jax.algorithms.strategies.episode_driver import EpisodeDriver, collect_driven_group
from agentrl_jax.errors import UserError
from agentrl_jax.keys import uniform_of
from agentrl_jax.messages import user
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, RandomKey, Trajectory
from agentrl_jax.workers.pool import Task

BASE_ATTEMPT_KEY = -3  # in place of a turn, in the key that draws who makes the first attempt
MATH_CORRECTION_PROMPT = (
    "There might be an error in the solution above because of lack of understanding of the "
    "question. Please correct the error, if any, and rewrite the solution.\n"
)
CODE_CORRECTION_PROMPT = (
    "# There might be an error in the code above because of lack of understanding of the "
    "question. Please correct the error (if any) and rewrite the solution. Only output the final "
    "correct Python program!\n"
)


@dataclass
class SelfCorrectionRollouts:
    """`group_size` episodes of two attempts with the instruction between (arXiv 2409.12917).

    The environment scores both attempts. Its reply to the first one is not in the prompt, so that
    it does not reveal how good the attempt was. Where the first attempt ended the environment, a
    fresh instance of the same seed scores the second. Success is that of the second. In an
    environment that asks for two attempts itself, in the same words, these are plain independent
    episodes.

    In a fraction of the episodes, drawn by their keys, the first attempt is that of `base_agent`,
    which is not trained (`FrozenPolicy`): a call whose source is "patch", to be masked
    (`token_masks.OnlySources`). The paper takes some from its base model and does not publish the
    fraction.
    """

    group_size: int = 8
    instruction: str = MATH_CORRECTION_PROMPT
    agent: str = "policy"
    base_agent: str = ""
    base_fraction: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.base_fraction <= 1 or (self.base_fraction > 0 and not self.base_agent):
            raise UserError(
                f"base_fraction must be from 0 to 1, and above 0 it needs a base_agent: {self}"
            )

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        return await collect_driven_group(
            task, runtime, self.agent, key, self.group_size, self._run_episode
        )

    async def _run_episode(self, driver: EpisodeDriver) -> Trajectory:
        opening, success, is_over = await driver.reset(), None, False
        session = driver.open_session(self.agent, opening)
        if uniform_of(*driver.key, BASE_ATTEMPT_KEY) < self.base_fraction:
            base_session = driver.open_session(self.base_agent, opening)
            if await base_session.act() is not None:
                session.inject_call(base_session.current_calls[-1])
        for attempt in range(2):
            action = await session.act() if session.stop_reason is None else None
            if action is None:
                break
            if is_over:
                await driver.reset()
            observation, reward, terminated, truncated, info = await driver.step(attempt, action)
            is_over, env_success = terminated or truncated, info.pop("success", None)
            if attempt == 0:
                question = (user(self.instruction),)
                session.observe(action, question, reward, False, False, info, driver.env.step_time)
                continue
            if env_success is not None:
                success, info = bool(env_success), {**info, "success": env_success}
            session.observe(action, observation, reward, True, False, info, driver.env.step_time)
        return driver.trajectory(session, success)
