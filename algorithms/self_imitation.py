"""Self-imitation (slot B): a policy's own better trajectories, replayed with the log-probs that they were written with."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agentrl_jax import journal
from agentrl_jax.algorithms.facts import tool_calls
from agentrl_jax.algorithms.filters import Score, played, scores_of, total_reward
from agentrl_jax.trajectories import Group, Trajectory


def with_logp(trajectory: Trajectory, logp: np.ndarray) -> Trajectory:
    """The trajectory whose recorded log-probs are these, one for each policy-written token: what a replay should anchor ratios to."""
    turns, start = [], 0
    for turn in trajectory.turns:
        calls = []
        for call in turn.calls:
            recorded = np.array(call.sampler_logp)
            written = len(recorded) - len(call.sampling.forced)
            recorded[len(call.sampling.forced) :] = logp[start : start + written]
            start += written
            calls.append(replace(call, sampler_logp=recorded))
        turns.append(replace(turn, calls=tuple(calls)))
    if start != len(logp):
        raise ValueError(f"the trajectory has {start} policy-written tokens, not {len(logp)}")
    return trajectory.replace(turns=tuple(turns))


@dataclass
class PositiveReplay:
    """SPEAR's self-imitation (arXiv 2509.22601): trajectories better than their group's mean, with the log-probs they were written with.

    When more than 1.5 `size` are stored, `draw` gives those that are still better than the median of the last `history` group
    means (A' = R - median > 0), a random subset whose size is a power of two, and forgets all. An item older than `patience`
    additions is dropped. Train what is drawn with `ExternalBaseline(replay.baseline)`, on the recorded log-probs.
    """

    size: int = 2048
    patience: int = 5  # the released scripts'; at most 10
    history: int = 10240
    surplus: float = 1.5
    needs_tool: bool = True  # only trajectories that called a tool
    score: Score = total_reward

    def __post_init__(self) -> None:
        self._additions = 0
        self._kept: deque[tuple[int, Trajectory]] = deque(maxlen=2 * self.size)
        self._means: deque[float] = deque(maxlen=self.history)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def ready(self) -> bool:
        return len(self._kept) > self.surplus * self.size

    @property
    def baseline(self) -> float:
        """The median of recent group means; raises ValueError before the first."""
        if not self._means:
            raise ValueError("there is no baseline yet: add groups first")
        return float(np.median(self._means))

    def add(self, groups: Sequence[Group]) -> None:
        """One more step's groups; counts as one addition for the age of what is stored."""
        self._additions += 1
        for group in groups:
            scores = scores_of(group, self.score)
            if not len(scores):
                continue
            self._means.append(float(scores.mean()))
            for trajectory, score in zip(played(group), scores):
                if score > scores.mean() and (not self.needs_tool or any(map(tool_calls, trajectory.turns))):
                    self._kept.append((self._additions, trajectory))
        fresh = [item for item in self._kept if self._additions - item[0] < self.patience]
        self._kept = deque(fresh, maxlen=2 * self.size)

    def draw(self, rng: np.random.Generator) -> list[Group]:
        """What is to be replayed now, each trajectory a group of its own; nothing where not enough is stored."""
        if not self.ready:
            return []
        good = [trajectory for _, trajectory in self._kept if self.score(trajectory) - self.baseline > 0]
        self._kept.clear()
        if not good:
            return []
        chosen = rng.choice(len(good), 1 << (len(good).bit_length() - 1), replace=False)
        return [Group(good[i].task, (good[i],)) for i in sorted(chosen.tolist())]

    def state(self) -> dict[str, Any]:
        kept = [[added, journal.encode(trajectory)] for added, trajectory in self._kept]
        return {"additions": self._additions, "means": list(self._means), "kept": kept}

    def load(self, state: Mapping[str, Any]) -> None:
        self._additions = state["additions"]
        self._means = deque(state["means"], maxlen=self.history)
        self._kept = deque(((added, journal.decode(data)) for added, data in state["kept"]), maxlen=2 * self.size)
