"""`EpisodeExamples`: episodes, or prompts with right answers made of them, on which a model is
fine-tuned.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrl_jax.messages import Message, assistant
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.teacher_forcing import add_demonstration_calls
from agentrl_jax.storage.demonstration_file import DEMONSTRATION
from agentrl_jax.training.config import ExperienceIterator, RunContext
from agentrl_jax.training.sources import Rollouts
from agentrl_jax.trajectories import Group, Trajectory, Turn

Example = tuple[Sequence[Message], str]  # a prompt and its right answer


@dataclass
class EpisodeExamples:
    """A source for behavior cloning: the rollouts' episodes as demonstrations, or the examples that
    a function makes of each.

    The episodes must not be those of the trained weights: of a scripted policy
    (`ScriptedEpisodes`) or a named model.
    """

    examples: Callable[[Trajectory], Sequence[Example]] | None = None  # None: the episodes
    rollouts: Rollouts = field(default_factory=Rollouts)
    on_policy: bool = field(default=False, init=False)

    def open(self, run: RunContext) -> ExperienceIterator:
        return EpisodeExampleIterator(self.examples, self.rollouts.open(run), run.agent)


class EpisodeExampleIterator(ExperienceIterator):
    """The examples of the episodes, a group for each."""

    def __init__(
        self,
        examples: Callable[[Trajectory], Sequence[Example]] | None,
        rollouts: ExperienceIterator,
        agent: Agent,
    ) -> None:
        self._examples, self._rollouts, self._agent = examples, rollouts, agent

    def next(self, step: int) -> list[Group]:
        return [
            Group(t.task, (demonstration,))
            for group in self._rollouts.next(step)
            for t in group.trajectories
            if t.turns
            for demonstration in self._demonstrations(t)
        ]

    def _demonstrations(self, episode: Trajectory) -> list[Trajectory]:
        if self._examples is None:
            return [add_demonstration_calls(episode, self._agent).replace(agent=DEMONSTRATION)]
        return [
            example_trajectory(episode, *example, self._agent)
            for example in self._examples(episode)
        ]

    def state(self) -> Any:
        return self._rollouts.state()

    def load(self, state: Any) -> None:
        self._rollouts.load(state)


def example_trajectory(
    episode: Trajectory, prompt: Sequence[Message], answer: str, agent: Agent
) -> Trajectory:
    """The prompt about an episode with its right answer, as a demonstration for the agent."""
    example = Trajectory(
        opening=tuple(prompt),
        turns=(Turn((), assistant(answer), (), 0.0, terminated=True),),
        task=episode.task,
        seed=episode.seed,
        sample=episode.sample,
        agent=DEMONSTRATION,
        success=True,
    )
    return add_demonstration_calls(example, agent)
