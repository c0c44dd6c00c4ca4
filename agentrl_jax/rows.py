"""From trajectories to training rows, and the index arrays that say who owns each token."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.trajectories import Call, Group, Trajectory, Turn


@dataclass(frozen=True, eq=False)
class Row:
    """One training sequence: a longest chain of calls, each extending the last exactly.

    tokens       W o r d | s l a t e . | b b y b b . | c r a n e .
    action_mask  0 0 0 0 | 1 1 1 1 1 1 | 0 0 0 0 0 0 | 1 1 1 1 1 1
    turn           -1    |      0      |     -1      |      1
    """

    tokens: np.ndarray  # int32 [T]
    action_mask: np.ndarray  # bool [T]
    sampler_logp: np.ndarray  # float32 [T], 0 where the policy did not write
    version: np.ndarray  # int32 [T], -1 there
    temperature: np.ndarray  # float32 [T], 1 there
    turn: np.ndarray  # int32 [T]: turn within the trajectory, -1 there

    def __len__(self) -> int:
        return len(self.tokens)


def chains_of(trajectory: Trajectory) -> list[list[tuple[int, Call]]]:
    """The trajectory's calls, each with its turn, as chains: a call goes on with the longest one that its prompt repeats whole.

    Calls are a tree where a program branches, retries or lets several agents speak in turn; each is in one chain, in its order.
    """
    chains: list[list[tuple[int, Call]]] = []
    for turn, step in enumerate(trajectory.turns):
        for call in step.calls:
            whole = [chain for chain in chains if call.extends(chain[-1][1])]
            if whole:
                max(whole, key=lambda chain: len(chain[-1][1].ids)).append((turn, call))
            else:
                chains.append([(turn, call)])
    return chains


def rows_of(trajectory: Trajectory) -> list[Row]:
    """The trajectory's rows: one where its context only grew, several where history was rewritten or branched."""
    return [_row(chain) for chain in chains_of(trajectory)]


def context_cost(trajectory: Trajectory) -> tuple[int, int]:
    """(rows, recomputed): what the context manager's view of the history cost.

    Recomputed are the tokens of all prompts that do not extend the call before them, the first prompt left out: an engine that
    goes on from an episode's last call reads these anew. 1 row and 0 tokens where the context only grew.
    """
    chains = chains_of(trajectory)
    return len(chains), sum(len(chain[0][1].prompt) for chain in chains[1:])


def _row(chain: list[tuple[int, Call]]) -> Row:
    tokens = chain[-1][1].ids
    n = len(tokens)
    row = Row(
        tokens, np.zeros(n, bool), np.zeros(n, np.float32), np.full(n, -1, np.int32), np.ones(n, np.float32), np.full(n, -1, np.int32)
    )
    for turn, call in chain:
        span = slice(len(call.prompt), len(call.prompt) + len(call.action))
        row.action_mask[span.start + len(call.sampling.forced) : span.stop], row.turn[span] = True, turn
        row.sampler_logp[span], row.version[span], row.temperature[span] = call.sampler_logp, call.version, call.sampling.temperature
    return row


def distinct(rows: Sequence[Row]) -> tuple[list[Row], np.ndarray]:
    """The rows that differ in their tokens, in which of them were written or in a temperature; and which of these each row is."""
    names = [(row.tokens.tobytes(), row.action_mask.tobytes(), row.temperature.tobytes()) for row in rows]
    place = {name: i for i, name in enumerate(dict.fromkeys(names))}
    which = np.array([place[name] for name in names], np.int64)
    return [rows[i] for i in np.unique(which, return_index=True)[1]], which


@dataclass(frozen=True, eq=False)
class Indices:
    """Who owns what. N policy-written tokens turn by turn and call by call, R turns, J trajectories; everything starts at 0.

    Rows are numbered by their first calls; where calls are a tree, tokens of one row need not follow each other.
    Estimators are functions over these arrays, so a statistic cannot change because a trajectory was split into rows.
    """

    token_row: np.ndarray  # int [N]
    token_position: np.ndarray  # int [N], within the row
    token_turn: np.ndarray  # int [N]
    turn_trajectory: np.ndarray  # int [R]
    turn_reward: np.ndarray  # float64 [R]
    turn_terminated: np.ndarray  # bool [R]
    trajectory_group: np.ndarray  # int [J]

    @property
    def token_trajectory(self) -> np.ndarray:
        return self.turn_trajectory[self.token_turn]

    @property
    def trajectory_return(self) -> np.ndarray:
        """Undiscounted return of each trajectory, float64 [J]."""
        return np.bincount(self.turn_trajectory, self.turn_reward, minlength=len(self.trajectory_group))


