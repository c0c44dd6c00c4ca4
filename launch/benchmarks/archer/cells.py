"""The cells of the comparison: one seed of a side at a setting, each a small file."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.configs.archer_claim import TASKS
from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks.archer.measures import TurnsToLevel, turns_to_level
from agentrl_jax.launch.benchmarks.archer.rho import PossibleTargets, chain_variance
from agentrl_jax.launch.benchmarks.archer.settings import SIDES, TUNING_SEEDS, ClaimSide, Setting
from agentrl_jax.launch.benchmarks.archer.trainer import TurnTrainer
from agentrl_jax.launch.sweeps.cached_cells import CachedCell
from agentrl_jax.launch.sweeps.cells import Cell
from agentrl_jax.launch.sweeps.grid import load_experiment
from agentrl_jax.storage.files import write_json
from agentrl_jax.trajectories import Trajectory

CONFIG = "configs/archer_claim.py"
STATES, UTTERANCES = 96, 8  # of which rho is measured
VARIED = 1  # settings of the grid near which a side's second field is varied
PROMOTED = 2  # settings of the first round that play the second tuning seed


@dataclass(frozen=True)
class ClaimCell:
    """One seed of a side of a task at a setting."""

    task: str
    side: ClaimSide
    setting: Setting
    seed: int

    @property
    def cell(self) -> Cell:
        overrides = self.setting.overrides(self.side.kind)
        return Cell(f"{CONFIG}:{self.task}-{self.side.variant}", overrides, self.seed, Path())

    def cached(self, folder: Path) -> CachedCell:
        """Its file; `save` is `run`'s."""
        path = folder / self.task / self.side.variant / self.setting.name / f"{self.seed}.json"
        task = TASKS[self.task]
        protocol = f"{task.turns} turns, every {task.evaluate_every}, {task.games} games"
        return CachedCell(path, self.cell, lambda _: {}, {"protocol": protocol})

    def run(self, trainer: TurnTrainer, folder: Path) -> None:
        """Train and write the file."""
        task, experiment = TASKS[self.task], load_experiment(self.cell)
        name = f"{self.side.variant},{self.setting.name}"
        curve = trainer.train(name, experiment, task.turns, task.evaluate_every, task.games)
        replace(self.cached(folder), measure=lambda _: asdict(curve)).save()

    def load(self, folder: Path) -> dict[str, Any] | None:
        """Its results; None: missing. Raises UserError as `CachedCell.load`."""
        return self.cached(folder).load()


def expert_path(task: str, folder: Path) -> Path:
    return folder / task / "expert.json"


def save_expert(task: str, trainer: TurnTrainer, folder: Path) -> None:
    """Write the expert's mean return in the evaluation games."""
    path = expert_path(task, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"return": trainer.evaluate_scripted("expert", TASKS[task].games)})


def expert_return(task: str, folder: Path) -> float | None:
    """The expert's mean return; None: not measured yet."""
    path = expert_path(task, folder)
    return json.loads(path.read_text())["return"] if path.exists() else None


def save_credit(task: str, trainer: TurnTrainer, rerolls: int, folder: Path) -> None:
    """Write rho of the fine-tuned policy, and what the start's games are like."""
    options, seed = TASKS[task].options, TUNING_SEEDS[0]
    games = trainer.play_start(seed, STATES)
    episodes = [t for group in games for t in group.trajectories]
    turns = [turn for t in episodes for turn in t.turns]
    if "length" in options:  # a chain: exact, for a policy that is right as often as this one
        right = float(
            np.mean(
                [_is_right(t, i, options["length"]) for t in episodes for i in range(len(t.turns))]
            )
        )
        variance = chain_variance(options["length"], options["horizon"], right)
        how = f"exact, for a policy that is right with probability {right:.3f}"
    else:
        posterior = PossibleTargets(options["words"])
        variance = trainer.rerolled_variance(seed, STATES, UTTERANCES, rerolls, posterior)
        how = f"{STATES} states, {UTTERANCES} utterances of each, {rerolls} games of these"
    write_json(
        folder / task / "rho.json",
        {
            **asdict(variance),
            "rho": variance.rho,
            "bound": variance.bound if variance.rho else None,
            "how": how,
            "return": float(np.mean([t.total_reward for t in episodes])),
            "turns_per_game": len(turns) / len(episodes),
            "tokens_per_utterance": float(
                np.mean([len(call.action) for turn in turns for call in turn.calls])
            ),
        },
    )


