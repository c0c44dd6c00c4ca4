"""Replay (slot `replay`): bounded stores of earlier rollouts, and how they are trained on again.
States are plain JSON data.
"""

from abc import abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agentrl_jax.algorithms.advantages.info_fields import succeeded
from agentrl_jax.algorithms.experience.stateful import Stateful
from agentrl_jax.algorithms.experience.trajectory_scores import (
    TrajectoryScore,
    group_scores,
    nonempty_trajectories,
    oldest_version,
    success,
    total_reward,
)
from agentrl_jax.rollout.strategy import RolloutPiece
from agentrl_jax.storage import trajectory_json
from agentrl_jax.trajectories import Group, Trajectory, Turn


class Replay(Stateful):
    """Base class of replay components (slot `replay` of `PolicyGradientConfig`): stored
    trajectories replace members of a group before credit is given.
    """

    @abstractmethod
    def inject(self, groups: Sequence[Group], rng: np.random.Generator) -> list[Group]:
        """The groups with stored trajectories in the place of members; may drop groups."""

    @abstractmethod
    def add(self, groups: Sequence[Group]) -> None:
        """Store from the fresh groups of a step, after its update."""


class _TaskStore:
    """The last `per_task` trajectories of each task, for the `max_tasks` most recent tasks."""

    def __init__(self, per_task: int, max_tasks: int) -> None:
        self._per_task, self._max_tasks = per_task, max_tasks
        self._trajectories: OrderedDict[str, deque[Trajectory]] = OrderedDict()

    def add(self, task: str, trajectory: Trajectory) -> None:
        self._trajectories.setdefault(task, deque(maxlen=self._per_task)).append(trajectory)
        self._trajectories.move_to_end(task)
        while len(self._trajectories) > self._max_tasks:
            self._trajectories.popitem(last=False)

    def get(self, task: str) -> Sequence[Trajectory]:
        return tuple(self._trajectories.get(task, ()))

    def __len__(self) -> int:
        return sum(map(len, self._trajectories.values()))

    def state(self) -> dict[str, Any]:
        return {
            "tasks": [
                [task, [trajectory_json.encode(t) for t in trajectories]]
                for task, trajectories in self._trajectories.items()
            ]
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._trajectories = OrderedDict(
            (task, deque(map(trajectory_json.decode, encoded), maxlen=self._per_task))
            for task, encoded in state["tasks"]
        )


class _TaskReplay(Replay):
    """A replay whose state is a `_TaskStore`."""

    _store: _TaskStore

    def __len__(self) -> int:
        return len(self._store)

    def state(self) -> dict[str, Any]:
        return self._store.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self._store.load(state)


@dataclass
class SuccessReplay(_TaskReplay):
    """ARPO for GUI (arXiv 2505.16282): a stored success of the task replaces a member of an
    all-failed group before advantages are computed.

    Where the scores' std is below `max_std` and their mean below `max_mean`, the first member is
    replaced by a stored trajectory drawn at random. Inject first, then add the *fresh* groups. The
    stored log-probs are those of the weights that sampled them: rescore the batch (`rescore`), as
    the paper does, so that ratios start at 1.
    """

    per_task: int = 8
    min_score: float = 0.1  # trajectories that score above this are stored
    max_std: float = 0.05
    max_mean: float = 0.2
    score: TrajectoryScore = total_reward
    max_tasks: int = 4096

    def __post_init__(self) -> None:
        self._store = _TaskStore(self.per_task, self.max_tasks)

    def add(self, groups: Sequence[Group]) -> None:
        for group in groups:
            for trajectory in nonempty_trajectories(group):
                if self.score(trajectory) > self.min_score:
                    self._store.add(group.task, trajectory)

    def inject(self, groups: Sequence[Group], rng: np.random.Generator) -> list[Group]:
        return [self._inject_into(group, rng) for group in groups]

    def _inject_into(self, group: Group, rng: np.random.Generator) -> Group:
        stored, scores = self._store.get(group.task), group_scores(group, self.score)
        std = scores.std(ddof=1) if len(scores) > 1 else 0.0
        if not stored or not len(scores) or std >= self.max_std or scores.mean() >= self.max_mean:
            return group
        replayed = stored[int(rng.integers(len(stored)))]
        return replace(group, trajectories=(replayed, *group.trajectories[1:]))


@dataclass
class NewestSuccessReplay(_TaskReplay):
    """DART (arXiv 2509.23866): the task's newest stored success replaces the oldest member of an
    all-failed group.

    The oldest member is the one sampled with the oldest weights; a stored success may be of any
    version.
    """

    drop_unsolved: bool = True  # drop an all-failed group of a task without a stored success
    score: TrajectoryScore = success
    max_tasks: int = 4096

    def __post_init__(self) -> None:
        self._store = _TaskStore(1, self.max_tasks)

    def add(self, groups: Sequence[Group]) -> None:
        for group in groups:
            for trajectory in nonempty_trajectories(group):
                if self.score(trajectory) > 0:
                    self._store.add(group.task, trajectory)

    def inject(self, groups: Sequence[Group], rng: np.random.Generator) -> list[Group]:
        """`rng` is not used: the choice is not random."""
        injected = []
        for group in groups:
            stored = self._store.get(group.task)
            if group_scores(group, self.score).any():
                injected.append(group)
            elif stored and group.trajectories:
                oldest = min(
                    range(len(group.trajectories)),
                    key=lambda i: oldest_version(group.trajectories[i]),
                )
                members = list(group.trajectories)
                members[oldest] = stored[-1]
                injected.append(replace(group, trajectories=tuple(members)))
            elif not self.drop_unsolved:
                injected.append(group)
        return injected


@dataclass
class _FifoBuffer(Stateful):
    """The last `size` trajectories that a subclass selects."""

    size: int

    def __post_init__(self) -> None:
        self._buffer: deque[Trajectory] = deque(maxlen=self.size)

    def __len__(self) -> int:
        return len(self._buffer)

    def sample(self, count: int, rng: np.random.Generator) -> list[Trajectory]:
        """Up to `count` stored trajectories without replacement, the oldest first."""
        chosen = rng.choice(len(self._buffer), min(count, len(self._buffer)), replace=False)
        return [self._buffer[i] for i in sorted(chosen.tolist())]

    def state(self) -> dict[str, Any]:
        return {"kept": [trajectory_json.encode(trajectory) for trajectory in self._buffer]}

    def load(self, state: Mapping[str, Any]) -> None:
        self._buffer = deque(
            (trajectory_json.decode(data) for data in state["kept"]), maxlen=self._buffer.maxlen
        )


@dataclass
class LowRewardBuffer(_FifoBuffer, RolloutPiece):
    """The last `size` trajectories that score at most `max_score`, for INSPO's reflection (arXiv
    2512.01945).
    """

    max_score: float
    score: TrajectoryScore = total_reward

    def add(self, groups: Sequence[Group]) -> None:
        for group in groups:
            self._buffer.extend(
                t for t in nonempty_trajectories(group) if self.score(t) <= self.max_score
            )


@dataclass
class FilteredBuffer(_FifoBuffer):
    """The last `size` trajectories for which `predicate` is true."""

    predicate: Callable[[Trajectory], bool]

    def add(self, groups: Sequence[Group]) -> None:
        for group in groups:
            self._buffer.extend(filter(self.predicate, nonempty_trajectories(group)))


def accept_all(turn: Turn) -> bool:
    """Every turn."""
    return True


@dataclass
class SolvedSteps(_FifoBuffer):
    """The last `size` distinct (state, action) pairs of solved episodes, each stored as a
    trajectory of one turn.

    A pair is the prompts and actions of a turn's calls (BFS-Prover-V2, arXiv 2509.06493).
    """

    accept_turn: Callable[[Turn], bool] = accept_all  # which turns of a solved episode are stored

    def add(self, groups: Sequence[Group]) -> None:
        stored = set(map(_state_action_key, self._buffer))
        solved = [
            trajectory
            for group in groups
            for trajectory in group.trajectories
            if succeeded(trajectory)
        ]
        for trajectory in solved:
            for turn in filter(self.accept_turn, trajectory.turns):
                step = trajectory.replace(turns=(turn,))
                if _state_action_key(step) not in stored:
                    stored.add(_state_action_key(step))
                    self._buffer.append(step)

    def drop_tasks(self, tasks: Collection[str]) -> None:
        """Drop the pairs of these tasks."""
        self._buffer = deque(
            (step for step in self._buffer if step.task not in tasks), maxlen=self.size
        )

    def trajectories(self) -> tuple[Trajectory, ...]:
        """All stored pairs, the oldest first."""
        return tuple(self._buffer)


def _state_action_key(trajectory: Trajectory) -> tuple[bytes, ...]:
    calls = trajectory.calls
    images = (repr(call.images).encode() for call in calls)
    return (*(ids.tobytes() for call in calls for ids in (call.prompt, call.action)), *images)