@dataclass(frozen=True, eq=False)
class Evidence(Indices):
    """What is known when credit is given: who owns what, what happened, and what models say of each token, [N] or None."""

    trajectories: Sequence[Trajectory]  # [J]
    turns: Sequence[Turn]  # [R]
    token_sampler_logp: np.ndarray
    token_logp: np.ndarray | None = None  # the learner's, before the update
    token_ref_logp: np.ndarray | None = None
    token_value: np.ndarray | None = None  # the critic's, of the state that the token is written in
    token_entropy: np.ndarray | None = None  # of the distribution that it was drawn from
    token_trust: np.ndarray | None = None  # weight for what sampler and learner disagree on, 1 where they agree
    token_kept: np.ndarray | None = None  # bool: False where they disagree too much to learn from it


@dataclass(frozen=True, eq=False)
class Collated:
    """Groups as rows with their index arrays."""

    rows: list[Row]
    indices: Indices

    def tokens(self, field: str) -> np.ndarray:
        """A row field at the policy-written tokens, [N]."""
        return np.concatenate([getattr(row, field) for row in self.rows] or [np.zeros(0)])[self.places]

    @property
    def places(self) -> np.ndarray:
        """Where each token is in the rows laid end to end, int [N]."""
        return np.cumsum([0, *map(len, self.rows)])[self.indices.token_row] + self.indices.token_position


def collate(groups: Sequence[Group]) -> Collated:
    """Rows and index arrays of groups, in order. Trajectories without turns have no rows and do not count.

    Raises ValueError where a reward is not finite.
    """
    rows: list[Row] = []
    token_row, token_position, token_turn = [], [], []
    turn_trajectory, turn_reward, turn_terminated, trajectory_group = [], [], [], []
    for g, group in enumerate(groups):
        for trajectory in group.trajectories:
            if not trajectory.turns:
                continue
            first_turn = len(turn_reward)
            chains = chains_of(trajectory)
            row_of = {id(call): len(rows) + i for i, chain in enumerate(chains) for _, call in chain}
            rows += map(_row, chains)
            for turn, step in enumerate(trajectory.turns, first_turn):
                for call in step.calls:
                    positions = np.arange(len(call.prompt) + len(call.sampling.forced), len(call.prompt) + len(call.action))
                    token_row.append(np.full(len(positions), row_of[id(call)]))
                    token_position.append(positions)
                    token_turn.append(np.full(len(positions), turn))
            turn_trajectory += [len(trajectory_group)] * len(trajectory.turns)
            turn_reward += [turn.reward for turn in trajectory.turns]
            turn_terminated += [turn.terminated for turn in trajectory.turns]
            trajectory_group.append(g)
    rewards = np.asarray(turn_reward, np.float64)
    if not np.isfinite(rewards).all():
        raise ValueError("a reward is not finite: the environment must return a number")

    def whole(parts: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)

    indices = Indices(
        whole(token_row), whole(token_position), whole(token_turn), np.asarray(turn_trajectory, np.int64), rewards,
        np.asarray(turn_terminated, bool), np.asarray(trajectory_group, np.int64),
    )  # fmt: skip
    return Collated(rows, indices)


def evidence_of(groups: Sequence[Group], collated: Collated) -> Evidence:
    """The evidence of `collate(groups)` before any model has scored it; entropies are known where all calls recorded them."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories if trajectory.turns]
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    recorded = [call.entropy[len(call.sampling.forced) :] for turn in turns for call in turn.calls if call.entropy is not None]
    entropy = np.concatenate(recorded) if recorded and len(recorded) == sum(len(turn.calls) for turn in turns) else None
    return Evidence(
        **vars(collated.indices), trajectories=trajectories, turns=turns, token_sampler_logp=collated.tokens("sampler_logp"),
        token_entropy=entropy,
    )  # fmt: skip


def token_identity(groups: Sequence[Group], collated: Collated) -> float:
    """The share of policy-written training tokens that are, in order, exactly the recorded samples; always 1.0.

    The left side comes from the rows' full sequences (built from prompts), the right side from what each call sampled. 0 where
    the rows train other tokens than these, or one of them twice.
    """
    calls = [call for group in groups for trajectory in group.trajectories for call in trajectory.calls]
    recorded = np.concatenate([np.zeros(0, np.int32), *(call.action[len(call.sampling.forced) :] for call in calls)])
    written = np.flatnonzero(np.concatenate([np.zeros(0, bool), *(row.action_mask for row in collated.rows)]))
    if len(written) != len(recorded) or not np.array_equal(np.sort(collated.places), written):
        return 0.0
    trained = collated.tokens("tokens")
    return float(np.mean(trained == recorded)) if len(trained) else 1.0
