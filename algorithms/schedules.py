"""Schedules (slot S): step -> number, and what follows the success of tasks."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError

Schedule = Callable[[int], float]
Number = float | Schedule  # wherever a constant may as well follow the step


def at(number: Number, step: int) -> float:
    """The number at a step."""
    return float(number(step) if callable(number) else number)


@dataclass
class Constant:
    value: float = 1.0

    def __call__(self, step: int) -> float:
        return self.value


@dataclass
class Linear:
    """From `start` at step 0 to `end` at `steps`, and `end` after."""

    start: float
    end: float
    steps: int

    def __call__(self, step: int) -> float:
        return self.start + (self.end - self.start) * min(step / self.steps, 1.0)


@dataclass
class Cosine:
    """From `start` to `end` along half a cosine: start + (end - start)(1 - cos(pi min(t / steps, 1))) / 2.

    SPEAR (arXiv 2509.22601): its replay's coefficient is `Cosine(0, 1, steps)` with 100 steps on ALFWorld, 200 on WebShop and
    300 on mathematics; that of its tool reward `Cosine(1, 0, 200)`.
    """

    start: float
    end: float
    steps: int

    def __call__(self, step: int) -> float:
        return self.start + (self.end - self.start) * (1.0 - math.cos(math.pi * min(step / self.steps, 1.0))) / 2.0


@dataclass
class Exponential:
    """start e^(-rate t)."""

    start: float
    rate: float

    def __call__(self, step: int) -> float:
        return self.start * math.exp(-self.rate * step)


@dataclass
class Stepped:
    """values[min(step // every, last)]: ScalingInter-RL's rounds (arXiv 2509.08755), such as (8, 12, 15) every 80 steps on WebArena."""

    values: Sequence[int | float]
    every: int

    def __call__(self, step: int) -> int | float:
        return self.values[min(step // self.every, len(self.values) - 1)]


@dataclass
class Staged:
    """Anything at all in stages: `values[i]` from step `starts[i]` on; the first start is 0 (SCoRe's two objectives)."""

    values: Sequence[Any]
    starts: Sequence[int]

    def __post_init__(self) -> None:
        if len(self.values) != len(self.starts) or list(self.starts) != sorted(self.starts) or self.starts[0] != 0:
            raise UserError(f"stages need a start each, in order and from 0: {len(self.values)} values, starts {list(self.starts)}")

    def __call__(self, step: int) -> Any:
        return self.values[sum(start <= step for start in self.starts) - 1]


@dataclass
class PhaseWeight:
    """EPO's weight of its entropy band (arXiv 2509.22576): 1 - .2 (1 - e^(-2p)) in the first half, .8 e^(-3p) in the second, p in
    [0, 1] within the half. As released: 150 epochs, and a small jump in the middle."""

    epochs: int = 150

    def __call__(self, step: int) -> float:
        half = self.epochs // 2
        if step <= half:
            return 1.0 - 0.2 * (1.0 - math.exp(-2.0 * step / half))
        return 0.8 * math.exp(-3.0 * (step - half) / (self.epochs - half))


def hard_first(success: np.ndarray, temperature: float) -> np.ndarray:
    """P_j proportional to exp((.5 - s_j) / temperature): the less a task succeeds, the likelier (VLA-RL, arXiv 2505.18719, its formula)."""
    return _softmax((0.5 - np.asarray(success, np.float64)) / temperature)


def half_solved_first(success: np.ndarray, temperature: float) -> np.ndarray:
    """P_j proportional to exp(-|.5 - s_j| / temperature): tasks solved about half the time (VLA-RL, its wording)."""
    return _softmax(-np.abs(0.5 - np.asarray(success, np.float64)) / temperature)


def _softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


@dataclass
class RolloutCount:
    """DART's number of rollouts for a task solved with probability p (arXiv 2509.23866): p below `threshold`: `most`, else
    max(1, int(9 / p - 7)). Released with threshold 1, and switched off."""

    threshold: float = 0.6
    most: int = 8

    def __call__(self, success: float) -> int:
        if success < self.threshold:
            return self.most
        return max(1, int(9.0 / success - 7.0 + 1e-9))  # 9 / .75 - 7 is 5, also in floating point


@dataclass
class SuccessRates:
    """Each task's running success rate: s becomes s + rate (outcome - s), from `start`."""

    rate: float
    start: float = 0.5

    def __post_init__(self) -> None:
        self._rates: dict[str, float] = {}

    def add(self, task: str, success: float) -> None:
        before = self._rates.get(task, self.start)
        self._rates[task] = before + self.rate * (success - before)

    def __call__(self, tasks: Sequence[str]) -> np.ndarray:
        return np.array([self._rates.get(task, self.start) for task in tasks])

    def state(self) -> dict[str, float]:
        return dict(self._rates)

    def load(self, state: Mapping[str, float]) -> None:
        self._rates = dict(state)


@dataclass
class SuccessDriven:
    """Worlds drawn with P from their running success rates: `hard_first`, or `half_solved_first` (VLA-RL, arXiv 2505.18719)."""

    temperature: float
    weigh: Callable[[np.ndarray, float], np.ndarray] = hard_first
    rate: float = 0.1
    start: float = 0.5

    def __post_init__(self) -> None:
        self._rates = SuccessRates(self.rate, self.start)

    def choose(self, worlds: int, count: int, rng: np.random.Generator) -> list[int]:
        """Each draw is independent of the others."""
        rates = self._rates([str(world) for world in range(worlds)])
        return rng.choice(worlds, count, p=self.weigh(rates, self.temperature)).tolist()

    def learn(self, worlds: Sequence[int], successes: Sequence[float]) -> None:
        for world, success in zip(worlds, successes):
            self._rates.add(str(world), success)

    def state(self) -> dict[str, float]:
        return self._rates.state()

    def load(self, state: Mapping[str, float]) -> None:
        self._rates.load(state)


@dataclass
class RaiseOnPlateau:
    """The next of several values once a watched number has not grown by `gain` for `patience` observations.

    SimpleTIR (arXiv 2509.02479) lets an episode have 5 turns, and 10 once its length stops growing: `values=(5, 10)`, watching the
    mean length. Patience and gain are not known.
    """

    values: Sequence[int | float]
    patience: int
    gain: float = 0.0

    def __post_init__(self) -> None:
        if not self.values or self.patience < 1:
            raise UserError("raising on a plateau needs values and a patience of at least 1")
        self._at, self._best, self._waited = 0, -math.inf, 0

    def observe(self, number: float) -> None:
        if number > self._best + self.gain:
            self._best, self._waited = number, 0
            return
        self._waited += 1
        if self._waited >= self.patience and self._at < len(self.values) - 1:
            self._at, self._best, self._waited = self._at + 1, -math.inf, 0

    @property
    def value(self) -> int | float:
        return self.values[self._at]

    def __call__(self, step: int) -> int | float:
        """As a schedule: the step itself does not matter."""
        return self.value

    def state(self) -> dict[str, Any]:
        return {"at": self._at, "best": None if self._best == -math.inf else self._best, "waited": self._waited}

    def load(self, state: Mapping[str, Any]) -> None:
        self._at, self._waited = state["at"], state["waited"]
        self._best = -math.inf if state["best"] is None else state["best"]
