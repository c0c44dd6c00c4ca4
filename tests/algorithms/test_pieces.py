"""Every piece of a method is plain data that a run folder stores."""

import dataclasses
import importlib
import inspect
import json

import pytest

from agentrl_jax.storage.config_json import from_json, to_json

MODULES = (
    "advantages.group",
    "advantages.token_weights",
    "losses.covariance",
    "experience.potential_stages",
    "experience.replay",
    "experience.filters",
    "experience.penalties",
    "advantages.gae",
    "advantages.token_masks",
    "losses.importance",
    "experience.turn_rewards",
    "advantages.trajectory_checks",
    "experience.rewards",
    "experience.schedules",
    "experience.self_imitation",
    "experience.trajectory_scores",
    "losses.cispo",
    "losses.entropy_band",
    "losses.gspo",
    "losses.policy",
    "losses.ppo",
    "losses.regularizers",
    "advantages.spans",
    "advantages.transforms",
    "advantages.turn",
)
FILLED = {
    "int": 3,
    "float": 0.5,
    "str": "x",
    "Sequence[str]": ("a", "b"),
    "Sequence[float]": (0.5,),
    "Sequence[int]": (1, 2),
    "Mapping[str, float]": {"a": 0.5},
    "Sequence[int | float]": (5, 10),
}


def pieces() -> list:
    """Every dataclass with `__call__` or a state, its fields without a default filled by their
    type.
    """
    instances = []
    for name in MODULES:
        module = importlib.import_module(f"agentrl_jax.algorithms.{name}")
        for cls in vars(module).values():
            if not (
                inspect.isclass(cls)
                and dataclasses.is_dataclass(cls)
                and cls.__module__ == module.__name__
            ):
                continue
            if not any(
                hasattr(cls, method) for method in ("__call__", "state", "add", "token_data")
            ):
                continue
            needed = {
                f.name: str(f.type)
                .replace("collections.abc.", "")
                .removeprefix("<class '")
                .removesuffix("'>")
                for f in dataclasses.fields(cls)
                if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
            }
            if set(needed.values()) <= set(FILLED):
                instances.append(cls(**{name: FILLED[kind] for name, kind in needed.items()}))
    return instances


PIECES = pieces()


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: type(piece).__name__)
def test_a_piece_is_read_back_from_a_run_folder(piece: object):
    data = json.loads(json.dumps(to_json(piece)))
    again = from_json(data)
    assert type(again) is type(piece) and to_json(again) == to_json(piece)


def test_the_well_known_pieces_are_among_them():
    names = {type(piece).__name__ for piece in PIECES}
    assert len(PIECES) > 45
    assert names >= {
        "GroupedBy",
        "GAE",
        "TurnGroupedBy",
        "MARS",
        "PositiveReplay",
        "SolvedSteps",
        "PPO",
        "RewardGate",
        "RaiseOnPlateau",
        "TokenVeto",
        "KL",
        "EntropyBand",
    }
