"""`SemiOnline`: a walk along an expert's recorded episode with the policy's own history (UI-S1, arXiv 2509.11543)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.strategies.staging import Stage, staged
from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.messages import Message, assistant, user
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Speaker
from agentrl_jax.trajectories import Group, Key, Trajectory, Turn
from agentrl_jax.workers import Task

Kind = Callable[[str], str | None]  # the kind of an action, None where it is none


def first_word(action: str) -> str | None:
    """The kind of an action such as "find ann"."""
    words = action.split()
    return words[0] if words else None


@dataclass
class Thought:
    """Who writes the thought that stands before an expert's action: the policy itself (on-policy), or another agent (off-policy)."""

    agent: str = "policy"
    ask: str = "The right action is {action}. Why?\n"


@dataclass
class SemiOnline:
    """`group_size` walks. An action that matches the expert's is answered as the expert's was, and the history holds it as it was written.

    At a mismatch the policy's own output is what is trained and scored. While the walk has `patches` left the expert's action stands in
    for it in the history (a call whose source is `patch`: mask it, `masks.Sources`), and the walk goes on; else it ends there. The
    published patches: none, 1 (the paper's last choice), 2 (its script), -1 (no end). Modes of thought: the action alone (`thought`
    None), or a thought by the policy or by another agent before it. With `own` off the history is always the expert's: offline step RL.

    Each turn's info says `step`, `steps` (of the expert), `match`, `formatted` and `patched`; it earns 1 for a match, and who matches
    all steps succeeds. No world is stepped but by the expert, whose seed is the task's, so that its path is always the same.
    """

    group_size: int = 8
    patches: int = 1
    kind: Kind = first_word
    marker: str = ""  # ends the thought that an action must begin with; empty: actions have none
    thought: Thought | None = None
    own: bool = True
    player: str = "expert"
    agent: str = "policy"

    def __post_init__(self) -> None:
        if self.thought is not None and not self.marker:
            raise UserError("a thought before a patch needs a marker that ends it")

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        shown = await runtime.scripted(task, self.player, seed_of(task.seed))
        if shown is None:
            return Group(task.name, (), dropped=self.group_size)

        async def walk(stage: Stage) -> Trajectory:
            return await self._walked(stage, shown)

        return await staged(task, runtime, self.agent, key, self.group_size, walk)

    async def _walked(self, stage: Stage, shown: Trajectory) -> Trajectory:
        speaker, left, missed = stage.speaker(self.agent, shown.opening), self.patches, False
        for step, right in enumerate(shown.turns):
            action = await speaker.say() if speaker.stop is None else None
            if action is None:
                break
            facts = {"step": step, "steps": len(shown.turns), **self.judged(action.text, right.action.text)}
            good, last = facts["match"] == "exact", step + 1 == len(shown.turns)
            missed = missed or not good
            if not good and left == 0:
                speaker.hear(action, (), 0.0, False, False, {**facts, "patched": False})
                speaker.stop = "early"
                break
            patch = await self._patch(stage, speaker, right, good)
            patched = patch is not None and patch != action
            if patch is not None and patched:
                speaker.instead(patch, "patch")
                action = patch
            left -= not good
            speaker.hear(action, right.observation, float(good), last, False, {**facts, "patched": patched})
        return stage.trajectory(speaker, not missed and speaker.stop == "terminated")

    async def _patch(self, stage: Stage, speaker: Speaker, right: Turn, good: bool) -> Message | None:
        """What stands in the history for what was just said; None: itself."""
        if good and self.own:
            return None
        action = self._action(right.action.text)
        if self.thought is None:
            return assistant(action)
        question = user(self.thought.ask.format(action=action))
        seen = speaker.agent.context.view(speaker.opening, speaker.turns)
        thought = await stage.aside(self.thought.agent, [*seen, question], len(speaker.turns))
        return assistant(f"{thought}{self.marker}{action}")

    def _action(self, text: str) -> str:
        """A text without its thought."""
        return (text.rpartition(self.marker)[2] if self.marker else text).strip()

    def judged(self, text: str, right: str) -> dict[str, str | bool]:
        """How a text agrees with the expert's: `match` ("exact", "type", "parsed" or "none"), and whether it is `formatted`."""
        mine, theirs = self._action(text), self._action(right)
        kind = self.kind(mine)
        match = "none" if kind is None else "exact" if mine == theirs else "type" if kind == self.kind(theirs) else "parsed"
        thought = text.rpartition(self.marker)[0] if self.marker else "none is asked for"
        return {"match": match, "formatted": bool(thought.strip())}


@dataclass(frozen=True)
class Progress:
    """The SOP metric: PG = mean(s_i / t_i), TSR = mean[s_i = t_i], their mean; s_i steps matched before the first mismatch, of t_i."""

    progress: float
    success: float

    @property
    def score(self) -> float:
        return (self.progress + self.success) / 2


def semi_online_performance(walks: Sequence[Trajectory]) -> Progress:
    """Of walks without patches: own history, stopped at the first mismatch. Raises UserError without any."""
    shares = []
    for walk in walks:
        good = [turn.info["match"] == "exact" for turn in walk.turns]
        shares.append([*good, False].index(False) / walk.turns[0].info["steps"] if good else 0.0)
    if not shares:
        raise UserError("there is no walk along an expert's path to judge")
    return Progress(float(np.mean(shares)), float(np.mean([share == 1.0 for share in shares])))
