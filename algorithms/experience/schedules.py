"""Schedules: step -> number; and samplers that follow the success rate of tasks."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.rollout.strategy import RolloutPiece
from agentrl_jax.rollout.task_sampler import TaskSampler
from agentrl_jax.trajectories import Group

Schedule = Callable[[int], float]
ScalarOrSchedule = float | Schedule  # a constant, or a number that depends on the step


def value_at(scalar: ScalarOrSchedule, step: int) -> float:
    """The value at a step."""
    return float(scalar(step) if callable(scalar) else scalar)


@dataclass
class Constant:
    """`value` at every step."""

    value: float = 1.0

    def __call__(self, step: int) -> float:
        return self.value


@dataclass
class Linear:
    """Linear from `start` at step 0 to `end` at `steps`, then `end`."""

    start: float
    end: float
    steps: int

    def __call__(self, step: int) -> float:
        return self.start + (self.end - self.start) * min(step / self.steps, 1.0)


@dataclass
class Cosine:
    """From `start` to `end` along half a cosine: start + (end - start)(1 - cos(pi min(t / steps,
    1))) / 2.

    SPEAR (arXiv 2509.22601): its replay's coefficient is `Cosine(0, 1, steps)` with 100 steps on
    ALFWorld, 200 on WebShop and 300 on mathematics; that of its tool reward `Cosine(1, 0, 200)`.
    """

    start: float
    end: float
    steps: int

    def __call__(self, step: int) -> float:
        rise = 1.0 - math.cos(math.pi * min(step / self.steps, 1.0))
        return self.start + (self.end - self.start) * rise / 2.0


@dataclass
class Complement:
    """1 - schedule(step): the policy gradient's share beside imitation's."""

    schedule: ScalarOrSchedule

    def __call__(self, step: int) -> float:
        return 1.0 - value_at(self.schedule, step)


@dataclass
class ExponentialDecay:
    """start e^(-rate t)."""

    start: float
    rate: float

    def __call__(self, step: int) -> float:
        return self.start * math.exp(-self.rate * step)


@dataclass
class IntervalSchedule:
    """values[min(step // interval, last)]: ScalingInter-RL's rounds (arXiv 2509.08755), such as (8,
    12, 15) every 80 steps on WebArena.
    """

    values: Sequence[int | float]
    interval: int

    def __call__(self, step: int) -> int | float:
        return self.values[min(step // self.interval, len(self.values) - 1)]


@dataclass
class PiecewiseConstant:
    """`values[i]` of any type from step `starts[i]` on; the first start is 0 (SCoRe's two
    objectives).
    """

    values: Sequence[Any]
    starts: Sequence[int]

    def __post_init__(self) -> None:
        if (
            len(self.values) != len(self.starts)
            or list(self.starts) != sorted(self.starts)
            or self.starts[0] != 0
        ):
            raise UserError(
                "stages need a start each, in order and from 0: "
                f"{len(self.values)} values, starts {list(self.starts)}"
            )

    def __call__(self, step: int) -> Any:
        return self.values[sum(start <= step for start in self.starts) - 1]


@dataclass
class EPOPhaseWeight:
    """EPO's weight of its entropy band (arXiv 2509.22576): 1 - .2 (1 - e^(-2p)) in the first half,
    .8 e^(-3p) in the second, p in [0, 1] within the half. As released: 150 epochs, and a small jump
    in the middle.
    """

    epochs: int = 150

    def __post_init__(self) -> None:
        if self.epochs < 2:
            raise UserError(f"a phase of two halves has at least 2 epochs, not {self.epochs}")

    def __call__(self, step: int) -> float:
        half = self.epochs // 2
        if step <= half:
            return 1.0 - 0.2 * (1.0 - math.exp(-2.0 * step / half))
        return 0.8 * math.exp(-3.0 * (step - half) / (self.epochs - half))


def hard_task_probs(success_rates: np.ndarray, temperature: float) -> np.ndarray:
    """P_j proportional to exp((.5 - s_j) / temperature), s_j the success rate: hard tasks first
    (VLA-RL, arXiv 2505.18719, by its formula).
    """
    return _softmax((0.5 - np.asarray(success_rates, np.float64)) / temperature)


def half_solved_task_probs(success_rates: np.ndarray, temperature: float) -> np.ndarray:
    """P_j proportional to exp(-|.5 - s_j| / temperature): tasks solved about half the time first
    (VLA-RL, by its text).
    """
    return _softmax(-np.abs(0.5 - np.asarray(success_rates, np.float64)) / temperature)


def _softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


@dataclass
class RolloutCount:
    """DART's number of rollouts for a task solved with probability p (arXiv 2509.23866):
    `max_rollouts` for p below `threshold`, else max(1, int(9 / p - 7)).

    The released code has threshold 1 and switches it off.
    """

    threshold: float = 0.6
    max_rollouts: int = 8

    def __call__(self, success: float) -> int:
        if success < self.threshold:
            return self.max_rollouts
        return max(1, int(9.0 / success - 7.0 + 1e-9))  # 9 / .75 - 7 is 5, also in floating point


@dataclass
class SuccessRates:
    """Running success rate of each task: s <- s + ema_rate (outcome - s), from `initial_rate`."""

    ema_rate: float
    initial_rate: float = 0.5

    def __post_init__(self) -> None:
        self._rates: dict[str, float] = {}

    def add(self, task: str, success: float) -> None:
        before = self._rates.get(task, self.initial_rate)
        self._rates[task] = before + self.ema_rate * (success - before)

    def __call__(self, tasks: Sequence[str]) -> np.ndarray:
        return np.array([self._rates.get(task, self.initial_rate) for task in tasks])

    def state(self) -> dict[str, float]:
        return dict(self._rates)

    def load(self, state: Mapping[str, float]) -> None:
        self._rates = dict(state)


@dataclass
class SuccessRateSampler(TaskSampler):
    """Samples tasks by `probs_fn` of their running success rates: `hard_task_probs` or
    `half_solved_task_probs` (VLA-RL, arXiv 2505.18719).
    """

    temperature: float
    probs_fn: Callable[[np.ndarray, float], np.ndarray] = hard_task_probs
    ema_rate: float = 0.1
    initial_rate: float = 0.5

    def __post_init__(self) -> None:
        self._rates = SuccessRates(self.ema_rate, self.initial_rate)

    def sample(self, num_tasks: int, count: int, rng: np.random.Generator) -> list[int]:
        """`count` independent draws of task indices below `num_tasks`."""
        rates = self._rates([str(task) for task in range(num_tasks)])
        return rng.choice(num_tasks, count, p=self.probs_fn(rates, self.temperature)).tolist()

    def observe(self, tasks: Sequence[int], success_rates: Sequence[float]) -> None:
        """Update the running rates with a step's success rates of some tasks."""
        for task, success_rate in zip(tasks, success_rates):
            self._rates.add(str(task), success_rate)

    def state(self) -> dict[str, float]:
        return self._rates.state()

    def load(self, state: Mapping[str, float]) -> None:
        self._rates.load(state)


@dataclass
class RaiseOnPlateau(RolloutPiece):
    """Advances to the next of several values once an observed number has not grown by more than
    `min_delta` for `patience` observations.

    SimpleTIR (arXiv 2509.02479) limits episodes to 5 turns, and to 10 once their length stops
    growing: `values=(5, 10)`, observing the mean length. Its patience and threshold are not known.
    """

    values: Sequence[int | float]
    patience: int
    min_delta: float = 0.0

    def __post_init__(self) -> None:
        if not self.values or self.patience < 1:
            raise UserError("raising on a plateau needs values and a patience of at least 1")
        self._index, self._best, self._num_without_gain = 0, -math.inf, 0

    def observe(self, value: float) -> None:
        if value > self._best + self.min_delta:
            self._best, self._num_without_gain = value, 0
            return
        self._num_without_gain += 1
        if self._num_without_gain >= self.patience and self._index < len(self.values) - 1:
            self._index, self._best, self._num_without_gain = self._index + 1, -math.inf, 0

    def summarize(self, groups: Sequence[Group]) -> list[int]:
        """As the turn limit of rollouts (`Rollouts.max_turns`): numbers of turns and episodes."""
        lengths = [[len(t.turns), 1] for group in groups for t in group.trajectories]
        return np.sum(lengths or [[0, 0]], axis=0).tolist()

    def update(self, summaries: Sequence[Sequence[int]]) -> None:
        """Observe the mean number of turns of all processes' episodes."""
        turns, episodes = np.sum(summaries, axis=0)
        self.observe(turns / max(episodes, 1))

    @property
    def value(self) -> int | float:
        return self.values[self._index]

    def __call__(self, step: int) -> int | float:
        """As a schedule: the current value, whatever the step."""
        return self.value

    def state(self) -> dict[str, Any]:
        return {
            "at": self._index,
            "best": None if self._best == -math.inf else self._best,
            "waited": self._num_without_gain,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._index, self._num_without_gain = state["at"], state["waited"]
        self._best = -math.inf if state["best"] is None else state["best"]
