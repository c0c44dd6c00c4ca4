"""Scores of finished episodes by models of the run: a reward model, P(yes) of a verifier, a judge.

A scorer may be anything with the protocol `EpisodeScorer`; `ScoredEpisodes` makes rewards of the
scores, `AcceptedEpisodes` a filter, `BestOfN` a choice.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import scipy.special

from agentrl_jax.algorithms.advantages.info_fields import info_field
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import Message, user
from agentrl_jax.rollout.event_loop_thread import gather_or_cancel
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import RandomKey, Trajectory

TurnScores = Mapping[int, float]  # by turn index; that of a whole episode is at its last turn
# The messages that a model reads of an episode.
EpisodePrompt = Callable[[Trajectory], Sequence[Message]]


@runtime_checkable
class EpisodeScorer(Protocol):
    """Scores an episode that has turns."""

    async def __call__(
        self, trajectory: Trajectory, runtime: Runtime, key: RandomKey
    ) -> TurnScores:
        """The scores of the episode, at least one.

        Raises EnvironmentFailure where the model fails: that is counted, and asked once more.

        Args:
            trajectory: The episode.
            runtime: Its `models` are asked.
            key: Of the random numbers of the model's answers.
        """
        ...


def transcript(trajectory: Trajectory) -> str:
    """All messages of an episode, a line for each with its role: "user: 17+25=?"."""
    return "".join(f"{m.role}: {m.text.rstrip()}\n" for m in trajectory.messages)


@dataclass
class EpisodeQuestion:
    """One user message: a template in which {transcript} is the episode's transcript, and {opening}
    and {answer} the texts of its opening and of its last action.
    """

    template: str
    max_characters: int = 8000  # of the transcript, its last ones

    def __call__(self, trajectory: Trajectory) -> Sequence[Message]:
        texts = {
            "{transcript}": transcript(trajectory)[-self.max_characters :],
            "{opening}": "".join(m.text for m in trajectory.opening).rstrip(),
            "{answer}": trajectory.turns[-1].action.text,
        }
        # In one pass, so that a text of the episode is never read as a template.
        pattern = "|".join(map(re.escape, texts))
        return [user(re.sub(pattern, lambda match: texts[match.group()], self.template))]


@dataclass
class RewardModelScore:
    """scale (s - offset), s the reward model's score of the episode, at its last turn."""

    model: str = "reward"  # `algorithms.pairwise.reward_scorer.RewardModel`
    scale: float = 1.0
    offset: float = 0.0

    async def __call__(
        self, trajectory: Trajectory, runtime: Runtime, key: RandomKey
    ) -> TurnScores:
        (score,) = await runtime.models.score_trajectories(self.model, [trajectory])
        return {len(trajectory.turns) - 1: self.scale * (score - self.offset)}


@dataclass
class YesProbability:
    """P(yes) / (P(yes) + P(no)): a verifier's score (SWE-Gym, arXiv 2412.21139; MARS-SQL, arXiv
    2511.01008).

    It is read where the verifier would begin its answer to the prompt; nothing is sampled.
    """

    prompt: EpisodePrompt
    model: str = "verifier"
    yes: str = "yes"
    no: str = "no"

    async def __call__(
        self, trajectory: Trajectory, runtime: Runtime, key: RandomKey
    ) -> TurnScores:
        messages = self.prompt(trajectory)
        yes, no = await runtime.models.score(self.model, [messages, messages], [self.yes, self.no])
        return {len(trajectory.turns) - 1: float(scipy.special.expit(yes - no))}


@dataclass
class AnswerScore:
    """scale s(a, gold), a the model's answer to the prompt, at the last turn.

    AI-SearchPlanner (arXiv 2508.20368): the answer of a frozen reader of what a planner has found;
    with scale -1 and the question alone as prompt both together are the planner's gain.
    """

    prompt: EpisodePrompt
    score: Callable[[str, Sequence[str]], float]  # of an answer; the right ones
    model: str = "reader"
    scale: float = 1.0

    async def __call__(
        self, trajectory: Trajectory, runtime: Runtime, key: RandomKey
    ) -> TurnScores:
        gold = info_field(trajectory.turns[-1], "gold")
        answer = await runtime.models.ask(self.model, self.prompt(trajectory), key)
        score = self.score(answer.text.strip(), [gold])
        return {len(trajectory.turns) - 1: self.scale * score}


@dataclass
class Judge:
    """(x - low) / (high - low), x the number that a judge gives the episode, at its last turn.

    The judge answers the prompt: the rubric and the episode. An answer without a number from low to
    high is a failure, "malformed". With `per_turn` the judge scores every turn, from the episode up
    to there.
    """

    prompt: EpisodePrompt
    model: str = "judge"
    low: float = 0.0
    high: float = 10.0
    # Its group is the number; the last match counts. "7", "7/10", "It asks too much. Score: 7".
    pattern: str = r"(?:^|[Ss]core:?)\s*(-?\d+(?:\.\d+)?)"
    per_turn: bool = False
    seconds: float | None = None  # the longest wait for an answer; None: that for a turn

    def __post_init__(self) -> None:
        if not self.low < self.high or re.compile(self.pattern).groups != 1:
            raise UserError(f"a judge needs low < high and a pattern with one group: {self}")

    async def __call__(
        self, trajectory: Trajectory, runtime: Runtime, key: RandomKey
    ) -> TurnScores:
        count = len(trajectory.turns)
        turns = range(count) if self.per_turn else [count - 1]
        scores = await gather_or_cancel(
            [self._score(trajectory, turn, runtime, (*key, turn)) for turn in turns]
        )
        return dict(zip(turns, scores))

    async def _score(
        self, trajectory: Trajectory, turn: int, runtime: Runtime, key: RandomKey
    ) -> float:
        """The judge's score of the episode up to a turn."""
        messages = self.prompt(trajectory.replace(turns=trajectory.turns[: turn + 1]))
        answer = await runtime.models.ask(self.model, messages, key, seconds=self.seconds)
        numbers = re.findall(self.pattern, answer.text)
        number = float(numbers[-1]) if numbers else math.nan
        if not self.low <= number <= self.high:
            raise EnvironmentFailure(
                f"an answer of the judge {self.model!r} has no number from {self.low:g} to "
                f"{self.high:g}: {answer.text[:200]!r}",
                "malformed",
            )
        return (number - self.low) / (self.high - self.low)
