"""`Rewindable`: an environment that is forked by copying it."""

import copy

from agentrl_jax.environment import Environment, MessageSpace
from agentrl_jax.errors import EnvironmentFailure


class Rewindable(Environment):
    """A world whose steps draw no random number and whose attributes are immutable; subclasses define `_rewind`.

    A fork is then a copy of the attributes, taken back to the opening and replayed in memory where it starts earlier.
    """

    def _rewind(self) -> None:
        """Go back to the opening of this episode, drawing nothing."""
        raise NotImplementedError(f"{type(self).__name__} must define _rewind")

    def fork(self, turn: int | None = None) -> "Rewindable":
        """A world of its own after the first `turn` recorded actions (all of them by default).

        Unlike the default it also forks a world that was reset without a seed. Raises EnvironmentFailure before any reset.
        """
        if not self._opening:
            raise EnvironmentFailure("only a world that was reset can be forked")
        twin = copy.copy(self)
        twin.observation_space, twin.action_space = MessageSpace(many=True), MessageSpace()
        twin._np_random = copy.deepcopy(self._np_random)
        twin._log = self._log[:turn]
        if len(twin._log) < len(self._log):
            twin._log, twin._done = [], False
            twin._rewind()
            for action, _ in self._log[:turn]:
                twin.step(action)
        return twin
