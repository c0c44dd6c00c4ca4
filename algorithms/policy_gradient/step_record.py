"""What a policy-gradient step used of trajectories, for the trajectory log."""

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.policy_gradient.credited_batch import CreditedBatch
from agentrl_jax.trajectories import Call, Group, Trajectory
from agentrl_jax.trajectory_record import CallTraining, TrajectoryTraining, TurnTraining

CallIds = tuple[int, ...]  # id() of the calls of a trajectory, which reward transforms keep


@dataclass(frozen=True, eq=False)
class StepRecord:
    """A step's experience on its way from rewards to the loss."""

    rewarded: Sequence[Group]  # this process's groups after reward transforms
    trained: Sequence[Group]  # those that were credited, after filters and replay
    credited: CreditedBatch  # the same
    minibatches: int  # weights are relative to the update's tokens

    def of(self, trajectories: Sequence[Trajectory]) -> list[TrajectoryTraining | None]:
        """What the step used of each trajectory; None of those that it was not given."""
        requested = {call_ids(trajectory) for trajectory in trajectories}
        by_key = {
            key: trajectory_training(trajectory, [None] * len(key))
            for group in self.rewarded
            for trajectory in group.trajectories
            if (key := call_ids(trajectory)) in requested
        }
        by_key |= {
            key: trajectory_training(trajectory, calls)
            for key, trajectory, calls in self._trained_calls(requested)
        }
        return [by_key.get(call_ids(trajectory)) for trajectory in trajectories]

    def _trained_calls(
        self, requested: Collection[CallIds]
    ) -> Iterator[tuple[CallIds, Trajectory, list[CallTraining]]]:
        """The trained trajectories among those wanted, with the numbers of their calls, in
        `collate`'s order.
        """
        columns, start = self._token_columns(), 0
        for group in self.trained:
            for trajectory in group.trajectories:
                calls, key = trajectory.calls, call_ids(trajectory)
                counts = [len(call.action) - len(call.sampling.forced) for call in calls]
                if key in requested:
                    starts = itertools.accumulate(counts, initial=start)
                    slices = [slice(i, i + n) for i, n in zip(starts, counts)]
                    yield key, trajectory, [_slice(columns, *x) for x in zip(calls, slices)]
                start += sum(counts)

    def _token_columns(self) -> CallTraining:
        """The numbers of all of this process's tokens."""
        is_local = self.credited.global_groups.local_token_mask
        inputs, columns = self.credited.local_inputs, self.credited.token_columns
        target = self.credited.targets.value_target
        return CallTraining(
            weight=self._weights().astype(np.float32),
            advantage=columns.advantage.astype(np.float32),
            logp=_float32(inputs.token_logp),
            ref_logp=_float32(inputs.token_ref_logp),
            value=_float32(inputs.token_value),
            value_target=None if target is None else target[is_local].astype(np.float32),
            importance_weight=_float32(inputs.token_importance_weight),
        )

    def _weights(self) -> np.ndarray:
        """The loss weights of this process's tokens, each in its own minibatch."""
        weights = np.zeros(len(self.credited.token_columns.advantage))
        groups = np.arange(self.credited.global_groups.num_groups)
        for part in np.array_split(groups, self.minibatches):
            inputs, tokens, local_tokens = self.credited.select_groups(part)
            is_local = self.credited.global_groups.local_token_mask[tokens]
            loss_weights = self.credited.targets.loss_weights(inputs, tokens)
            weights[local_tokens] = loss_weights[is_local]
        return weights


def call_ids(trajectory: Trajectory) -> CallIds:
    """What names a trajectory among those of a step."""
    return tuple(id(call) for turn in trajectory.turns for call in turn.calls)


def _float32(column: np.ndarray | None) -> np.ndarray | None:
    return None if column is None else column.astype(np.float32)


def _slice(columns: CallTraining, call: Call, tokens: slice) -> CallTraining:
    """The numbers of a call; forced tokens have 0."""
    known = {name: column[tokens] for name, column in vars(columns).items() if column is not None}
    if call.sampling.forced:
        forced = np.zeros(len(call.sampling.forced), np.float32)
        known = {name: np.concatenate([forced, column]) for name, column in known.items()}
    return CallTraining(**known)


def trajectory_training(
    trajectory: Trajectory, calls: Sequence[CallTraining | None]
) -> TrajectoryTraining:
    """The turns of a trajectory after rewards; of calls without a trained token nothing is kept.

    Args:
        trajectory: after reward transforms.
        calls: what its calls were trained with, in their order.
    """
    remaining, turns = iter(calls), []
    for turn in trajectory.turns:
        calls_of_turn = [next(remaining) for _ in turn.calls]
        used = tuple(
            call if call is not None and call.weight.any() else None for call in calls_of_turn
        )
        turns.append(TurnTraining(turn.reward, turn.rewards, used))
    return TrajectoryTraining(tuple(turns))
