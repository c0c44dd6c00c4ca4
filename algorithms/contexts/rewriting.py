"""Views that say less: placeholders for old observations, the last images, no past thinking; and one instruction more."""

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentrl_jax.context import Asking, ContextManager, Demonstrable, FullHistory, Question
from agentrl_jax.errors import UserError
from agentrl_jax.messages import ImagePart, Message, TextPart
from agentrl_jax.trajectories import Turn


@dataclass(frozen=True)
class Placeholders:
    """A short text for each message of old observations, all but the last `keep`; opening and actions stay (WebAgent-R1, 2505.16421).

    What the policy sees of the past changes from turn to turn, so from the turn on that an observation is first replaced in each
    turn is a row of its own, and every action is scored under the prompt that it was sampled from.
    """

    text: str
    keep: int = 1

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise UserError(f"a policy must see at least the last observation, not the last {self.keep}")

    def view(self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()) -> Sequence[Message]:
        old = len(turns) - self.keep
        shown = [(turn.action, *(m.replace(content=self.text) if i < old else m for m in turn.observation)) for i, turn in enumerate(turns)]
        return [*opening, *(message for messages in shown for message in messages)]


@dataclass(frozen=True)
class Rewritten:
    """What another manager shows, rewritten; what that one asks is asked here too."""

    inner: ContextManager = field(default_factory=FullHistory, kw_only=True)

    def rewrite(self, messages: Sequence[Message]) -> Sequence[Message]:
        """What is shown in place of the messages."""
        raise NotImplementedError(f"{type(self).__name__} must define rewrite")

    def view(self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()) -> Sequence[Message]:
        return self.rewrite(self.inner.view(opening, turns, notes))

    def ask(self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message], length: int) -> Question | None:
        question = self.inner.ask(opening, turns, notes, length) if isinstance(self.inner, Asking) else None
        return None if question is None else dataclasses.replace(question, messages=self.rewrite(question.messages))

    def shown(self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message], action: Message) -> Message | None:
        if not isinstance(self.inner, Demonstrable):
            raise UserError(f"{type(self.inner).__name__} asks for notes, and cannot say what demonstrations answer")
        return self.inner.shown(opening, turns, notes, action)


@dataclass(frozen=True)
class LastImages(Rewritten):
    """The last `count` images; `text` stands for each earlier one (UI-S1, arXiv 2509.11543: 2; DART, 2509.23866: 5 in 35 messages)."""

    count: int
    text: str = ""

    def __post_init__(self) -> None:
        if self.count < 0:
            raise UserError(f"the number of images that are kept cannot be {self.count}")

    def rewrite(self, messages: Sequence[Message]) -> Sequence[Message]:
        old = sum(len(message.images) for message in messages) - self.count
        shown = []
        for message in messages:
            if old > 0 and message.images:
                message, old = self._without(message, old), old - len(message.images)
            shown.append(message)
        return shown

    def _without(self, message: Message, count: int) -> Message:
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
class Thinking(Rewritten):
    """Past thinking is kept, or stripped from all that the policy wrote: what stands between the marks, and the marks.

    A thought without an end reaches to the end of its message, one without a beginning (a template wrote that) from its start.
    """

    keep: bool = False
    begins: str = "<think>"
    ends: str = "</think>"

    def rewrite(self, messages: Sequence[Message]) -> Sequence[Message]:
        if self.keep:
            return messages
        return [m.replace(content=self.stripped(m.text)) if self._thinks(m) else m for m in messages]

    def stripped(self, text: str) -> str:
        """The text without thoughts: "<think>6*7</think>\\n42" -> "42"."""
        begins, ends = re.escape(self.begins), re.escape(self.ends)
        text = re.sub(rf"{begins}.*?({ends}\s*|\Z)", "", text, flags=re.DOTALL)
        return text.rpartition(self.ends)[2].lstrip() if self.ends in text else text

    def _thinks(self, message: Message) -> bool:
        return message.role == "assistant" and (self.begins in message.text or self.ends in message.text)


@dataclass(frozen=True)
class Instruction(Rewritten):
    """A system message before all others, or at the head of the one that is there; an empty text is none (INSPO, arXiv 2512.01945)."""

    text: str = ""

    def rewrite(self, messages: Sequence[Message]) -> Sequence[Message]:
        if not self.text:
            return messages
        if messages and messages[0].role == "system":
            return [messages[0].replace(content=f"{self.text}\n{messages[0].text}"), *messages[1:]]
        return [Message("system", f"{self.text}\n"), *messages]
