"""Views of a shortened history: placeholders, last images, no past thinking; and an instruction."""

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentrl_jax.context import ContextManager, FullHistory, NoteRequest
from agentrl_jax.errors import UserError
from agentrl_jax.messages import ImagePart, Message, TextPart
from agentrl_jax.trajectories import Turn


@dataclass(frozen=True)
class ObservationPlaceholders(ContextManager):
    """A short text in place of each message of old observations (WebAgent-R1, arXiv 2505.16421).

    The last `keep_last` observations, the opening and the actions stay. The view of the past
    changes from turn to turn: once an observation is replaced, each turn is a training sequence of
    its own, and every action is scored under the prompt that it was sampled from.
    """

    text: str
    keep_last: int = 1

    def __post_init__(self) -> None:
        if self.keep_last < 1:
            raise UserError(
                f"a policy must see at least the last observation, not the last {self.keep_last}"
            )

    def view(
        self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()
    ) -> Sequence[Message]:
        num_old = len(turns) - self.keep_last
        view = list(opening)
        for i, turn in enumerate(turns):
            view.append(turn.action)
            view += [m.replace(content=self.text) if i < num_old else m for m in turn.observation]
        return view


@dataclass(frozen=True)
class RewritingContext(ContextManager):
    """The view of an inner context manager, rewritten; its note requests are rewritten too."""

    inner: ContextManager = field(default_factory=FullHistory, kw_only=True)

    @property
    def writes_notes(self) -> bool:
        return self.inner.writes_notes

    def rewrite(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages that replace these."""
        raise NotImplementedError(f"{type(self).__name__} must define rewrite")

    def view(
        self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()
    ) -> Sequence[Message]:
        return self.rewrite(self.inner.view(opening, turns, notes))

    def next_note_request(
        self,
        opening: Sequence[Message],
        turns: Sequence[Turn],
        notes: Sequence[Message],
        prompt_length: int,
    ) -> NoteRequest | None:
        request = self.inner.next_note_request(opening, turns, notes, prompt_length)
        if request is None:
            return None
        return dataclasses.replace(request, messages=self.rewrite(request.messages))

    def demonstrated_note(
        self,
        opening: Sequence[Message],
        turns: Sequence[Turn],
        notes: Sequence[Message],
        action: Message,
    ) -> Message | None:
        return self.inner.demonstrated_note(opening, turns, notes, action)


@dataclass(frozen=True)
class LastImages(RewritingContext):
    """The last `count` images, with `text` in place of each earlier one.

    UI-S1 (arXiv 2509.11543): 2; DART (arXiv 2509.23866): 5 in 35 messages.
    """

    count: int
    text: str = ""

    def __post_init__(self) -> None:
        if self.count < 0:
            raise UserError(f"the number of images to keep cannot be {self.count}")

    def rewrite(self, messages: Sequence[Message]) -> Sequence[Message]:
        num_old = sum(len(message.images) for message in messages) - self.count
        view = []
        for message in messages:
            num_images = len(message.images)
            if num_old > 0 and num_images:
                message = self._drop_images(message, num_old)
                num_old -= num_images
            view.append(message)
        return view

    def _drop_images(self, message: Message, count: int) -> Message:
        """The message without its first `count` images."""
        parts: list[TextPart | ImagePart] = []
        for part in message.content:
            if isinstance(part, ImagePart) and count > 0:
                count -= 1
                parts += [TextPart(self.text)] if self.text else []
            elif not isinstance(part, str):
                parts.append(part)
        return message.replace(content=tuple(parts))


@dataclass(frozen=True)
class ThinkingFilter(RewritingContext):
    """Strips past thinking from the policy's messages: the markers and the text between them.

    A thought without an end marker reaches to the end of its message; one without a start marker
    (which the chat template wrote) begins at the start.
    """

    keep_thinking: bool = False
    start_marker: str = "<think>"
    end_marker: str = "</think>"

    def rewrite(self, messages: Sequence[Message]) -> Sequence[Message]:
        if self.keep_thinking:
            return messages
        return [
            m.replace(content=self.strip_thinking(m.text)) if self._has_thinking(m) else m
            for m in messages
        ]

    def strip_thinking(self, text: str) -> str:
        """The text without thoughts: "<think>6*7</think>\\n42" -> "42"."""
        start, end = re.escape(self.start_marker), re.escape(self.end_marker)
        text = re.sub(rf"{start}.*?({end}\s*|\Z)", "", text, flags=re.DOTALL)
        return text.rpartition(self.end_marker)[2].lstrip() if self.end_marker in text else text

    def _has_thinking(self, message: Message) -> bool:
        return message.role == "assistant" and (
            self.start_marker in message.text or self.end_marker in message.text
        )


@dataclass(frozen=True)
class SystemInstruction(RewritingContext):
    """A system message before all others; an empty text adds none (INSPO, arXiv 2512.01945).

    Where the first message is a system message, the text is prepended to it.
    """

    text: str = ""

    def rewrite(self, messages: Sequence[Message]) -> Sequence[Message]:
        if not self.text:
            return messages
        if messages and messages[0].role == "system":
            return [messages[0].replace(content=f"{self.text}\n{messages[0].text}"), *messages[1:]]
        return [Message("system", f"{self.text}\n"), *messages]
