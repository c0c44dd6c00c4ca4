"""`Forkable`: environments that fork by copying their state."""

import copy

from agentrl_jax.environment import Environment, MessageSpace
from agentrl_jax.errors import EnvironmentFailure


class Forkable(Environment):
    """An environment whose steps draw no random numbers and whose attributes are immutable.

    A fork copies the attributes; where it starts earlier, `_rewind` restores the opening and the
    recorded actions are replayed in memory. Subclasses define `_rewind`.
    """

    def _rewind(self) -> None:
        """Restore the state right after `reset`, drawing no random number."""
        raise NotImplementedError(f"{type(self).__name__} must define _rewind")

    def fork(self, turn: int | None = None) -> "Forkable":
        """An independent environment after the first `turn` recorded actions (default: all).

        Unlike the default implementation it also forks an environment that was reset without a
        seed.

        Raises:
            EnvironmentFailure: the environment was never reset.
        """
        if not self._opening:
            raise EnvironmentFailure("only an environment that was reset can be forked")
        twin = copy.copy(self)
        twin.observation_space, twin.action_space = MessageSpace(many=True), MessageSpace()
        twin._np_random = copy.deepcopy(self._np_random)
        twin._step_history = self._step_history[:turn]
        if len(twin._step_history) < len(self._step_history):
            twin._step_history, twin._is_over = [], False
            twin._rewind()
            for action, _ in self._step_history[:turn]:
                twin.step(action)
        return twin
