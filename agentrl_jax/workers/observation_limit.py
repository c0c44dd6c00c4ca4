"""`ObservationLimit`: how much text an environment may send in one turn."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentrl_jax.errors import EnvironmentFailure
from agentrl_jax.messages import Message, TextPart


@dataclass(frozen=True)
class ObservationLimit:
    """A bound on the text of a reset's or a step's messages, in bytes of UTF-8."""

    max_bytes: int = 2**20
    truncate: bool = False  # whether a longer text is cut; else the episode has failed

    def apply(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages within the limit. Raises EnvironmentFailure where they may not be cut."""
        size = sum(_num_bytes(message) for message in messages)
        if size <= self.max_bytes:
            return messages
        if not self.truncate:
            raise EnvironmentFailure(
                f"an observation of {size:,} bytes of text, where at most {self.max_bytes:,} are "
                "allowed: raise config.environment.observation_kb, or set truncate_observations",
                "flood",
            )
        return tuple(self._cut(messages))

    def _cut(self, messages: Sequence[Message]) -> Iterator[Message]:
        """The messages up to the limit; the one that reaches it is cut, the others are left out."""
        bytes_left = self.max_bytes
        for message in messages:
            size = _num_bytes(message)
            if size > bytes_left:
                yield _cut_message(message, bytes_left)
                return
            bytes_left -= size
            yield message


DEFAULT_LIMIT = ObservationLimit()


def _num_bytes(message: Message) -> int:
    return len(message.text.encode())


def _cut_message(message: Message, num_bytes: int) -> Message:
    data = message.text.encode()
    beginning = data[:num_bytes].decode(errors="ignore")
    text = f"{beginning}\n[cut after {num_bytes:,} of {len(data):,} bytes]"
    return message.replace(content=(TextPart(text), *message.images) if message.images else text)
