"""`VerifierExamples`: from a generator's episodes and their outcomes to examples for a verifier."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentrl_jax.algorithms.advantages.info_fields import succeeded
from agentrl_jax.algorithms.strategies.episode_scorers import YesProbability
from agentrl_jax.messages import assistant
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.teacher_forcing import add_demonstration_calls
from agentrl_jax.storage.demonstration_file import DEMONSTRATION
from agentrl_jax.training.config import ExperienceIterator, RunContext
from agentrl_jax.training.sources import Rollouts
from agentrl_jax.trajectories import Group, Trajectory, Turn


@dataclass
class VerifierExamples:
    """For each episode of the rollouts, the verifier's prompt and "yes" or "no": whether the
    environment calls the episode a success.

    A source for behavior cloning: its minimum is P(yes) = P(success | prompt). The agent that plays
    must be a named model (`IndependentEpisodes(8, agent="generator")`): the weights that the phase
    trains are the verifier's.
    """

    verifier: YesProbability  # the prompt and the two words
    rollouts: Rollouts = field(default_factory=Rollouts)
    on_policy: bool = field(default=False, init=False)

    def open(self, run: RunContext) -> ExperienceIterator:
        return VerifierExampleIterator(self.verifier, self.rollouts.open(run), run.agent)


class VerifierExampleIterator(ExperienceIterator):
    """The examples of `VerifierExamples`, a group for each."""

    def __init__(
        self, verifier: YesProbability, rollouts: ExperienceIterator, agent: Agent
    ) -> None:
        self._verifier, self._rollouts, self._agent = verifier, rollouts, agent
        self._successes: list[bool] = []

    def next(self, step: int) -> list[Group]:
        groups = self._rollouts.next(step)
        trajectories = [t for group in groups for t in group.trajectories if t.turns]
        self._successes = [succeeded(t) for t in trajectories]
        return [Group(t.task, (self._example(t),)) for t in trajectories]

    def _example(self, trajectory: Trajectory) -> Trajectory:
        """The verifier's prompt about an episode, with the right answer."""
        verifier = self._verifier
        answer = assistant(verifier.yes if succeeded(trajectory) else verifier.no)
        example = Trajectory(
            opening=tuple(verifier.prompt(trajectory)),
            turns=(Turn((), answer, (), 0.0, terminated=True),),
            task=trajectory.task,
            seed=trajectory.seed,
            sample=trajectory.sample,
            agent=DEMONSTRATION,
            success=True,
        )
        return add_demonstration_calls(example, self._agent)

    def metrics(self) -> dict[str, float]:
        """The fraction of right answers among the examples of this process."""
        return {"verifier/positive": float(np.mean(self._successes or [0.0]))}

    def state(self) -> Any:
        return self._rollouts.state()

    def load(self, state: Any) -> None:
        self._rollouts.load(state)
