"""Replay (slot B): what is kept of earlier rollouts, bounded, and how it comes back. States are plain JSON data."""

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agentrl_jax import journal
from agentrl_jax.algorithms.filters import Score, oldest_version, played, scores_of, success, total_reward
from agentrl_jax.trajectories import Group, Trajectory, Turn


class _PerTask:
    """The last few trajectories of each task, of the tasks added to last."""

    def __init__(self, per_task: int, tasks: int) -> None:
        self._per_task, self._tasks = per_task, tasks
        self._kept: OrderedDict[str, deque[Trajectory]] = OrderedDict()

    def add(self, task: str, trajectory: Trajectory) -> None:
        self._kept.setdefault(task, deque(maxlen=self._per_task)).append(trajectory)
        self._kept.move_to_end(task)
        while len(self._kept) > self._tasks:
            self._kept.popitem(last=False)

    def of(self, task: str) -> Sequence[Trajectory]:
        return tuple(self._kept.get(task, ()))

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def state(self) -> dict[str, Any]:
        return {"tasks": [[task, [journal.encode(t) for t in kept]] for task, kept in self._kept.items()]}

    def load(self, state: Mapping[str, Any]) -> None:
        self._kept = OrderedDict(
            (task, deque((journal.decode(data) for data in kept), maxlen=self._per_task)) for task, kept in state["tasks"]
        )


class _Storing:
    """What those have in common that keep trajectories per task."""

    _store: _PerTask

    def __len__(self) -> int:
        return len(self._store)

    def state(self) -> dict[str, Any]:
        return self._store.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self._store.load(state)


@dataclass
class SuccessReplay(_Storing):
    """ARPO for GUI (arXiv 2505.16282): an all-failed group gets one of its task's stored successes, before advantages are computed.

    Where the scores' std is below `std` and their mean below `mean`, the first member is replaced by a stored trajectory drawn at
    random. Inject first, then add the *fresh* groups. The stored log-probs are those of the weights that sampled them: score the
    batch again (`rescore`), as the paper does, so that ratios start at 1.
    """

    per_task: int = 8
    accepts: float = 0.1  # what scores above this is stored
    std: float = 0.05
    mean: float = 0.2
    score: Score = total_reward
    tasks: int = 4096

    def __post_init__(self) -> None:
        self._store = _PerTask(self.per_task, self.tasks)

    def add(self, groups: Sequence[Group]) -> None:
        for group in groups:
            for trajectory in played(group):
                if self.score(trajectory) > self.accepts:
                    self._store.add(group.task, trajectory)

    def inject(self, groups: Sequence[Group], rng: np.random.Generator) -> list[Group]:
        return [self._injected(group, rng) for group in groups]

    def _injected(self, group: Group, rng: np.random.Generator) -> Group:
        stored, scores = self._store.of(group.task), scores_of(group, self.score)
        std = scores.std(ddof=1) if len(scores) > 1 else 0.0
        if not stored or not len(scores) or std >= self.std or scores.mean() >= self.mean:
            return group
        return replace(group, trajectories=(stored[int(rng.integers(len(stored)))], *group.trajectories[1:]))


@dataclass
class NewestSuccess(_Storing):
    """DART (arXiv 2509.23866): where nobody of a group succeeded, its oldest member is replaced by the task's newest stored success.

    The oldest is the one whose weights are; a stored success may be of any version. A group without one is dropped, unless told
    otherwise.
    """

    drop_unsolved: bool = True
    score: Score = success
    tasks: int = 4096

    def __post_init__(self) -> None:
        self._store = _PerTask(1, self.tasks)

    def add(self, groups: Sequence[Group]) -> None:
        for group in groups:
            for trajectory in played(group):
                if self.score(trajectory) > 0:
                    self._store.add(group.task, trajectory)

    def inject(self, groups: Sequence[Group], rng: np.random.Generator) -> list[Group]:
        """`rng` is not used: nothing is drawn."""
        injected = []
        for group in groups:
            stored = self._store.of(group.task)
            if scores_of(group, self.score).any():
                injected.append(group)
            elif stored and group.trajectories:
                oldest = min(range(len(group.trajectories)), key=lambda i: oldest_version(group.trajectories[i]))
                members = (stored[-1] if i == oldest else t for i, t in enumerate(group.trajectories))
                injected.append(replace(group, trajectories=tuple(members)))
            elif not self.drop_unsolved:
                injected.append(group)
        return injected


@dataclass
class _Fifo:
    """What those have in common that keep the last `size` trajectories worth keeping."""

    size: int

    def __post_init__(self) -> None:
        self._kept: deque[Trajectory] = deque(maxlen=self.size)

    def __len__(self) -> int:
        return len(self._kept)

    def draw(self, count: int, rng: np.random.Generator) -> list[Trajectory]:
        """Up to `count` of them, without replacement, the older first."""
        chosen = rng.choice(len(self._kept), min(count, len(self._kept)), replace=False)
        return [self._kept[i] for i in sorted(chosen.tolist())]

    def state(self) -> dict[str, Any]:
        return {"kept": [journal.encode(trajectory) for trajectory in self._kept]}

    def load(self, state: Mapping[str, Any]) -> None:
        self._kept = deque((journal.decode(data) for data in state["kept"]), maxlen=self._kept.maxlen)


@dataclass
class LowReward(_Fifo):
    """Trajectories that score at most `highest`, the last `size` of them, for somebody to reflect on (INSPO, arXiv 2512.01945)."""

    highest: float
    score: Score = total_reward

    def add(self, groups: Sequence[Group]) -> None:
        for group in groups:
            self._kept.extend(t for t in played(group) if self.score(t) <= self.highest)


@dataclass
class Chosen(_Fifo):
    """The last `size` trajectories that `choose` takes."""

    choose: Callable[[Trajectory], bool]

    def add(self, groups: Sequence[Group]) -> None:
        for group in groups:
            self._kept.extend(filter(self.choose, played(group)))


def every_turn(turn: Turn) -> bool:
    """All of them."""
    return True


@dataclass
class SolvedSteps(_Fifo):
    """Solved (state, action) pairs: the turns of solved episodes, each a trajectory of its own, no pair twice.

    A pair is the prompts and actions of a turn's calls; the last `size` are kept (BFS-Prover-V2, arXiv 2509.06493).
    """

    accepted: Callable[[Turn], bool] = every_turn  # which turns are on the path that solved it

    def add(self, groups: Sequence[Group]) -> None:
        seen = set(map(_pair, self._kept))
        solved = [trajectory for group in groups for trajectory in group.trajectories if trajectory.success]
        for trajectory in solved:
            for turn in filter(self.accepted, trajectory.turns):
                step = trajectory.replace(turns=(turn,))
                if _pair(step) not in seen:
                    seen.add(_pair(step))
                    self._kept.append(step)

    def forget(self, tasks: Collection[str]) -> None:
        """Drop what was kept of these tasks."""
        self._kept = deque((step for step in self._kept if step.task not in tasks), maxlen=self.size)

    def all(self) -> tuple[Trajectory, ...]:
        """Everything that is kept, the older first."""
        return tuple(self._kept)


def _pair(trajectory: Trajectory) -> tuple[bytes, ...]:
    return tuple(ids.tobytes() for call in trajectory.calls for ids in (call.prompt, call.action))