def _is_right(trajectory: Trajectory, turn: int, length: int) -> bool:
    """Whether a turn of a chain came closer to its end."""
    before = trajectory.turns[turn - 1].info["distance"] if turn else length
    return trajectory.turns[turn].info["distance"] < before


def load_credit(task: str, folder: Path) -> dict[str, Any] | None:
    """What `save_credit` wrote; None: missing."""
    path = folder / task / "rho.json"
    return json.loads(path.read_text()) if path.exists() else None


def cell_turns(cell: ClaimCell, folder: Path) -> TurnsToLevel | None:
    """Turns until the level of its own start; None: missing."""
    results, expert = cell.load(folder), expert_return(cell.task, folder)
    if results is None or expert is None:
        return None
    level = (results["returns"][0] + expert) / 2
    return turns_to_level(results["turns"], results["returns"], level, TASKS[cell.task].turns)


def tuned_setting(task: str, side: ClaimSide, folder: Path) -> Setting | None:
    """The setting that the tuning seeds chose; None: they have not all been played."""
    if side.fixed is not None:
        return side.fixed
    if side.tuned_as:
        base = SIDES[side.tuned_as]
        best = tuned_setting(task, base, folder)
        return None if best is None else side.like(best, TASKS[task].turns_per_game)
    if any(cell.load(folder) is None for cell in tuning_cells(task, side, folder)):
        return None
    finalists = _finalists(task, side, folder)
    return min(finalists, key=lambda setting: _score(task, side, setting, TUNING_SEEDS, folder))


def tuning_cells(task: str, side: ClaimSide, folder: Path) -> list[ClaimCell]:
    """The cells of the rounds that can be played: the grid on the first tuning seed, the best of it
    varied, and the best of all on the second.
    """
    if side.tuned_as or side.fixed is not None:
        return []
    first, second = TUNING_SEEDS
    rounds = [[ClaimCell(task, side, setting, first) for setting in _grid(task, side)]]
    if _complete(rounds[-1], folder):
        best = _ranked(task, side, _grid(task, side), folder)
        varied = [x for setting in best[:VARIED] for x in side.variations(setting)]
        rounds.append([ClaimCell(task, side, setting, first) for setting in varied])
    if len(rounds) == 2 and _complete(rounds[-1], folder):
        finalists = _finalists(task, side, folder)
        rounds.append([ClaimCell(task, side, setting, second) for setting in finalists])
    return [cell for cells in rounds for cell in cells]


def _grid(task: str, side: ClaimSide) -> list[Setting]:
    return side.grid(TASKS[task].turns_per_game)


def _tried(task: str, side: ClaimSide, folder: Path) -> list[Setting]:
    """All settings of the first tuning seed."""
    best = _ranked(task, side, _grid(task, side), folder)
    varied = [x for setting in best[:VARIED] for x in side.variations(setting)]
    return [*_grid(task, side), *varied]


def _finalists(task: str, side: ClaimSide, folder: Path) -> list[Setting]:
    return _ranked(task, side, _tried(task, side, folder), folder)[:PROMOTED]


def _complete(cells: Sequence[ClaimCell], folder: Path) -> bool:
    return all(cell.load(folder) is not None for cell in cells)


def _ranked(task: str, side: ClaimSide, settings: Sequence[Setting], folder: Path) -> list[Setting]:
    """The best first, on the first tuning seed."""
    seeds = TUNING_SEEDS[:1]
    return sorted(settings, key=lambda setting: _score(task, side, setting, seeds, folder))


def _score(
    task: str, side: ClaimSide, setting: Setting, seeds: Sequence[int], folder: Path
) -> tuple[float, float]:
    """Sum over seeds of log turns until the level, then minus the area under the return."""
    cells = [ClaimCell(task, side, setting, seed) for seed in seeds]
    turns = [cell_turns(cell, folder) for cell in cells]
    if any(x is None for x in turns):
        raise UserError(f"{side.variant} of {task} is not tuned yet: {setting.name} is missing")
    return (
        sum(x.log_turns for x in turns if x is not None),
        -sum(x.area for x in turns if x is not None),
    )
