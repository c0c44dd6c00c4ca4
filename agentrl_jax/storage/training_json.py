"""What training used of a trajectory as JSON data and back, within the trajectory's own data."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from agentrl_jax.storage.jsonl import from_json_data, parse_float
from agentrl_jax.storage.significant_digits import significant
from agentrl_jax.trajectory_record import (
    CallTraining,
    TrajectoryTraining,
    TurnTraining,
    UtteranceTraining,
)

KEY = "training"  # of a turn and of a call
DIGITS = 6  # significant ones; nothing is computed from these numbers again


def add_training(data: dict[str, Any], training: TrajectoryTraining) -> None:
    """Add it to the turns and calls of a trajectory's data."""
    for turn, turn_training in zip(data["turns"], training.turns, strict=True):
        turn[KEY] = {"reward": turn_training.reward, "rewards": turn_training.rewards}
        if turn_training.utterances:
            turn[KEY]["utterances"] = [
                {"action": x.action, **_call_to_json(x.training)} for x in turn_training.utterances
            ]
        for call, call_training in zip(turn["calls"], turn_training.calls, strict=True):
            if call_training is not None:
                call[KEY] = _call_to_json(call_training)


def _call_to_json(training: CallTraining) -> dict[str, list[float]]:
    return {
        name: significant(column, DIGITS)
        for name, column in vars(training).items()
        if column is not None
    }


def training_from_json(data: Mapping[str, Any]) -> TrajectoryTraining | None:
    """The inverse, of a trajectory's data; None where no algorithm was given the trajectory."""
    turns = data["turns"]
    if not turns or KEY not in turns[0]:
        return None
    return TrajectoryTraining(tuple(map(_turn_from_json, turns)))


def _turn_from_json(turn: Mapping[str, Any]) -> TurnTraining:
    return TurnTraining(
        parse_float(turn[KEY]["reward"]),
        from_json_data(turn[KEY]["rewards"]),
        tuple(_call_from_json(call[KEY]) if KEY in call else None for call in turn["calls"]),
        tuple(
            UtteranceTraining(np.asarray(x["action"], np.int32), _call_from_json(x))
            for x in turn[KEY].get("utterances", ())
        ),
    )


def _call_from_json(data: Mapping[str, Any]) -> CallTraining:
    names = {field.name for field in fields(CallTraining)}
    columns = {
        name: np.asarray([parse_float(value) for value in values], np.float32)
        for name, values in data.items()
        if name in names
    }
    return CallTraining(**columns)
