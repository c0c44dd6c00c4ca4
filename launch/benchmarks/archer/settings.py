"""The sides of the comparison and the grid that each is tuned on."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

TUNING_SEEDS = (100, 101)  # never among those that are compared
SEEDS = tuple(range(1, 11))
# (games an iteration, the policy's learning rate): small batches with small rates. A reduced grid,
# with fewer points for the sides that are compared with PPO than for PPO, since a cell of theirs
# takes several times as long.
GRID = ((4, 5e-4), (8, 5e-4), (8, 1e-3), (16, 1e-3), (16, 2e-3), (32, 2e-3), (64, 2e-3))
SHORT_GRID = ((4, 5e-4), (8, 5e-4), (8, 1e-3))
# The published iteration has 128 games of 18 turns, 50 critic steps and 3 actor steps of 256 turns.
READS, UTTERANCES = 50 * 256 / (128 * 18), 256 / (128 * 18)  # a new turn: critic's, an actor step's
ALGORITHM = "phases.rl.algorithm."
# The fields of games an iteration and of the policy's learning rate, by the kind of a side.
FIELDS = {
    "policy_gradient": ("phases.rl.source.tasks", f"{ALGORITHM}optimizer.learning_rate"),
    "archer": ("phases.rl.source.tasks", f"{ALGORITHM}actor.optimizer.learning_rate"),
    "anchored": ("phases.rl.source.rollouts.tasks", f"{ALGORITHM}actor.optimizer.learning_rate"),
}


@dataclass(frozen=True)
class Setting:
    """A point of the grid: games an iteration, the policy's learning rate, and other fields."""

    games: int
    rate: float
    extra: Mapping[str, str] = field(default_factory=dict)  # below `phases.rl.algorithm`

    @property
    def name(self) -> str:
        """For files and tables: "8 games, 1e-3"."""
        parts = [f"games={self.games}", f"rate={self.rate:g}"]
        return ",".join(
            [*parts, *(f"{k.removeprefix('advantage.')}={v}" for k, v in self.extra.items())]
        )

    def overrides(self, kind: str) -> dict[str, str]:
        """The fields of the config; `kind` is of the algorithm, a key of `FIELDS`."""
        games, rate = FIELDS[kind]
        return {
            games: str(self.games),
            rate: f"{self.rate:g}",
            **{ALGORITHM + name: value for name, value in self.extra.items()},
        }


def no_proportions(turns: int) -> dict[str, str]:
    """Of a method whose fields do not follow from the turns of an iteration."""
    return {}


def published_proportions(turns: int) -> dict[str, str]:
    """ArCHer's reads and utterances of an iteration of so many new turns."""
    batch = max(32, 2 ** round(math.log2(turns / 8)))
    return {
        "critic.batch": str(batch),
        "critic_steps": str(max(1, round(READS * turns / batch))),
        "batch": str(max(8, round(UTTERANCES * turns))),
    }


def joint_proportions(turns: int) -> dict[str, str]:
    """As many reads of a new turn as published, in batches of 128 turns."""
    return {"critic_steps": str(max(1, round(READS * turns / 128)))}


def last_iteration(turns: int) -> dict[str, str]:
    """The same steps on a replay of one iteration."""
    return {**joint_proportions(turns), "capacity": str(turns)}


def ppo_updates(turns: int) -> dict[str, str]:
    """PPO's two critic steps an iteration."""
    return {"critic_steps": "2"}


@dataclass(frozen=True)
class ClaimSide:
    """A method, as a variant of configs/archer_claim.py, with what is tuned."""

    variant: str
    label: str
    kind: str = "policy_gradient"
    # The side whose best setting it takes; empty: it is tuned.
    tuned_as: str = ""
    # Further values of one field, tried on the two best points of the grid.
    second_round: tuple[str, tuple[str, ...]] = ("", ())
    points: tuple[tuple[int, float], ...] = SHORT_GRID
    proportions: Callable[[int], Mapping[str, str]] = no_proportions
    # Its setting, where it is neither tuned nor another's: a line declared weak.
    fixed: Setting | None = None

    def grid(self, turns_per_game: int) -> list[Setting]:
        """The first round, one tuning seed."""
        return [self.at(games, rate, turns_per_game) for games, rate in self.points]

    def at(self, games: int, rate: float, turns_per_game: int) -> Setting:
        """A point of the grid, with what follows from the number of games."""
        return Setting(games, rate, self.proportions(games * turns_per_game))

    def like(self, other: Setting, turns_per_game: int) -> Setting:
        """Another side's setting, with what this side's own algorithm follows from it."""
        point = self.at(other.games, other.rate, turns_per_game)
        return Setting(point.games, point.rate, {**other.extra, **point.extra})

    def variations(self, setting: Setting) -> Iterator[Setting]:
        """The settings of the second round near one of the first."""
        name, values = self.second_round
        for value in values:
            yield Setting(setting.games, setting.rate, {**setting.extra, name: value})


SIDES = {
    side.variant: side
    for side in (
        ClaimSide("ppo", "PPO", points=GRID, second_round=("advantage.lam", ("0.95", "0.9"))),
        ClaimSide("ppo_epochs", "PPO, 4 epochs", tuned_as="ppo"),
        ClaimSide(
            "ppo_published",
            "PPO, 1,024 games a step (weak by design)",
            fixed=Setting(1024, 2e-3),
        ),
        ClaimSide("archer", "ArCHer as published", "archer", proportions=published_proportions),
        ClaimSide(
            "anchored",
            "anchored ArCHer",
            "anchored",
            second_round=("pretrain_steps", ("300",)),
            proportions=joint_proportions,
        ),
        ClaimSide(
            "anchored_q", "beta 0: Q alone", "anchored", "anchored", proportions=joint_proportions
        ),
        ClaimSide(
            "anchored_returns",
            "beta 1: returns and a better baseline",
            "anchored",
            "anchored",
            proportions=joint_proportions,
        ),
        ClaimSide(
            "no_reuse",
            "replay of one iteration",
            "anchored",
            "anchored",
            proportions=last_iteration,
        ),
        ClaimSide(
            "few_updates",
            "PPO's number of updates",
            "anchored",
            "anchored",
            proportions=ppo_updates,
        ),
    )
}
