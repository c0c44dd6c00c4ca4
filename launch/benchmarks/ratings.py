"""`ratings`: Elo ratings of runs' policies and scripted ones, from games of each against each, and
the exploitability of the former where the game is small.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.algorithms.strategies.self_play import (
    Opponents,
    OtherAgent,
    ScriptedOpponent,
    SelfPlay,
    game_score,
)
from agentrl_jax.context import ContextManager
from agentrl_jax.environment import make
from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks.claims.exploitability import can_be_solved, run_exploitability
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.launch.players import resolve_environment
from agentrl_jax.multi_agent import MultiAgentEnvironment
from agentrl_jax.reporting.elo import EloRating, rate
from agentrl_jax.storage import config_json
from agentrl_jax.training.builders import load_tokenizer, make_runtime
from agentrl_jax.training.config import EnvironmentConfig
from agentrl_jax.training.model_configs import FrozenPolicy, ModelContext
from agentrl_jax.training.task_source import numbered
from agentrl_jax.trajectories import Group


def games_of(agent: str, opponent: Opponents) -> SelfPlay:
    """Two games of a task, the agent once in each seat."""
    return SelfPlay(2, agent=agent, opponents=opponent)


def points_of(group: Group) -> list[float]:
    """Those of the first player in the two games of a group: by the larger return, or, against a
    scripted policy, by its sign.
    """
    points = []
    for seat in (0, 1):
        by_seat = {t.agent_index: t for t in group.trajectories if t.sample == seat}
        first, second = by_seat.get(seat), by_seat.get(1 - seat)
        if first is not None and second is not None:
            difference = first.total_reward - second.total_reward
            points.append(0.5 * (1 + (difference > 0) - (difference < 0)))
        elif first is not None:
            points.append(game_score(first))
    return points


@dataclass
class Ratings:
    """Elo ratings of the policies of runs and of scripted ones in a game of two players."""

    player: tuple[str, ...] = option(
        (),
        "A run folder, with `:PHASE` for the policy after that phase, and `:PHASE:AGENT` for that "
        "of another agent; or a scripted policy of the game; repeated for each player. Scripted "
        "policies do not play each other.",
    )
    environment: str = option(
        "", "The game, of two players; by default that of the first run folder."
    )
    games: int = option(200, "Of each pair, half of them in each seat.")
    seed: int = option(1_000_000_000, "The first game's seed.")
    option: tuple[str, ...] = option((), "name=value for the game's constructor; may be repeated.")

    def prepare(self) -> None:
        """Uses this process's devices as a run's engine does."""

    def run(self) -> dict[str, Any]:
        """Play, print the table and report.

        Raises:
            UserError: there are fewer than two players or games, a name is neither a run folder nor
                a scripted policy, or the environment is no game of two players.
        """
        if len(set(self.player)) < 2 or len(set(self.player)) < len(self.player):
            raise UserError("give two or more --player=, each once")
        if self.games < 2:
            raise UserError("--games must be 2 or more: a game in each seat")
        runs = {name: _policy_of(name) for name in self.player if _is_run(name)}
        if not self.environment and not runs:
            raise UserError("give a game with --environment=agentrl/TicTacToe-v0")
        first_run = next(iter(runs.values())).run_dir if runs else ""
        environment = resolve_environment(self.environment, self.option, first_run, 0)
        game = _game(environment)
        scripted = game.scripted_policies
        for name in self.player:
            if name not in runs and name not in scripted:
                raise UserError(
                    f"--player={name} is neither a run folder nor one of the scripted policies "
                    f"{', '.join(scripted)}"
                )
        if not runs:
            raise UserError("scripted policies do not play each other: name a run folder, too")
        points = self._play(environment, game.context, runs)
        dropped = self.games // 2 * len(points) - sum(map(len, points.values()))
        if dropped:
            print(f"{dropped} deals are left out: an environment failed in one of their two games")
        ratings = rate(points, len(self.player), self.seed)
        exploitable = {
            name: run_exploitability(Path(run.run_dir), run.phase, run.policy, game)
            for name, run in runs.items()
            if can_be_solved(game)
        }
        totals = _totals(points, len(self.player))
        print(_table(self.player, ratings, totals, exploitable))
        return {
            "bench": "ratings",
            "dropped": dropped,
            "players": {
                name: {**dataclasses.asdict(rating), "exploitability": exploitable.get(name)}
                for name, rating in zip(self.player, ratings)
            },
        }

    def _play(
        self,
        environment: EnvironmentConfig,
        context: ContextManager,
        runs: Mapping[str, FrozenPolicy],
    ) -> dict[tuple[int, int], np.ndarray]:
        tasks = numbered(environment.fixed_tasks(self.games // 2, self.seed, environment))
        points = {}
        with make_runtime(environment) as runtime:
            for name, policy in runs.items():
                folder = Path(policy.run_dir)
                experiment = config_json.load_config(folder)
                tokenizer = load_tokenizer(folder / "tokenizer")
                model = ModelContext(experiment, folder, runtime, tokenizer, context, {})
                runtime.add_model(name, policy.open(name, model))
                # A group of `SelfPlay` holds the trajectories of trainable agents alone.
                runtime.agents[name] = dataclasses.replace(runtime.agents[name], trainable=True)
            for i, j in itertools.combinations(range(len(self.player)), 2):
                # A run comes first where the other is a scripted policy.
                first, second = sorted((i, j), key=lambda k: self.player[k] not in runs)
                if self.player[first] in runs:
                    kind = OtherAgent if self.player[second] in runs else ScriptedOpponent
                    games = games_of(self.player[first], kind(self.player[second]))
                    groups = runtime.collect(games, tasks, (self.seed, len(points)))
                    rows = [row for group in groups if len(row := points_of(group)) == 2]
                    points[first, second] = np.array(rows).reshape(-1, 2)
        return points


def _is_run(name: str) -> bool:
    return Path(name.partition(":")[0]).is_dir()


def _policy_of(name: str) -> FrozenPolicy:
    folder, phase, agent = (*name.split(":", 2), "", "")[:3]
    return FrozenPolicy(phase, folder, agent or "policy")


def _game(environment: EnvironmentConfig) -> MultiAgentEnvironment:
    """Raises UserError where the environment is no game of two players."""
    game = make(environment.name, environment.options)
    if not isinstance(game, MultiAgentEnvironment) or game.num_players != 2:
        raise UserError(f"{environment.name} is no game of two players, which ratings are for")
    return game


def _totals(points: dict[tuple[int, int], np.ndarray], num_players: int) -> np.ndarray:
    """Points and games of each player, [players, 2]."""
    totals = np.zeros((num_players, 2))
    for (i, j), rows in points.items():
        totals[i] += rows.sum(), rows.size
        totals[j] += rows.size - rows.sum(), rows.size
    return totals


def _table(
    names: Sequence[str],
    ratings: Sequence[EloRating],
    totals: np.ndarray,
    exploitable: Mapping[str, float],
) -> str:
    heads = ("player", "Elo (95 %)", "points a game", "games", "exploitability")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    order = sorted(range(len(names)), key=lambda i: -ratings[i].rating)
    for i in order:
        rating, (points, games), value = ratings[i], totals[i], exploitable.get(names[i])
        cells = (
            names[i],
            f"{rating.rating:.0f} ({rating.low:.0f} to {rating.high:.0f})",
            f"{points / games:.3f}",
            f"{games:.0f}",
            "-" if value is None else f"{value:.3f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
