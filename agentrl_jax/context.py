"""`ContextManager`: which messages the policy sees before a call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from agentrl_jax.messages import Message
from agentrl_jax.trajectories import Turn


@runtime_checkable
class ContextManager(Protocol):
    """Decides before each call what the prompt holds. Where it is the last prompt plus what is new, the runner extends the
    last call token by token; anything else starts a new row, and nothing else needs to know."""

    def view(self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()) -> Sequence[Message]:
        """The messages of the next prompt. `notes` are those of the turn at work (`Asking`)."""
        ...


@dataclass(frozen=True)
class Question:
    """What the policy is asked before it acts. Its answer is a note of the turn, or where it `ends` the asking, the action itself."""

    messages: Sequence[Message]
    ends: Callable[[Message], bool] = lambda answer: False
    budget: int = 0  # tokens of the answer; 0: as many as an action has
    name: str = "note"  # of the call that answers, in the turn's `info["calls"]`


@runtime_checkable
class Asking(ContextManager, Protocol):
    """A context manager that has the policy write notes for it: summaries, steps of thought. They are calls of the turn, and trained."""

    def ask(self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message], length: int) -> Question | None:
        """What it is asked next, after the `notes` of this turn; None: nothing more. `length` is that of the action's prompt, in tokens."""
        ...


@runtime_checkable
class Demonstrable(Asking, Protocol):
    """An asking context manager that knows what demonstrations, whose players were never asked, are to answer."""

    def shown(self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message], action: Message) -> Message | None:
        """The note that answers the question after these `notes` where the turn's action is this one; None: the action itself does."""
        ...


@dataclass(frozen=True)
class FullHistory:
    """Everything said so far: the prompt only grows."""

    def view(self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()) -> Sequence[Message]:
        return [*opening, *(m for turn in turns for m in (turn.action, *turn.observation))]


@dataclass(frozen=True)
class LastMessages:
    """The last `count` messages; after a turn whose info says `forget`, only what came after it (LMRL-Gym's mazes).

    With `opening` it always stays, and the messages are those since (DART, arXiv 2509.23866: 35 of them).
    """

    count: int
    opening: bool = False

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"a policy must see at least one message, not {self.count}")

    def view(self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()) -> Sequence[Message]:
        messages = [] if self.opening else list(opening)
        for turn in turns:
            messages = [*turn.observation] if turn.info.get("forget") else [*messages, turn.action, *turn.observation]
        return [*(opening if self.opening else ()), *messages[-self.count :]]
