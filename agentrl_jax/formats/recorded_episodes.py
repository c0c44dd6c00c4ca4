"""Episodes with the features of `LmrlGym`'s datasets: an opening, and turns of one text each."""

from collections.abc import Mapping
from typing import Any

from agentrl_jax.formats.field_checks import FieldError
from agentrl_jax.messages import assistant, user
from agentrl_jax.storage.demonstration_file import DEMONSTRATION
from agentrl_jax.trajectories import Trajectory, Turn


def recorded_trajectory(data: Mapping[str, Any]) -> Trajectory:
    """The trajectory of an example; an observation is one user message.

    Raises:
        FieldError: a feature is missing.
    """
    try:
        turns = tuple(
            Turn(
                (),
                assistant(turn["action"]),
                (user(turn["observation"]),),
                float(turn["reward"]),
                terminated=bool(turn["terminated"]),
                truncated=bool(turn["truncated"]),
                info={"forget": True} if turn["forget"] else {},
            )
            for turn in data["turns"]
        )
        success = data["success"]
        return Trajectory(
            (user(data["opening"]),),
            turns,
            data["task"],
            agent=DEMONSTRATION,
            success=None if success == -1 else bool(success),
        )
    except (KeyError, TypeError) as error:
        raise FieldError("turns", f"is no episode as LmrlGym describes it ({error!r})") from error
