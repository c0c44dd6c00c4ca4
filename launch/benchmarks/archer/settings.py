"""The sides of the comparison and the grid that each is tuned on."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

TUNING_SEEDS = (100, 101)  # never among those that are compared
SEEDS = tuple(range(10))
# (games an iteration, the policy's learning rate): small batches with small rates. A reduced grid,
# the same for all sides.
GRID = ((4, 5e-4), (8, 5e-4), (8, 1e-3), (16, 1e-3), (16, 2e-3), (32, 2e-3), (64, 2e-3))
# The published iteration has 128 games of 18 turns, 50 critic steps and 3 actor steps of 256 turns.
READS, UTTERANCES = 50 * 256 / (128 * 18), 256 / (128 * 18)  # a new turn: critic's, an actor step's
ALGORITHM = "phases.rl.algorithm."
RATE_FIELDS = {
    "policy_gradient": f"{ALGORITHM}optimizer.learning_rate",
    "archer": f"{ALGORITHM}actor.optimizer.learning_rate",
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
        return ",".join([*parts, *(f"{k.rpartition('.')[2]}={v}" for k, v in self.extra.items())])

    def overrides(self, kind: str) -> dict[str, str]:
        """The fields of the config; `kind` is of the algorithm, a key of `RATE_FIELDS`."""
        return {
            "phases.rl.source.tasks": str(self.games),
            RATE_FIELDS[kind]: f"{self.rate:g}",
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
    proportions: Callable[[int], Mapping[str, str]] = no_proportions
    # Its setting, where it is neither tuned nor another's: a line declared weak.
    fixed: Setting | None = None

    def grid(self, turns_per_game: int) -> list[Setting]:
        """The first round, one tuning seed."""
        return [self.at(games, rate, turns_per_game) for games, rate in GRID]

    def at(self, games: int, rate: float, turns_per_game: int) -> Setting:
        """A point of the grid, with what follows from the number of games."""
        return Setting(games, rate, self.proportions(games * turns_per_game))

    def like(self, other: Setting, turns_per_game: int) -> Setting:
        """Another side's setting, with what this side's own algorithm follows from it."""
        setting = self.at(other.games, other.rate, turns_per_game)
        return Setting(setting.games, setting.rate, {**other.extra, **setting.extra})

    def variations(self, setting: Setting) -> Iterator[Setting]:
        """The settings of the second round near one of the first."""
        name, values = self.second_round
        for value in values:
            yield Setting(setting.games, setting.rate, {**setting.extra, name: value})


SIDES = {
    side.variant: side
    for side in (
        ClaimSide("ppo", "PPO", second_round=("advantage.lam", ("0.95", "0.9"))),
        ClaimSide("ppo_epochs", "PPO, 4 epochs", tuned_as="ppo"),
        ClaimSide(
            "ppo_published",
            "PPO, 1,024 games a step (weak by design)",
            fixed=Setting(1024, 2e-3),
        ),
        ClaimSide("archer", "ArCHer as published", "archer", proportions=published_proportions),
    )
}
