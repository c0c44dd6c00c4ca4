"""`Held`: what episodes that are over leave in an engine's cache, kept for others that go on from their turns."""

from typing import Any

from agentrl_jax.engine import Engine
from agentrl_jax.speaking import Speaker
from agentrl_jax.trajectories import Call


class Held:
    """Told after each turn (`After`), it keeps the last call of an episode that is over; on leaving it gives all of them back.

    The engine drops what was used longest ago where it needs the room, and that is these first.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._calls: list[Call] = []

    async def __call__(self, speaker: Speaker) -> None:
        call = speaker.hand_over() if speaker.stop is not None else None
        if call is not None:
            self._calls.append(call)

    def __enter__(self) -> "Held":
        return self

    def __exit__(self, *_: Any) -> None:
        for call in self._calls:
            self._engine.release(call)
