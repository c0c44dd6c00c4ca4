"""From trajectories to training sequences, and the index arrays of their tokens."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from agentrl_jax.learner.recorded_tokens import RecordedTokens, concatenate
from agentrl_jax.messages import ImagePart
from agentrl_jax.trajectories import Call, Group, Trajectory, Turn

# What the entries of a field of `TokenIndex` belong to, as the field's metadata.
Level = Literal["token", "turn", "trajectory"]
PER_TOKEN: dict[str, Level] = {"level": "token"}
PER_TURN: dict[str, Level] = {"level": "turn"}
PER_TRAJECTORY: dict[str, Level] = {"level": "trajectory"}


class SequenceImage(NamedTuple):
    """An image of a training sequence, whose tokens are those from `start` to `stop`."""

    start: int
    stop: int
    part: ImagePart


@dataclass(frozen=True, eq=False)
class TrainingSequence:
    """One training sequence: a longest chain of calls, each extending the previous one exactly.

    tokens       W o r d | s l a t e . | b b y b b . | c r a n e .
    action_mask  0 0 0 0 | 1 1 1 1 1 1 | 0 0 0 0 0 0 | 1 1 1 1 1 1
    turn           -1    |      0      |     -1      |      1
    """

    tokens: np.ndarray  # int32 [T]
    action_mask: np.ndarray  # bool [T]: the policy chose the token
    sampler_logp: np.ndarray  # float32 [T], 0 outside actions
    version: np.ndarray  # int32 [T], -1 outside actions
    temperature: np.ndarray  # float32 [T], 1 outside actions
    turn: np.ndarray  # int32 [T]: turn within the trajectory, -1 outside actions
    images: tuple[SequenceImage, ...] = ()

    def __len__(self) -> int:
        return len(self.tokens)


class TurnCall(NamedTuple):
    """A call and the index of its turn within the trajectory."""

    turn: int
    call: Call


def call_chains(trajectory: Trajectory) -> list[list[TurnCall]]:
    """The trajectory's calls as chains in which each call extends the one before it.

    A call extends the longest chain that its prompt starts with. Calls form a tree where a program
    branches, retries or interleaves several agents; each call is in one chain, in order.
    """
    chains: list[list[TurnCall]] = []
    for t, turn in enumerate(trajectory.turns):
        for call in turn.calls:
            longest = _longest_prefix(call, chains)
            if longest is None:
                chains.append([TurnCall(t, call)])
            else:
                longest.append(TurnCall(t, call))
    return chains


def _longest_prefix(call: Call, chains: list[list[TurnCall]]) -> list[TurnCall] | None:
    """The longest chain that the call's prompt starts with, the first of equally long ones.

    The tokens of its parent's chain, and of chains shorter than that, are not compared.
    """
    for chain in sorted(chains, key=lambda chain: -chain[-1].call.length):
        if call.parent is chain[-1].call or call.extends(chain[-1].call):
            return chain
    return None


def sequences_of(trajectory: Trajectory) -> list[TrainingSequence]:
    """The trajectory's training sequences.

    One where the context only grew, several where the history was rewritten or branched.
    """
    return [_sequence_of_chain(chain) for chain in call_chains(trajectory)]


class ContextCost(NamedTuple):
    """What a context manager's view of the history costs."""

    sequences: int
    recomputed: int  # prompt tokens that an engine cannot take from its KV cache


def context_cost(trajectory: Trajectory) -> ContextCost:
    """(1, 0) where the context only grew.

    Recomputed are the tokens of all prompts that do not extend the call before them, except the
    first prompt.
    """
    chains = call_chains(trajectory)
    return ContextCost(len(chains), sum(len(chain[0].call.prompt) for chain in chains[1:]))


