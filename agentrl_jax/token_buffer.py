"""`TokenBuffer`: prompts that extend each other share their memory."""

import numpy as np

from agentrl_jax.text_codec import TokenIds

MIN_CAPACITY = 256  # tokens


class TokenBuffer:
    """Token ids that grow at their end: what is returned are read-only views of one array.

    An episode whose context only grows so keeps each token once or twice, in place of once for
    each turn after it.
    """

    def __init__(self) -> None:
        self._ids = np.zeros(0, np.int32)
        self._length = 0

    def continued_from(self, prefix: TokenIds) -> "TokenBuffer":
        """This buffer where `prefix` is what it returned last, else a new one."""
        return self if self._ends_in(prefix) else TokenBuffer()

    def extend(self, prefix: TokenIds, *parts: TokenIds) -> TokenIds:
        """The ids of `prefix` and of all `parts`, int32.

        Only the parts are written where `prefix` is what this returned last; anything else is
        copied, and the next call may extend that.
        """
        length = len(prefix) + sum(map(len, parts))
        if not self._ends_in(prefix) or length > len(self._ids):
            self._ids = np.zeros(max(MIN_CAPACITY, 2 * length), np.int32)
            self._ids[: len(prefix)] = prefix
        end = len(prefix)
        for part in parts:
            self._ids[end : end + len(part)] = part
            end += len(part)
        self._length = length
        view = self._ids[:length]
        view.flags.writeable = False
        return view

    def _ends_in(self, prefix: TokenIds) -> bool:
        return prefix.base is self._ids and len(prefix) == self._length
