"""What every piece of a method must be: plain data that a run folder remembers."""

import dataclasses
import importlib
import inspect
import json

import pytest

from agentrl_jax.configfile import from_json, to_json

MODULES = (
    "advantages", "aggregation", "covariance", "experience_replay", "filters", "gae", "masks", "mismatch", "process_rewards", "quality",
    "rewards", "schedules", "self_imitation", "surrogates", "transforms", "turn_credit",
)  # fmt: skip
FILLED = {
    "int": 3, "float": 0.5, "str": "x", "Sequence[str]": ("a", "b"), "Sequence[float]": (0.5,), "Sequence[int]": (1, 2),
    "Sequence[int | float]": (5, 10),
}  # fmt: skip


def pieces() -> list:
    """Every dataclass with a call or a state, its fields without a default filled by their type."""
    found = []
    for name in MODULES:
        module = importlib.import_module(f"agentrl_jax.algorithms.{name}")
        for cls in vars(module).values():
            if not (inspect.isclass(cls) and dataclasses.is_dataclass(cls) and cls.__module__ == module.__name__):
                continue
            if not any(hasattr(cls, method) for method in ("__call__", "state", "add")):
                continue
            needed = {
                f.name: str(f.type).replace("collections.abc.", "").removeprefix("<class '").removesuffix("'>")
                for f in dataclasses.fields(cls)
                if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
            }
            if set(needed.values()) <= set(FILLED):
                found.append(cls(**{name: FILLED[kind] for name, kind in needed.items()}))
    return found


PIECES = pieces()


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: type(piece).__name__)
def test_a_piece_is_remembered_by_a_run_folder(piece: object):
    data = json.loads(json.dumps(to_json(piece)))
    again = from_json(data)
    assert type(again) is type(piece) and to_json(again) == to_json(piece)


def test_most_pieces_are_among_them():
    names = {type(piece).__name__ for piece in PIECES}
    assert len(PIECES) > 45
    assert names >= {"Keyed", "GAE", "TurnKeyed", "MARS", "PositiveReplay", "SolvedSteps", "PPO", "Gate", "RaiseOnPlateau", "Veto"}
