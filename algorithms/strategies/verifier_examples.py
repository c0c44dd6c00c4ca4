"""`VerifierExamples`: from a generator's episodes and their outcomes to examples for a verifier."""

from dataclasses import dataclass, field

import numpy as np

from agentrl_jax.algorithms.advantages.info_fields import succeeded
from agentrl_jax.algorithms.strategies.episode_examples import EpisodeExampleIterator, Example
from agentrl_jax.algorithms.strategies.episode_scorers import YesProbability
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.training.config import ExperienceIterator, RunContext
from agentrl_jax.training.sources import Rollouts
from agentrl_jax.trajectories import Group, Trajectory


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


class VerifierExampleIterator(EpisodeExampleIterator):
    """The examples of `VerifierExamples`, a group for each."""

    def __init__(
        self, verifier: YesProbability, rollouts: ExperienceIterator, agent: Agent
    ) -> None:
        super().__init__(self._verdict, rollouts, agent)
        self._verifier = verifier
        self._successes: list[bool] = []

    def next(self, step: int) -> list[Group]:
        self._successes = []
        return super().next(step)

    def _verdict(self, trajectory: Trajectory) -> list[Example]:
        """The verifier's prompt about an episode, with the right answer."""
        verifier, success = self._verifier, succeeded(trajectory)
        self._successes.append(success)
        return [(verifier.prompt(trajectory), verifier.yes if success else verifier.no)]

    def metrics(self) -> dict[str, float]:
        """The fraction of right answers among the examples of this process."""
        return {"verifier/positive": float(np.mean(self._successes or [0.0]))}
