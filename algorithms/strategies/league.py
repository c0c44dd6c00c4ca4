"""`League`: opponents drawn from earlier checkpoints of the policy."""

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.algorithms.strategies.self_play import outcome
from agentrl_jax.checkpoint import keep_params, kept_params
from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.local_engine import LocalEngine
from agentrl_jax.policy import Params
from agentrl_jax.run import Run
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Group

NAME = "opponent"  # of the agent and of its engine


def uniformly(scores: np.ndarray) -> np.ndarray:
    """All snapshots alike, [n]."""
    return np.ones(len(scores))


def hardest(scores: np.ndarray) -> np.ndarray:
    """(1 - x)^2 of the policy's mean score x against each, [n]: those that it loses to (AlphaStar's prioritised play)."""
    return (1 - scores) ** 2


def closest(scores: np.ndarray) -> np.ndarray:
    """x (1 - x), [n]: those of its own strength."""
    return scores * (1 - scores)


@dataclass
class League:
    """Keeps the policy's weights every `every` steps, the newest `most` of them, and draws one as opponent whenever weights are published.

    The first are those that the phase starts from; with `every` 0 they stay the only ones, a fixed opponent. Snapshots are files in the
    run folder, so memory holds one opponent: an engine of its own. What is drawn follows from the run's seed, the step and the
    scores: moving averages of 1 for a game won, 1/2 for one drawn, 0 for one lost.
    """

    every: int = 10
    most: int = 8
    weigh: Callable[[np.ndarray], np.ndarray] = uniformly
    rate: float = 0.2  # of the moving averages

    def __post_init__(self) -> None:
        if self.every < 0 or self.most < 1 or not 0 < self.rate <= 1:
            raise UserError(f"a league needs every >= 0, most >= 1 and 0 < rate <= 1: {self}")
        self.scores: dict[int, float] = {}  # of the policy against each snapshot, by version, the oldest first
        self.drawn = -1  # whose weights the opponent's engine holds
        self._saved: list[list[int]] = []  # what the last two checkpoints name

    def seated(self, own: int, seats: int) -> tuple[dict[str, Any], dict[int, str]]:
        return {"seats": list(range(seats))}, {seat: NAME for seat in range(seats) if seat != own}

    def join(self, run: Run) -> None:
        """Give the run's runtime the opponent and its engine, and listen."""
        agent = dataclasses.replace(run.agent, name=NAME, engine=NAME, trainable=False)
        run.runtime.add(NAME, agent, LocalEngine(run.policy, run.experiment.engine, run.params, text=run.tokenizer.decode))
        self.listen(run.runtime, run.run_dir / "league", run.experiment.seed)

    def listen(self, runtime: Runtime, folder: Path, seed: int) -> None:
        """From here on, go by the weights that the runtime publishes; snapshots are kept in `folder`."""
        self._runtime, self._folder, self._seed = runtime, folder, seed
        runtime.followers.append(self._follow)

    def _follow(self, params: Params, version: int, engine: str) -> None:
        """New weights of the policy: keep them where they are due, and draw the next opponent."""
        if engine == NAME:
            return
        if not self.scores or (self.every and version % self.every == 0 and version not in self.scores):
            self._keep(params, version)
        drawn = self.draw(version)
        if drawn != self.drawn:
            self.drawn = drawn
            self._runtime.publish(kept_params(self._path(drawn), params), drawn, NAME)

    def _keep(self, params: Params, version: int) -> None:
        keep_params(self._path(version), params)
        self.scores[version] = 0.5
        for oldest in list(self.scores)[: -self.most]:
            del self.scores[oldest]
        needed = {*self.scores, *(version for saved in self._saved for version in saved)}
        for path in self._folder.iterdir() if self._runtime.hosts.leads else ():
            if path.name.isdecimal() and int(path.name) not in needed:
                shutil.rmtree(path)

    def draw(self, version: int) -> int:
        """The opponent of a policy of that version."""
        weights = np.asarray(self.weigh(np.array(list(self.scores.values()))), np.float64)
        if not weights.any():  # nothing to tell them apart by: each has lost all, or won all
            weights = np.ones(len(weights))
        chosen = np.random.default_rng(seed_of(self._seed, 3, version)).choice(len(weights), p=weights / weights.sum())
        return list(self.scores)[chosen]

    def _path(self, version: int) -> Path:
        return self._folder / str(version)

    def tell(self, groups: Sequence[Group]) -> Any:
        """The sum of the outcomes against the opponent at work, and their number; where the policy had all seats there was none."""
        episodes = [
            [t for t in group.trajectories if t.sample == one] for group in groups for one in {t.sample for t in group.trajectories}
        ]
        outcomes = [outcome(ours) for ours, *others in episodes if not others]
        return [sum(outcomes), len(outcomes)]

    def learn(self, told: Sequence[Any]) -> None:
        total, count = np.sum(told, axis=0)
        if count and self.drawn in self.scores:
            self.scores[self.drawn] += self.rate * (float(total / count) - self.scores[self.drawn])

    def state(self) -> Any:
        self._saved = [*self._saved[-1:], list(self.scores)]
        return [[version, score] for version, score in self.scores.items()]

    def load(self, state: Any) -> None:
        self.scores = {int(version): float(score) for version, score in state}
        self._saved = [list(self.scores)]
