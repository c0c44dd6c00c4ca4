"""Invariants of ArCHer's critic: what it replays are the turns of the episodes, and its batches are
what it replays.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from agentrl_jax.algorithms.archer.critic_losses import UtteranceCriticBatch
from agentrl_jax.algorithms.archer.replay_buffer import TokenizedText, Transition
from agentrl_jax.algorithms.archer.text_batches import TextTokenizer, policy_token_ids
from agentrl_jax.invariants import InvariantCheck, Invariants
from agentrl_jax.learner.recorded_tokens import concatenate
from agentrl_jax.trajectories import Trajectory


def replayed_turns(
    trajectories: Sequence[Trajectory], transitions: Sequence[Transition], gamma: float
) -> InvariantCheck:
    """The transitions are, in order, the turns of the trajectories that have an action: their
    prompts, actions, rewards, ends and returns.

    Args:
        trajectories: of a step.
        transitions: made of them.
        gamma: discount per turn of the returns.
    """
    expected = sum(
        len(turn.calls[-1].action) > 0 for trajectory in trajectories for turn in trajectory.turns
    )
    remaining, wrong = iter(transitions), 0
    for trajectory in trajectories:
        to_go = 0.0
        returns = [to_go := turn.reward + gamma * to_go for turn in reversed(trajectory.turns)]
        for i, return_to_go in enumerate(reversed(returns)):
            if len(trajectory.turns[i].calls[-1].action):
                transition = next(remaining, None)
                wrong += transition is None or not (
                    _is_turn(transition, trajectory, i)
                    and math.isclose(transition.return_to_go, return_to_go, abs_tol=1e-9)
                )
    return InvariantCheck(
        "replayed_turns",
        wrong == 0 and len(transitions) == expected,
        f"of {expected} turns {wrong} are not in the replay buffer as they were played (prompt, "
        f"action, reward, end or return), which got {len(transitions)} transitions",
    )


def _is_turn(transition: Transition, trajectory: Trajectory, index: int) -> bool:
    """Whether a transition is the turn of that index; the text after a last turn that was cut is
    rendered, and only has to be there.
    """
    turn, is_last = trajectory.turns[index], index + 1 == len(trajectory.turns)
    call, after = turn.calls[-1], transition.next_state.ids
    if is_last:
        follows = (len(after) == 0) == turn.terminated
    else:
        follows = np.array_equal(after, trajectory.turns[index + 1].calls[-1].prompt)
    return (
        follows
        and np.array_equal(transition.state.ids, call.prompt)
        and np.array_equal(transition.utterance.ids, call.action)
        and transition.reward == turn.reward
        and transition.terminated == turn.terminated
        and transition.truncated == (is_last and not turn.terminated)
        and transition.temperature == call.sampling.temperature
    )


@dataclass
class CriticRowChecks:
    """Checks `critic_rows` of a critic's batches, once a phase has begun."""

    tokenize: TextTokenizer
    max_lengths: tuple[int, int]  # the most tokens of a state and of an utterance
    invariants: Invariants = field(default_factory=Invariants)  # of the run
    num_checks: int = 0

    def check(
        self,
        microbatches: Sequence[UtteranceCriticBatch],
        row_indices: np.ndarray,
        transitions: Sequence[Transition],
        value_utterances: Sequence[TokenizedText],
    ) -> None:
        """Check a batch. Texts are tokenized again of all transitions where the critic takes the
        policy's ids, else of another one each time, since it takes long.
        """
        self.num_checks += 1
        i = self.num_checks % max(len(transitions), 1)
        read_again = slice(None) if self.tokenize is policy_token_ids else slice(i, i + 1)
        self.invariants.check(
            critic_rows,
            microbatches,
            row_indices,
            transitions,
            value_utterances,
            self.tokenize,
            self.max_lengths,
            read_again,
        )


def critic_rows(
    microbatches: Sequence[UtteranceCriticBatch],
    row_indices: np.ndarray,
    transitions: Sequence[Transition],
    value_utterances: Sequence[TokenizedText],
    tokenize: TextTokenizer,
    max_lengths: tuple[int, int],
    read_again: slice,
) -> InvariantCheck:
    """Each transition is in its row of the critic's batch, its four texts token by token, and no
    other row is trained.

    Args:
        microbatches: all of them, on the host.
        row_indices: of the transitions.
        transitions: of this process.
        value_utterances: of each transition, see `UtteranceCriticTrainer.update`.
        tokenize: as the critic reads a text.
        max_lengths: the most tokens of a state and of an utterance.
        read_again: the transitions whose texts are tokenized again and compared.
    """
    (state_length, utterance_length), compared = max_lengths, transitions[read_again]
    texts: Mapping[str, tuple[list[TokenizedText], int]] = {
        "states": ([t.state for t in compared], state_length),
        "next_states": ([t.next_state for t in compared], state_length),
        "utterances": ([t.utterance for t in compared], utterance_length),
        "value_utterances": (list(value_utterances[read_again]), utterance_length),
    }
    wrong = [
        name
        for name, (texts_of_kind, length) in texts.items()
        if not _holds_texts(
            [np.asarray(getattr(x.batch, name).tokens) for x in microbatches],
            [np.asarray(getattr(x.batch, name).mask) for x in microbatches],
            row_indices[read_again],
            tokenize(texts_of_kind, length),
        )
    ]
    outcomes = {
        "reward": [t.reward for t in transitions],
        "return_to_go": [t.return_to_go for t in transitions],
    }
    for name, values in outcomes.items():
        packed = concatenate([np.asarray(getattr(x.outcome, name)) for x in microbatches], float)
        if not np.array_equal(packed[row_indices, 0], np.array(values, np.float32)):
            wrong.append(name)
    bootstraps = concatenate([np.asarray(x.outcome.has_next_value) for x in microbatches], bool)
    has_ended = np.array([t.terminated for t in transitions], bool)
    if (bootstraps[row_indices, 0] & has_ended).any():
        wrong.append("has_next_value")
    weight = concatenate([np.asarray(x.batch.weight) for x in microbatches], float)[:, 0]
    trained = np.flatnonzero(weight)
    are_theirs = np.array_equal(trained, np.sort(row_indices))
    return InvariantCheck(
        "critic_rows",
        not wrong and are_theirs and len(np.unique(weight[trained])) <= 1,
        f"the critic's batch of {len(transitions)} transitions trains {len(trained)} rows"
        + (f", and its {', '.join(wrong)} are not those of the transitions" * bool(wrong)),
    )


def _holds_texts(
    tokens: Sequence[np.ndarray],
    masks: Sequence[np.ndarray],
    row_indices: np.ndarray,
    ids: Sequence[np.ndarray],
) -> bool:
    """Whether rows [B, T] hold the texts at their beginning and nothing else; an empty text has the
    mask of one token.
    """
    rows, mask = concatenate(tokens, int)[row_indices], concatenate(masks, bool)[row_indices]
    lengths = np.array([len(x) for x in ids], np.int64)
    column = np.arange(rows.shape[1])
    return bool(
        (mask == (column < np.maximum(lengths, 1)[:, None])).all()
        and np.array_equal(rows[column < lengths[:, None]], concatenate(ids, int))
    )