def _sequence_of_chain(chain: list[TurnCall]) -> TrainingSequence:
    last = chain[-1].call
    tokens, spans = last.ids, zip(last.image_spans, last.images, strict=True)
    n = len(tokens)
    sequence = TrainingSequence(
        tokens=tokens,
        action_mask=np.zeros(n, bool),
        sampler_logp=np.zeros(n, np.float32),
        version=np.full(n, -1, np.int32),
        temperature=np.ones(n, np.float32),
        turn=np.full(n, -1, np.int32),
        images=tuple(SequenceImage(start, stop, part) for (start, stop), part in spans),
    )
    for turn, call in chain:
        action = slice(len(call.prompt), len(call.prompt) + len(call.action))
        sequence.action_mask[action.start + len(call.sampling.forced) : action.stop] = True
        sequence.turn[action] = turn
        sequence.sampler_logp[action] = call.sampler_logp
        sequence.version[action] = call.version
        sequence.temperature[action] = call.sampling.temperature
    return sequence


@dataclass(frozen=True, eq=False)
class TokenIndex:
    """Which sequence, turn, trajectory and group each token belongs to.

    N action tokens ordered by turn and call, R turns, J trajectories; all indices start at 0.
    Sequences are numbered by their first calls; where calls form a tree, the tokens of a sequence
    need not be adjacent. Estimators are functions of these arrays, so a statistic does not depend
    on how a trajectory was split into sequences.
    """

    token_sequence: np.ndarray = field(metadata=PER_TOKEN)  # int [N]
    token_position: np.ndarray = field(metadata=PER_TOKEN)  # int [N], within the sequence
    token_turn: np.ndarray = field(metadata=PER_TOKEN)  # int [N]
    turn_trajectory: np.ndarray = field(metadata=PER_TURN)  # int [R]
    turn_reward: np.ndarray = field(metadata=PER_TURN)  # float64 [R]
    turn_terminated: np.ndarray = field(metadata=PER_TURN)  # bool [R]
    trajectory_group: np.ndarray = field(metadata=PER_TRAJECTORY)  # int [J]

    @property
    def token_trajectory(self) -> np.ndarray:
        return self.turn_trajectory[self.token_turn]

    @property
    def trajectory_return(self) -> np.ndarray:
        """Undiscounted return of each trajectory, float64 [J]."""
        return np.bincount(
            self.turn_trajectory, self.turn_reward, minlength=len(self.trajectory_group)
        )


@dataclass(frozen=True, eq=False)
class CreditInputs(TokenIndex):
    """The inputs of credit assignment: indices, trajectories and the models' scores per token.

    Scores are [N], or None where no model computed them.
    """

    trajectories: Sequence[Trajectory] = field(metadata=PER_TRAJECTORY)  # [J]
    turns: Sequence[Turn] = field(metadata=PER_TURN)  # [R]
    token_sampler_logp: np.ndarray = field(metadata=PER_TOKEN)
    # The learner's, before the update.
    token_logp: np.ndarray | None = field(default=None, metadata=PER_TOKEN)
    token_ref_logp: np.ndarray | None = field(default=None, metadata=PER_TOKEN)
    # The critic's, of the state before the token.
    token_value: np.ndarray | None = field(default=None, metadata=PER_TOKEN)
    # Of the distribution that the token was sampled from.
    token_entropy: np.ndarray | None = field(default=None, metadata=PER_TOKEN)
    # Corrects the mismatch of sampler and learner; 1 where they agree.
    token_importance_weight: np.ndarray | None = field(default=None, metadata=PER_TOKEN)
    # bool: False where sampler and learner differ too much to learn from the token.
    token_accepted: np.ndarray | None = field(default=None, metadata=PER_TOKEN)


@dataclass(frozen=True, eq=False)
class CollatedSequences:
    """Groups as training sequences with their index arrays."""

    sequences: list[TrainingSequence]
    token_index: TokenIndex

    def token_values(self, field: str) -> np.ndarray:
        """A field of the sequences at the action tokens, [N]."""
        values = [getattr(sequence, field) for sequence in self.sequences]
        return np.concatenate(values or [np.zeros(0)])[self.flat_position]

    @functools.cached_property
    def flat_position(self) -> np.ndarray:
        """The position of each token in the concatenated sequences, int [N]."""
        starts = np.cumsum([0, *map(len, self.sequences)])
        return starts[self.token_index.token_sequence] + self.token_index.token_position


