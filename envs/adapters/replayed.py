"""`Replayed`: environments whose packages do not pickle the state of an episode."""

from typing import Any

import gymnasium

from agentrl_jax.environment import Environment
from agentrl_jax.errors import EnvironmentFailure
from agentrl_jax.messages import Message


class Replayed(Environment):
    """Pickles as its options, its seed and its actions, which are replayed where it is read.

    Many packages pickle an environment as it was made, without its state.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Raises EnvironmentFailure where the last reset had no seed and was not the first."""
        if self._opening and self._seed is None:
            raise EnvironmentFailure("an environment that was reset without a seed has no replay")
        actions = [action for action, _ in self._step_history]
        return _replayed, (self.spec, bool(self._opening), self._seed, self._options, actions)


def _replayed(
    spec: Any, is_reset: bool, seed: int | None, options: Any, actions: list[Message]
) -> Environment:
    env = gymnasium.make(spec).unwrapped
    assert isinstance(env, Environment)
    if is_reset:
        env.reset(seed=seed, options=options)
    for action in actions:
        env.step(action)
    return env
