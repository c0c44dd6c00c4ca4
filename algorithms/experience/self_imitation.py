"""Self-imitation (slot `replay`): replay of a policy's better trajectories with the log-probs that
they were sampled with.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agentrl_jax.algorithms.advantages.info_fields import called_tools
from agentrl_jax.algorithms.experience.stateful import Stateful
from agentrl_jax.algorithms.experience.trajectory_scores import (
    TrajectoryScore,
    group_scores,
    nonempty_trajectories,
    total_reward,
)
from agentrl_jax.storage import trajectory_json
from agentrl_jax.trajectories import Group, Trajectory


def replace_sampler_logp(trajectory: Trajectory, logp: np.ndarray) -> Trajectory:
    """The trajectory with these recorded log-probs, one per policy-written token: the log-probs
    that a replay's ratios are to.
    """
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
class PositiveReplay(Stateful):
    """SPEAR's self-imitation (arXiv 2509.22601): trajectories better than their group's mean, with
    the log-probs that they were sampled with.

    When more than `ready_factor` x `size` are stored, `sample` returns those that are still better
    than the median of the last `baseline_window` group means (A' = R - median > 0), a random subset
    whose size is a power of two, and empties the buffer. A trajectory older than `max_age`
    additions is dropped. Train the sample with `ExternalBaseline(replay.baseline)` on the recorded
    log-probs.
    """

    size: int = 2048
    max_age: int = 5  # the released scripts'; at most 10
    baseline_window: int = 10240
    ready_factor: float = 1.5
    require_tool_call: bool = True  # only trajectories that called a tool
    score: TrajectoryScore = total_reward

    def __post_init__(self) -> None:
        self._additions = 0
        self._buffer: deque[tuple[int, Trajectory]] = deque(maxlen=2 * self.size)
        self._group_means: deque[float] = deque(maxlen=self.baseline_window)

    def __len__(self) -> int:
        return len(self._buffer)

    @property
    def is_ready(self) -> bool:
        return len(self._buffer) > self.ready_factor * self.size

    @property
    def baseline(self) -> float:
        """The median of recent group means; raises ValueError before the first."""
        if not self._group_means:
            raise ValueError("there is no baseline yet: add groups first")
        return float(np.median(self._group_means))

    def add(self, groups: Sequence[Group]) -> None:
        """Store from the groups of one step, which counts as one addition."""
        self._additions += 1
        for group in groups:
            scores = group_scores(group, self.score)
            if not len(scores):
                continue
            self._group_means.append(float(scores.mean()))
            for trajectory, score in zip(nonempty_trajectories(group), scores):
                if score > scores.mean() and (
                    not self.require_tool_call or any(map(called_tools, trajectory.turns))
                ):
                    self._buffer.append((self._additions, trajectory))
        fresh = [item for item in self._buffer if self._additions - item[0] < self.max_age]
        self._buffer = deque(fresh, maxlen=2 * self.size)

    def sample(self, rng: np.random.Generator) -> list[Group]:
        """The trajectories to replay now, each as a group of its own; none where too few are
        stored.
        """
        if not self.is_ready:
            return []
        good = [
            trajectory
            for _, trajectory in self._buffer
            if self.score(trajectory) - self.baseline > 0
        ]
        self._buffer.clear()
        if not good:
            return []
        chosen = rng.choice(len(good), 1 << (len(good).bit_length() - 1), replace=False)
        return [Group(good[i].task, (good[i],)) for i in sorted(chosen.tolist())]

    def state(self) -> dict[str, Any]:
        stored = [[added, trajectory_json.encode(trajectory)] for added, trajectory in self._buffer]
        return {"additions": self._additions, "means": list(self._group_means), "kept": stored}

    def load(self, state: Mapping[str, Any]) -> None:
        self._additions = state["additions"]
        self._group_means = deque(state["means"], maxlen=self.baseline_window)
        self._buffer = deque(
            ((added, trajectory_json.decode(data)) for added, data in state["kept"]),
            maxlen=2 * self.size,
        )
