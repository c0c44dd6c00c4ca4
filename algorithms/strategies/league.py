"""`League`: opponents drawn from earlier checkpoints of the policy."""

import dataclasses
import itertools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.algorithms.strategies.self_play import game_score
from agentrl_jax.errors import UserError
from agentrl_jax.inference.engine_pool import make_engine
from agentrl_jax.keys import seed_of
from agentrl_jax.learner.checkpoint import restore_params, save_params
from agentrl_jax.policy import Params
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import RolloutPiece
from agentrl_jax.training.config import RunContext
from agentrl_jax.trajectories import Group

OPPONENT_NAME = "opponent"  # of the agent and of its engine


def uniform_weights(scores: np.ndarray) -> np.ndarray:
    """The same weight for all snapshots, [n]."""
    return np.ones(len(scores))


def hardest_first_weights(scores: np.ndarray) -> np.ndarray:
    """(1 - x)^2 of the policy's mean score x against each, [n]: snapshots that it loses to.

    AlphaStar's prioritized fictitious self-play.
    """
    return (1 - scores) ** 2


def closest_match_weights(scores: np.ndarray) -> np.ndarray:
    """x (1 - x), [n]: snapshots of the policy's own strength."""
    return scores * (1 - scores)


@dataclass
class League(RolloutPiece):
    """Opponents drawn from snapshots of the policy's weights, at each publication of weights.

    There is a snapshot every `every` steps, and the newest `max_snapshots` are in the league. The
    first has the phase's initial weights; with `every` 0 it is the only one, a fixed opponent.
    Snapshots are files in the run folder, so memory holds one opponent, on an engine of its own.
    The draw follows from the run's seed, the step and the scores: moving averages of 1 for a game
    won, 1/2 for one drawn, 0 for one lost.
    """

    every: int = 10
    max_snapshots: int = 8
    opponent_weights: Callable[[np.ndarray], np.ndarray] = uniform_weights
    ema_rate: float = 0.2  # of the moving averages

    def __post_init__(self) -> None:
        if self.every < 0 or self.max_snapshots < 1 or not 0 < self.ema_rate <= 1:
            raise UserError(
                f"a league needs every >= 0, max_snapshots >= 1 and 0 < ema_rate <= 1: {self}"
            )
        # Of the policy against each snapshot, by version, the oldest first.
        self.scores: dict[int, float] = {}
        self.current_opponent = -1  # the version in the opponent's engine
        self._checkpointed_versions: list[list[int]] = []  # in the last two checkpoints

    def assign_players(
        self, policy_player: int, num_players: int
    ) -> tuple[dict[str, Any], dict[int, str]]:
        opponents = {i: OPPONENT_NAME for i in range(num_players) if i != policy_player}
        return {"seats": list(range(num_players))}, opponents

    def attach(self, run: RunContext) -> None:
        """Add the opponent and its engine to the run's runtime, and subscribe to its weights."""
        agent = dataclasses.replace(
            run.agent, name=OPPONENT_NAME, engine=OPPONENT_NAME, trainable=False
        )
        run.runtime.add_agent(
            OPPONENT_NAME,
            agent,
            make_engine(
                run.policy,
                run.experiment.engine,
                run.params,
                run.tokenizer.decode,
                run.runtime.invariants.call_checksum,
            ),
        )
        folder = run.run_dir / "league" / run.phase
        self.subscribe(run.runtime, folder, run.experiment.seed, run.agent.engine)

    def subscribe(self, runtime: Runtime, folder: Path, seed: int, engine: str = "policy") -> None:
        """Follow the weights that the runtime publishes to an engine; snapshots are files in
        `folder`.
        """
        self._runtime, self._folder, self._seed, self._engine = runtime, folder, seed, engine
        runtime.publish_callbacks.append(self._on_publish)

    def _on_publish(self, params: Params, version: int, engine: str) -> None:
        """Save a snapshot of new weights where one is due, and draw the next opponent."""
        if engine != self._engine:
            return
        if not self.scores or (
            self.every and version % self.every == 0 and version not in self.scores
        ):
            self._save_snapshot(params, version)
        opponent = self.draw_opponent(version)
        if opponent != self.current_opponent:
            self.current_opponent = opponent
            opponent_params = restore_params(self._snapshot_path(opponent), params)
            self._runtime.publish(opponent_params, opponent, OPPONENT_NAME)

    def _save_snapshot(self, params: Params, version: int) -> None:
        process_group = self._runtime.process_group
        save_params(self._snapshot_path(version), params, process_group)
        self.scores[version] = 0.5
        for oldest in list(self.scores)[: -self.max_snapshots]:
            del self.scores[oldest]
        needed = {*self.scores, *itertools.chain.from_iterable(self._checkpointed_versions)}
        for path in self._folder.iterdir() if process_group.is_coordinator else ():
            if path.name.isdecimal() and int(path.name) not in needed:
                shutil.rmtree(path)

    def draw_opponent(self, version: int) -> int:
        """The version of the opponent of a policy of this version."""
        scores = np.array(list(self.scores.values()))
        weights = np.asarray(self.opponent_weights(scores), np.float64)
        if not weights.any():  # each snapshot has lost all games, or won all
            weights = np.ones(len(weights))
        rng = np.random.default_rng(seed_of(self._seed, 3, version))
        index = rng.choice(len(weights), p=weights / weights.sum())
        return list(self.scores)[index]

    def _snapshot_path(self, version: int) -> Path:
        return self._folder / str(version)

    def summarize(self, groups: Sequence[Group]) -> Any:
        """The sum and the number of the scores against the current opponent.

        Episodes in which the policy had all players are left out.
        """
        episodes = [
            [t for t in group.trajectories if t.sample == sample]
            for group in groups
            for sample in {t.sample for t in group.trajectories}
        ]
        scores = [game_score(episode[0]) for episode in episodes if len(episode) == 1]
        return [sum(scores), len(scores)]

    def update(self, summaries: Sequence[Any]) -> None:
        total, count = np.sum(summaries, axis=0)
        opponent = self.current_opponent
        if count and opponent in self.scores:
            error = float(total / count) - self.scores[opponent]
            self.scores[opponent] += self.ema_rate * error

    def state(self) -> Any:
        self._checkpointed_versions = [*self._checkpointed_versions[-1:], list(self.scores)]
        return [[version, score] for version, score in self.scores.items()]

    def load(self, state: Any) -> None:
        self.scores = {int(version): float(score) for version, score in state}
        self._checkpointed_versions = [list(self.scores)]
