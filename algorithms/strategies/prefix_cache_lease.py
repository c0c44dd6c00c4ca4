"""`PrefixCacheLease`: keeps the KV cache of finished episodes for episodes that branch off them."""

from typing import Any

from agentrl_jax.engine import Engine
from agentrl_jax.rollout.agent_session import AgentSession
from agentrl_jax.trajectories import Call


class PrefixCacheLease:
    """A `TurnCallback` that keeps the last call of each finished episode until the block ends.

    Where the engine needs room it drops the least recently used caches, which are these first.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._calls: list[Call] = []

    async def __call__(self, session: AgentSession) -> None:
        call = session.take_last_call() if session.stop_reason is not None else None
        if call is not None:
            self._calls.append(call)

    def __enter__(self) -> "PrefixCacheLease":
        return self

    def __exit__(self, *_: Any) -> None:
        for call in self._calls:
            self._engine.release(call)
