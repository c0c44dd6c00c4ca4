"""Auxiliary objectives in the same optimizer steps: self-imitation of stored trajectories, and
imitation of demonstrations in addition to rollouts.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentrl_jax.algorithms.advantages.group import ExternalBaseline
from agentrl_jax.algorithms.advantages.token_weights import token_mean
from agentrl_jax.algorithms.experience.schedules import ScalarOrSchedule, value_at
from agentrl_jax.algorithms.experience.self_imitation import PositiveReplay, replace_sampler_logp
from agentrl_jax.algorithms.experience.stateful import Stateful
from agentrl_jax.algorithms.policy_gradient.credited_batch import TokenTargets
from agentrl_jax.config_tree import OMITTED_AT_DEFAULT
from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import CreditInputs, TokenIndex
from agentrl_jax.trajectories import Group


class AuxiliaryObjective(ABC):
    """Base class of objectives that train on other groups, with losses of their own, in each of the
    step's updates. Ratios are to the recorded log-probs.
    """

    def split_groups(self, groups: Sequence[Group]) -> tuple[list[Group], list[Group]]:
        """Split the step's groups into those of the policy gradient and those reserved for this
        objective; by default none is reserved.
        """
        return list(groups), []

    @abstractmethod
    def groups_for_step(self, reserved: Sequence[Group], rng: np.random.Generator) -> list[Group]:
        """The groups to train on in this step, given those that `split_groups` reserved."""

    @abstractmethod
    def targets(self, inputs: CreditInputs, step: int) -> TokenTargets:
        """The targets of all processes' groups of the step."""

    def add(self, groups: Sequence[Group]) -> None:  # noqa: B027
        """Called after the updates with the rollouts of the step; their recorded log-probs are the
        learner's where it rescored them.
        """


@dataclass
class SelfImitation(AuxiliaryObjective, Stateful):
    """SPEAR (arXiv 2509.22601): the same policy loss on stored trajectories that are still better
    than the baseline, times a coefficient.
    """

    coefficient: ScalarOrSchedule
    replay: PositiveReplay = field(default_factory=PositiveReplay)
    # of the replayed advantages, for example `covariance.ClipCovAdvantages`
    transforms: Sequence[Callable[[CreditInputs, np.ndarray], np.ndarray]] = ()
    aggregation: Callable[[TokenIndex], np.ndarray] = token_mean

    def groups_for_step(self, reserved: Sequence[Group], rng: np.random.Generator) -> list[Group]:
        self._baseline = self.replay.baseline if self.replay.is_ready else 0.0
        return self.replay.sample(rng)

    def targets(self, inputs: CreditInputs, step: int) -> TokenTargets:
        advantage = ExternalBaseline(self._baseline)(inputs)
        for transform in self.transforms:
            advantage = transform(inputs, advantage)
        train_mask = np.ones(len(advantage), bool)
        return TokenTargets(
            advantage, train_mask, self.aggregation, value_at(self.coefficient, step)
        )

    def add(self, groups: Sequence[Group]) -> None:
        self.replay.add(groups)

    def state(self) -> Any:
        transforms = [t.state() if isinstance(t, Stateful) else None for t in self.transforms]
        return {"replay": self.replay.state(), "transforms": transforms}

    def load(self, state: Any) -> None:
        self.replay.load(state["replay"])
        for transform, transform_state in zip(self.transforms, state["transforms"]):
            if isinstance(transform, Stateful):
                transform.load(transform_state)


def is_demonstration(group: Group) -> bool:
    """Whether nothing in a group was written by the policy; a ranked action is the policy's own."""
    sources = {call.source for trajectory in group.trajectories for call in trajectory.calls}
    return bool(sources) and sources.isdisjoint(("sampled", "ranked"))


@dataclass
class Imitation(AuxiliaryObjective):
    """coefficient(step) x cross entropy on the demonstrations among the groups (source:
    `training.sources.MixedSource`): DataMind's decaying SFT weight.

    With `by_uncertainty` a token's cross entropy is weighted by p (1 - p), p its probability before
    the update (CHORD, arXiv 2508.11408); the config must `rescore`.
    """

    coefficient: ScalarOrSchedule
    aggregation: Callable[[TokenIndex], np.ndarray] = token_mean
    by_uncertainty: bool = field(default=False, metadata=OMITTED_AT_DEFAULT)

    def split_groups(self, groups: Sequence[Group]) -> tuple[list[Group], list[Group]]:
        rollouts = [group for group in groups if not is_demonstration(group)]
        return rollouts, [group for group in groups if is_demonstration(group)]

    def groups_for_step(self, reserved: Sequence[Group], rng: np.random.Generator) -> list[Group]:
        return list(reserved)

    def targets(self, inputs: CreditInputs, step: int) -> TokenTargets:
        count = len(inputs.token_sequence)
        weight = np.ones(count)
        if self.by_uncertainty:
            if inputs.token_logp is None:
                raise UserError("Imitation(by_uncertainty=True) needs the method's `rescore`")
            p = np.exp(inputs.token_logp)
            weight = p * (1.0 - p)
        return TokenTargets(
            np.zeros(count),
            np.ones(count, bool),
            self.aggregation,
            value_at(self.coefficient, step),
            nll_weight=weight,
        )


def replace_group_logp(groups: Sequence[Group], logp: np.ndarray) -> list[Group]:
    """The groups with these recorded log-probs: `logp` [N] of their policy-written tokens, in
    order.
    """
    replaced, start = [], 0
    for group in groups:
        trajectories = []
        for trajectory in group.trajectories:
            count = sum(len(call.action) - len(call.sampling.forced) for call in trajectory.calls)
            trajectories.append(replace_sampler_logp(trajectory, logp[start : start + count]))
            start += count
        replaced.append(Group(group.task, tuple(trajectories), group.num_dropped))
    return replaced
