"""More to learn from in the same optimizer steps: a policy's own better past, and demonstrations beside rollouts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from agentrl_jax.algorithms.advantages import ExternalBaseline
from agentrl_jax.algorithms.aggregation import token_mean
from agentrl_jax.algorithms.crediting import Lesson
from agentrl_jax.algorithms.schedules import Number, at
from agentrl_jax.algorithms.self_imitation import PositiveReplay, with_logp
from agentrl_jax.rows import Evidence, Indices
from agentrl_jax.trajectories import Group


@runtime_checkable
class Auxiliary(Protocol):
    """Other groups, with losses of their own, in each of the step's updates. Ratios are to the recorded log-probs."""

    def split(self, groups: Sequence[Group]) -> tuple[list[Group], list[Group]]:
        """Of what came in: what is for the policy gradient, and what is for this."""
        ...

    def draw(self, own: Sequence[Group], rng: np.random.Generator) -> list[Group]:
        """The groups of this step, given those that `split` set aside."""
        ...

    def lesson(self, evidence: Evidence, step: int) -> Lesson: ...

    def add(self, groups: Sequence[Group]) -> None:
        """The step's rollouts, once they are trained on; with the learner's log-probs where it scored them."""
        ...


@dataclass
class SelfImitation:
    """SPEAR (arXiv 2509.22601): the same loss on stored trajectories that are still better than the baseline, times a coefficient."""

    coefficient: Number
    replay: PositiveReplay = field(default_factory=PositiveReplay)
    transforms: Sequence[Callable[[Evidence, np.ndarray], np.ndarray]] = ()  # of their advantages, say `covariance.DropByCovariance`
    aggregation: Callable[[Indices], np.ndarray] = token_mean

    def split(self, groups: Sequence[Group]) -> tuple[list[Group], list[Group]]:
        return list(groups), []

    def draw(self, own: Sequence[Group], rng: np.random.Generator) -> list[Group]:
        self._baseline = self.replay.baseline if self.replay.ready else 0.0
        return self.replay.draw(rng)

    def lesson(self, evidence: Evidence, step: int) -> Lesson:
        advantage = ExternalBaseline(self._baseline)(evidence)
        for transform in self.transforms:
            advantage = transform(evidence, advantage)
        return Lesson(advantage, np.ones(len(advantage), bool), self.aggregation, at(self.coefficient, step))

    def add(self, groups: Sequence[Group]) -> None:
        self.replay.add(groups)

    def state(self) -> Any:
        return {"replay": self.replay.state(), "transforms": [one.state() if hasattr(one, "state") else None for one in self.transforms]}

    def load(self, state: Any) -> None:
        self.replay.load(state["replay"])
        for one, saved in zip(self.transforms, state["transforms"]):
            if saved is not None:
                one.load(saved)


def demonstrated(group: Group) -> bool:
    """Whether all that was written in a group comes from somebody else; what was ranked is the policy's own choice."""
    sources = {call.source for trajectory in group.trajectories for call in trajectory.calls}
    return bool(sources) and sources.isdisjoint(("sampled", "ranked"))


@dataclass
class Imitation:
    """coefficient(step) x cross entropy on the demonstrations among the groups (`experiment.Mixed`): DataMind's decaying SFT weight."""

    coefficient: Number
    aggregation: Callable[[Indices], np.ndarray] = token_mean

    def split(self, groups: Sequence[Group]) -> tuple[list[Group], list[Group]]:
        return [group for group in groups if not demonstrated(group)], [group for group in groups if demonstrated(group)]

    def draw(self, own: Sequence[Group], rng: np.random.Generator) -> list[Group]:
        return list(own)

    def lesson(self, evidence: Evidence, step: int) -> Lesson:
        count = len(evidence.token_row)
        return Lesson(np.zeros(count), np.ones(count, bool), self.aggregation, at(self.coefficient, step), likelihood=np.ones(count))

    def add(self, groups: Sequence[Group]) -> None: ...


def relabelled(groups: Sequence[Group], logp: np.ndarray) -> list[Group]:
    """The groups with these log-probs, one for each of their policy-written tokens in order, in place of the recorded ones."""
    out, start = [], 0
    for group in groups:
        trajectories = []
        for trajectory in group.trajectories:
            count = sum(len(call.action) - len(call.sampling.forced) for call in trajectory.calls)
            trajectories.append(with_logp(trajectory, logp[start : start + count]))
            start += count
        out.append(Group(group.task, tuple(trajectories), group.dropped))
    return out
