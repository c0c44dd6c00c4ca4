"""Games that the package textworld generates, compiled once in a process."""

import functools
import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrl_jax.envs.textworld_compiler import games_folder, import_textworld, temporary_home
from agentrl_jax.errors import UserError

# Generated from scratch, or by the package's challenges: kind -> its settings and their defaults.
KINDS: Mapping[str, Mapping[str, Any]] = {
    "quest": {"rooms": 2, "objects": 3, "length": 4},
    "coin_collector": {"level": 3},
    "treasure_hunter": {"level": 3},
    "cooking": {
        "recipe": 1, "take": 1, "go": 1, "open": False, "cook": False, "cut": False, "drop": False,
        "recipe_seed": 1, "split": "train",
    },
}  # fmt: skip
_MAX_SEEDS = 50  # tried where no quest of this length can be generated from one


def checked_settings(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a kind. Raises UserError where the kind or a setting is unknown."""
    if kind not in KINDS or not settings.keys() <= KINDS[kind].keys():
        raise UserError(
            f"TextWorld has the games {', '.join(KINDS)}; the settings of {kind!r} are "
            f"{dict(KINDS.get(kind, {}))}, not {dict(settings)}"
        )
    return {**KINDS[kind], **settings}


@functools.lru_cache(maxsize=4096)
def compiled_game(kind: str, settings: str, seed: int) -> str:
    """The path of a compiled game.

    Args:
        kind: of `KINDS`.
        settings: all of them, in JSON.
        seed: of the generator; where it has no quest of the length, the next one is taken, and on.

    Raises:
        UserError: the package is missing, or generates no such game.
    """
    textworld, values = import_textworld(), json.loads(settings)
    for attempt in range(_MAX_SEEDS):
        options = textworld.GameOptions()
        options.seeds = (seed + 1_000_003 * attempt) % 2**31
        options.path = str(games_folder() / f"{kind}-{_digest(settings, seed)}.z8")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of its interpreter, which tries the solution
                game = _generated(textworld, kind, values, options)
        except textworld.generator.chaining.QuestGenerationError:
            continue
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"TextWorld makes no game {kind} of {values}: {error}") from error
        with temporary_home(games_folder()):
            return str(Path(textworld.generator.compile_game(game, options)))
    raise UserError(f"TextWorld makes no game {kind} of {values} from {_MAX_SEEDS} seeds")


def _generated(textworld: Any, kind: str, values: Mapping[str, Any], options: Any) -> Any:
    if kind != "quest":
        _, make, _ = textworld.challenges.CHALLENGES[f"tw-{kind}"]
        return make(dict(values), options)
    options.nb_rooms, options.nb_objects = values["rooms"], values["objects"]
    options.quest_length = values["length"]
    return textworld.generator.make_game(options)


def _digest(settings: str, seed: int) -> str:
    return hashlib.blake2b(f"{settings} {seed}".encode(), digest_size=8).hexdigest()
