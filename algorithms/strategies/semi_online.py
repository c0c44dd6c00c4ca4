"""`SemiOnlineRollouts`: an expert's episode with the policy's own history (UI-S1, 2509.11543)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.strategies.episode_driver import EpisodeDriver, collect_driven_group
from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.messages import Message, assistant, user
from agentrl_jax.rollout.agent_session import AgentSession
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, RandomKey, Trajectory, Turn
from agentrl_jax.workers.pool import Task

ActionTypeFn = Callable[[str], str | None]  # the type of an action; None: not an action


def first_word(action: str) -> str | None:
    """The type of an action such as "find ann"."""
    words = action.split()
    return words[0] if words else None


@dataclass
class ThoughtWriter:
    """Writes the thought before an expert's action: the policy itself, or another agent."""

    agent: str = "policy"
    prompt: str = "The right action is {action}. Why?\n"


@dataclass
class SemiOnlineRollouts:
    """`group_size` walks along the expert's episode.

    An action that matches the expert's gets the reply that the expert's got, and the history holds
    it as it was sampled. At a mismatch the policy's own output is trained and scored. While the
    walk has patches left (`max_patches`), the expert's action replaces it in the history (a call
    whose source is "patch", to be masked with `token_masks.OnlySources`), and the walk continues;
    else it ends there. The published numbers of patches: none, 1 (the paper's last choice), 2 (its
    script), -1 (no limit). Modes of thought: the action only (`thought_writer` None), or a thought
    by the policy or by another agent before it. With `use_policy_history` off the history is always
    the expert's: offline step RL.

    Each turn's info has `step`, `steps` (of the expert), `match`, `formatted` and `patched`; its
    reward is 1 for a match, and an episode that matches all steps succeeds. Only the expert steps
    an environment, with the task's seed, so that its path is always the same.
    """

    group_size: int = 8
    max_patches: int = 1
    action_type: ActionTypeFn = first_word
    thought_end_marker: str = ""  # after the thought before an action; empty: no thoughts
    thought_writer: ThoughtWriter | None = None
    use_policy_history: bool = True
    player: str = "expert"
    agent: str = "policy"

    def __post_init__(self) -> None:
        if self.thought_writer is not None and not self.thought_end_marker:
            raise UserError("a thought before a patch needs a marker that ends it")

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        demonstration = await runtime.scripted_episode(task, self.player, seed_of(task.seed))
        if demonstration is None:
            return Group(task.name, (), num_dropped=self.group_size)

        async def walk(driver: EpisodeDriver) -> Trajectory:
            return await self._run_episode(driver, demonstration)

        return await collect_driven_group(task, runtime, self.agent, key, self.group_size, walk)

    async def _run_episode(self, driver: EpisodeDriver, demonstration: Trajectory) -> Trajectory:
        if demonstration.tools:
            raise UserError(
                "rollouts along an expert's episode compare texts, not tool calls: give them an "
                "environment without tools"
            )
        session = driver.open_session(self.agent, demonstration.opening)
        patches_left, all_match = self.max_patches, True
        num_steps = len(demonstration.turns)
        for step, expert_turn in enumerate(demonstration.turns):
            action = await session.act() if session.stop_reason is None else None
            if action is None:
                break
            match_info = self.match_info(action.text, expert_turn.action.text)
            info = {"step": step, "steps": num_steps, **match_info}
            is_match = match_info["match"] == "exact"
            all_match = all_match and is_match
            if not is_match and patches_left == 0:
                session.observe(action, (), 0.0, False, False, {**info, "patched": False})
                session.stop_reason = "early"
                break
            patch = await self._history_patch(driver, session, expert_turn, is_match)
            if patch is not None:
                patch = session.agent.renderer.as_written(patch)
            is_patched = patch is not None and patch != action
            if patch is not None and is_patched:
                session.replace_action(patch, "patch")
                action = patch
            patches_left -= not is_match
            session.observe(
                action,
                expert_turn.observation,
                float(is_match),
                step + 1 == num_steps,
                False,
                {**info, "patched": is_patched},
            )
        success = all_match and session.stop_reason == "terminated"
        return driver.trajectory(session, success)

    async def _history_patch(
        self, driver: EpisodeDriver, session: AgentSession, expert_turn: Turn, is_match: bool
    ) -> Message | None:
        """The message that replaces the sampled action in the history; None: none does."""
        if is_match and self.use_policy_history:
            return None
        action = self._strip_thought(expert_turn.action.text)
        if self.thought_writer is None:
            return assistant(action)
        view = session.agent.context.view(session.opening, session.turns)
        request = user(self.thought_writer.prompt.format(action=action))
        thought = await driver.ask(self.thought_writer.agent, [*view, request], len(session.turns))
        return assistant(f"{thought}{self.thought_end_marker}{action}")

    def _strip_thought(self, text: str) -> str:
        """A text without its thought."""
        if self.thought_end_marker:
            text = text.rpartition(self.thought_end_marker)[2]
        return text.strip()

    def match_info(self, text: str, expert_text: str) -> dict[str, str | bool]:
        """How a text agrees with the expert's.

        `match` is "exact", "type", "parsed" or "none"; `formatted` is whether the text begins with
        a thought, where there are thoughts.
        """
        action, expert_action = self._strip_thought(text), self._strip_thought(expert_text)
        action_type = self.action_type(action)
        if action_type is None:
            match = "none"
        elif action == expert_action:
            match = "exact"
        elif action_type == self.action_type(expert_action):
            match = "type"
        else:
            match = "parsed"
        marker = self.thought_end_marker
        is_formatted = not marker or bool(text.rpartition(marker)[0].strip())
        return {"match": match, "formatted": is_formatted}


@dataclass(frozen=True)
class SemiOnlinePerformance:
    """The SOP metric: PG = mean(s_i / t_i), TSR = mean[s_i = t_i], and their mean.

    s_i is the number of steps matched before the first mismatch, of t_i.
    """

    progress: float
    success_rate: float

    @property
    def score(self) -> float:
        return (self.progress + self.success_rate) / 2


def semi_online_performance(trajectories: Sequence[Trajectory]) -> SemiOnlinePerformance:
    """SOP of walks without patches: the policy's own history, ended at the first mismatch.

    Raises UserError without any trajectory.
    """
    fractions = []
    for trajectory in trajectories:
        matches = [turn.info["match"] == "exact" for turn in trajectory.turns]
        num_matched = [*matches, False].index(False)
        fractions.append(num_matched / trajectory.turns[0].info["steps"] if matches else 0.0)
    if not fractions:
        raise UserError("semi-online performance needs at least one trajectory")
    success_rate = float(np.mean([fraction == 1.0 for fraction in fractions]))
    return SemiOnlinePerformance(float(np.mean(fractions)), success_rate)