def collate(groups: Sequence[Group]) -> CollatedSequences:
    """Training sequences and index arrays of groups, in order.

    Trajectories without turns have no sequences and are not counted.

    Raises:
        ValueError: a reward is not finite.
    """
    sequences: list[TrainingSequence] = []
    token_sequence, token_position, token_turn = [], [], []
    turn_trajectory, turn_reward, turn_terminated, trajectory_group = [], [], [], []
    for g, group in enumerate(groups):
        for trajectory in group.trajectories:
            if not trajectory.turns:
                continue
            first_turn = len(turn_reward)
            chains = call_chains(trajectory)
            sequence_of_call = {
                id(call): len(sequences) + i for i, chain in enumerate(chains) for _, call in chain
            }
            sequences += map(_sequence_of_chain, chains)
            for t, turn in enumerate(trajectory.turns, first_turn):
                for call in turn.calls:
                    start = len(call.prompt) + len(call.sampling.forced)
                    positions = np.arange(start, len(call.prompt) + len(call.action))
                    token_sequence.append(np.full(len(positions), sequence_of_call[id(call)]))
                    token_position.append(positions)
                    token_turn.append(np.full(len(positions), t))
            turn_trajectory += [len(trajectory_group)] * len(trajectory.turns)
            turn_reward += [turn.reward for turn in trajectory.turns]
            turn_terminated += [turn.terminated for turn in trajectory.turns]
            trajectory_group.append(g)
    rewards = np.asarray(turn_reward, np.float64)
    if not np.isfinite(rewards).all():
        raise ValueError("a reward is not finite: the environment must return a number")
    token_index = TokenIndex(
        token_sequence=_concatenate_int(token_sequence),
        token_position=_concatenate_int(token_position),
        token_turn=_concatenate_int(token_turn),
        turn_trajectory=np.asarray(turn_trajectory, np.int64),
        turn_reward=rewards,
        turn_terminated=np.asarray(turn_terminated, bool),
        trajectory_group=np.asarray(trajectory_group, np.int64),
    )
    return CollatedSequences(sequences, token_index)


def _concatenate_int(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays).astype(np.int64) if arrays else np.zeros(0, np.int64)


def make_credit_inputs(groups: Sequence[Group], collated: CollatedSequences) -> CreditInputs:
    """The credit inputs of `collate(groups)` before any model has scored the tokens.

    Entropies are set where all calls recorded them.
    """
    trajectories = [x for group in groups for x in group.trajectories if x.turns]
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    calls = [call for turn in turns for call in turn.calls]
    entropies = [
        call.entropy[len(call.sampling.forced) :] for call in calls if call.entropy is not None
    ]
    is_complete = calls and len(entropies) == len(calls)
    return CreditInputs(
        **vars(collated.token_index),
        trajectories=trajectories,
        turns=turns,
        token_sampler_logp=collated.token_values("sampler_logp"),
        token_entropy=np.concatenate(entropies) if is_complete else None,
    )


def token_identity(groups: Sequence[Group], collated: CollatedSequences) -> float:
    """The fraction of trained tokens that are, in order, the recorded samples: always 1.0.

    Trained tokens come from the sequences, which are built from prompts; recorded ones from the
    calls. 0 where the sequences train other positions than these, or one of them twice.
    """
    return recorded_identity(RecordedTokens.of(groups), collated)


def recorded_identity(recorded: RecordedTokens, collated: CollatedSequences) -> float:
    """`token_identity` of groups, given their recorded tokens."""
    action_positions = np.flatnonzero(
        concatenate([x.action_mask for x in collated.sequences], np.bool_)
    )
    if len(action_positions) != len(recorded):
        return 0.0
    if not np.array_equal(np.sort(collated.flat_position), action_positions):
        return 0.0
    trained = collated.token_values("tokens")
    return float(np.mean(trained == recorded.tokens)) if len(trained) else 1.0
