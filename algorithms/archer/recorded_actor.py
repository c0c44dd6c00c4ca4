"""`RecordedActor`: ArCHer's actor, with an account of the tokens that it trained."""

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradient
from agentrl_jax.algorithms.policy_gradient.step_record import call_ids, trajectory_training
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Call, Group, Trajectory
from agentrl_jax.trajectory_record import (
    CallTraining,
    TrajectoryTraining,
    TurnTraining,
    UtteranceTraining,
)


class RecordedActor(PolicyGradient):
    """A policy gradient whose steps of one iteration are accounted to the iteration's trajectories.

    A step trains turns of these trajectories, or utterances that it sampled in their states; both
    are known by their arrays of ids, which replayed transitions keep. What it trains in the states
    of earlier iterations has no trajectory to be accounted to.
    """

    _experience: Sequence[Group] = ()
    _trained: Sequence[tuple[Call, CallTraining]] = ()

    def begin_iteration(self, experience: Sequence[Group]) -> None:
        """Forget the steps before; `experience` has the trajectories of this iteration."""
        self._experience, self._trained = experience, []

    def step(
        self, state: TrainState, experience: Sequence[Group], runtime: Runtime
    ) -> tuple[TrainState, dict[str, Any]]:
        result = super().step(state, experience, runtime)
        trajectories = [trajectory for group in experience for trajectory in group.trajectories]
        self._trained = [
            *self._trained,
            *(
                (call, training)
                for trajectory, record in zip(trajectories, super().training_of(trajectories))
                for turn, used in zip(trajectory.turns, record.turns if record else ())
                for call, training in zip(turn.calls, used.calls)
                if training is not None
            ),
        ]
        return result

    def training_of(
        self, trajectories: Sequence[Trajectory]
    ) -> Sequence[TrajectoryTraining | None]:
        """What the steps of the iteration trained of each trajectory of it, or in its states."""
        by_action, by_prompt = defaultdict(list), defaultdict(list)
        for call, training in self._trained:
            by_action[id(call.action)].append(training)
            by_prompt[id(call.prompt)].append((call, training))
        of_iteration = {call_ids(t) for group in self._experience for t in group.trajectories}

        def record_of(trajectory: Trajectory) -> TrajectoryTraining:
            trained = [_sum(by_action[id(call.action)]) for call in trajectory.calls]
            turns: list[TurnTraining] = []
            for turn, training in zip(
                trajectory.turns, trajectory_training(trajectory, trained).turns, strict=True
            ):
                sampled = by_prompt[id(turn.calls[-1].prompt)] if turn.calls else ()
                utterances = _utterances(sampled, {id(call.action) for call in turn.calls})
                turns.append(dataclasses.replace(training, utterances=utterances))
            return TrajectoryTraining(tuple(turns))

        return [record_of(t) if call_ids(t) in of_iteration else None for t in trajectories]


def _utterances(
    sampled: Sequence[tuple[Call, CallTraining]], turn_actions: set[int]
) -> tuple[UtteranceTraining, ...]:
    """The calls that were sampled in a state, but those with the id() of `turn_actions`."""
    return tuple(
        UtteranceTraining(call.action, training)
        for call, training in sampled
        if id(call.action) not in turn_actions and call.source == "sampled"
    )


def _sum(steps: Sequence[CallTraining]) -> CallTraining | None:
    """Of a call that several steps trained: the sum of its weights, and of each other column the
    mean by these weights.
    """
    if len(steps) < 2:
        return steps[0] if steps else None
    weights = np.stack([step.weight for step in steps])
    total = weights.sum(0)
    columns = {
        name: (weights * np.stack([vars(step)[name] for step in steps])).sum(0)
        / np.where(total == 0, 1, total)
        for name, column in vars(steps[0]).items()
        if name != "weight" and column is not None
    }
    return CallTraining(weight=total, **columns)
