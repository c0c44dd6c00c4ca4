"""What a policy-gradient step used of trajectories, for the trajectory log."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.policy_gradient.credited_batch import CreditedBatch
from agentrl_jax.trajectories import Call, Group, Trajectory
from agentrl_jax.trajectory_record import CallTraining, TrajectoryTraining, TurnTraining

CallKey = tuple[int, ...]  # id() of the calls of a trajectory, which reward transforms keep


@dataclass(frozen=True, eq=False)
class StepRecord:
    """A step's experience on its way from rewards to the loss."""

    rewarded: Sequence[Group]  # this process's groups after reward transforms
    trained: Sequence[Group]  # those that were credited, after filters and replay
    credited: CreditedBatch  # the same
    minibatches: int  # weights are relative to the update's tokens

    def of(self, trajectories: Sequence[Trajectory]) -> list[TrajectoryTraining | None]:
        """What the step used of each trajectory; None of those that it was not given."""
        by_key = {
            _key(t): _training(t, [None] * len(t.calls))
            for group in self.rewarded
            for t in group.trajectories
        }
        by_key |= {_key(t): _training(t, calls) for t, calls in self._trained_calls()}
        return [by_key.get(_key(trajectory)) for trajectory in trajectories]

    def _trained_calls(self) -> Iterator[tuple[Trajectory, list[CallTraining]]]:
        """Each trained trajectory with the numbers of its calls, in `collate`'s order."""
        columns, start = self._token_columns(), 0
        for group in self.trained:
            for trajectory in group.trajectories:
                calls = []
                for call in trajectory.calls:
                    stop = start + len(call.action) - len(call.sampling.forced)
                    calls.append(_slice(columns, call, slice(start, stop)))
                    start = stop
                yield trajectory, calls

    def _token_columns(self) -> CallTraining:
        """The numbers of all of this process's tokens."""
        is_local = self.credited.global_groups.local_token_mask
        inputs, columns = self.credited.global_groups.token_index, self.credited.token_columns
        return CallTraining(
            weight=self._weights(),
            advantage=columns.advantage,
            logp=_select(inputs.token_logp, is_local),
            ref_logp=_select(inputs.token_ref_logp, is_local),
            value=_select(inputs.token_value, is_local),
            value_target=_select(self.credited.targets.value_target, is_local),
            importance_weight=_select(inputs.token_importance_weight, is_local),
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


def _key(trajectory: Trajectory) -> CallKey:
    return tuple(id(call) for call in trajectory.calls)


def _select(column: np.ndarray | None, mask: np.ndarray) -> np.ndarray | None:
    return None if column is None else column[mask]


def _slice(columns: CallTraining, call: Call, tokens: slice) -> CallTraining:
    """The numbers of a call; forced tokens have 0."""
    forced = np.zeros(len(call.sampling.forced), np.float32)

    def of_call(column: np.ndarray) -> np.ndarray:
        return np.concatenate([forced, column[tokens]]).astype(np.float32)

    known = {name: of_call(column) for name, column in vars(columns).items() if column is not None}
    return CallTraining(**known)


def _training(trajectory: Trajectory, calls: Sequence[CallTraining | None]) -> TrajectoryTraining:
    """The turns of a trajectory after rewards; of calls without a trained token nothing is kept."""
    remaining, turns = iter(calls), []
    for turn in trajectory.turns:
        calls_of_turn = [next(remaining) for _ in turn.calls]
        used = tuple(
            call if call is not None and call.weight.any() else None for call in calls_of_turn
        )
        turns.append(TurnTraining(turn.reward, turn.rewards, used))
    return TrajectoryTraining(tuple(turns))
