"""What a step of a pairwise method used of trajectories, for the trajectory log."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from agentrl_jax.algorithms.pairwise.pairs import Pair, ReplyTokens
from agentrl_jax.algorithms.policy_gradient.step_record import (
    CallIds,
    call_ids,
    trajectory_training,
)
from agentrl_jax.learner.packing import PackedLayout
from agentrl_jax.trajectories import Call, Group, Trajectory
from agentrl_jax.trajectory_record import CallTraining, TrajectoryTraining


@dataclass(frozen=True, eq=False)
class PairedTokens:
    """The tokens of this process's pairs in one minibatch, reply by reply."""

    pairs: Sequence[Pair]
    counts: np.ndarray  # int [2 x pairs], of each reply's tokens
    columns: CallTraining  # of all tokens, one after the other

    @classmethod
    def of_minibatch(
        cls,
        pairs: Sequence[Pair],
        tokens: ReplyTokens,
        layout: PackedLayout,
        logp: np.ndarray,
        ref_logp: np.ndarray | None,
        reward_diffs: np.ndarray,
        num_pairs: int,
    ) -> "PairedTokens":
        """The numbers that the loss is given.

        Args:
            pairs: of this process.
            tokens: of their replies.
            layout: where they are packed.
            logp: of pi_t, [bins, length].
            ref_logp: of the initial policy, likewise, where it is needed.
            reward_diffs: r - r' of each pair, with the KL's part.
            num_pairs: of all processes.
        """
        coordinates = layout.packed_coordinates(tokens.sequence, tokens.position)
        return cls(
            pairs,
            np.bincount(tokens.sequence, minlength=2 * len(pairs)),
            CallTraining(
                weight=np.full(len(tokens.sequence), 1 / num_pairs, np.float32),
                advantage=(tokens.sign * reward_diffs[tokens.pair]).astype(np.float32),
                logp=logp[coordinates],
                ref_logp=None if ref_logp is None else ref_logp[coordinates],
            ),
        )

    def trained_calls(self) -> Iterator[tuple[Trajectory, list[CallTraining | None]]]:
        """Each dialogue with the numbers of its calls."""
        dialogues = [(dialogue, pair.turn) for pair in self.pairs for dialogue in pair.dialogues]
        stops = np.cumsum(self.counts)
        for (dialogue, turn), start in zip(dialogues, (stops - self.counts).tolist()):
            reply = {id(call) for call in dialogue.turns[turn].calls}
            calls: list[CallTraining | None] = []
            for call in dialogue.calls:
                is_trained = id(call) in reply
                calls.append(self._call(call, start) if is_trained else None)
                start += len(call.action) - len(call.sampling.forced) if is_trained else 0
            yield dialogue, calls

    def _call(self, call: Call, start: int) -> CallTraining:
        """The numbers of a call whose first token is `start`; forced ones have 0."""
        forced = np.zeros(len(call.sampling.forced), np.float32)
        stop = start + len(call.action) - len(forced)
        return CallTraining(
            **{
                name: np.concatenate([forced, column[start:stop]])
                for name, column in vars(self.columns).items()
                if column is not None
            }
        )


@dataclass(frozen=True, eq=False)
class PairRecord:
    """A step's experience and what its losses were given of it."""

    rewarded: Sequence[Group] = ()  # this process's groups after reward transforms
    minibatches: list[PairedTokens] = field(default_factory=list)

    def of(self, trajectories: Sequence[Trajectory]) -> list[TrajectoryTraining | None]:
        """What the step used of each trajectory; None of those that it was not given."""
        by_key: dict[CallIds, TrajectoryTraining] = {
            call_ids(t): trajectory_training(t, [None] * len(t.calls))
            for group in self.rewarded
            for t in group.trajectories
        }
        for minibatch in self.minibatches:
            for dialogue, calls in minibatch.trained_calls():
                by_key[call_ids(dialogue)] = trajectory_training(dialogue, calls)
        return [by_key.get(call_ids(trajectory)) for trajectory in trajectories]
