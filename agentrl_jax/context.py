"""`ContextManager`: which messages the policy sees before each of its calls."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace

from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message
from agentrl_jax.trajectories import Turn


@dataclass(frozen=True)
class NoteRequest:
    """A request to the policy before its action, or to another model.

    The policy's answer becomes a note of the turn, or, where `is_action` holds for it, the action
    itself. Another model's answer is a note that is no call of the turn, so nothing is trained on.
    """

    messages: Sequence[Message]
    is_action: Callable[[Message], bool] = lambda answer: False
    budget: int = 0  # tokens of the answer; 0: as many as an action of the answering agent has
    name: str = "note"  # of the call that answers, in the turn's `info["calls"]`
    model: str = ""  # the named model that answers (`Experiment.models`); empty: the policy


class ContextManager:
    """Decides before each call which messages the prompt holds.

    Where the view is the last prompt plus new messages, the session extends the last call token by
    token; any other view starts a new training sequence. A context manager that has the policy
    write notes (summaries, thoughts) sets `writes_notes` and overrides `next_note_request`; notes
    are calls of the turn and are trained.
    """

    @property
    def writes_notes(self) -> bool:
        """Whether `next_note_request` may ask for notes."""
        return False

    def for_environment(self, label: str) -> "ContextManager":
        """The context manager of an episode in the environment with this label.

        By default itself, with those that it wraps resolved likewise.
        """
        if not is_dataclass(self):
            return self
        wrapped = {f.name: getattr(self, f.name) for f in fields(self)}
        resolved = {
            name: inner.for_environment(label)
            for name, inner in wrapped.items()
            if isinstance(inner, ContextManager)
        }
        return replace(self, **resolved) if resolved else self

    def view(
        self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()
    ) -> Sequence[Message]:
        """The messages of the next prompt.

        Args:
            opening: What the environment sent on reset.
            turns: The finished turns of the episode.
            notes: The notes of the current turn.
        """
        raise NotImplementedError(f"{type(self).__name__} must define view")

    def next_note_request(
        self,
        opening: Sequence[Message],
        turns: Sequence[Turn],
        notes: Sequence[Message],
        prompt_length: int,
    ) -> NoteRequest | None:
        """The next request of the current turn, after its `notes`; None: the action is next.

        Args:
            opening: What the environment sent on reset.
            turns: The finished turns of the episode.
            notes: The notes of the current turn so far.
            prompt_length: Tokens of the prompt that the action would have now.
        """
        return None

    def demonstrated_note(
        self,
        opening: Sequence[Message],
        turns: Sequence[Turn],
        notes: Sequence[Message],
        action: Message,
    ) -> Message | None:
        """The note that a demonstration with this action answers to the next request.

        Scripted policies write no notes, so the context manager supplies them. None: the action is
        the answer. Raises UserError where the context manager has no notes for demonstrations.
        """
        raise UserError(
            f"{type(self).__name__} requests notes and has none for demonstrations: "
            "give it a `demonstrated_note` method"
        )


@dataclass(frozen=True)
class ContextByEnvironment(ContextManager):
    """Each environment of a mixture with its own context manager."""

    contexts: Mapping[str, ContextManager]  # by label
    default: ContextManager  # of all other environments

    def for_environment(self, label: str) -> ContextManager:
        return self.contexts.get(label, self.default).for_environment(label)


@dataclass(frozen=True)
class FullHistory(ContextManager):
    """All messages so far: the prompt only grows."""

    def view(
        self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()
    ) -> Sequence[Message]:
        return [*opening, *(m for turn in turns for m in (turn.action, *turn.observation))]


@dataclass(frozen=True)
class LastMessages(ContextManager):
    """The last `count` messages; a turn with `info["forget"]` drops all before its observation.

    LMRL-Gym's mazes use `forget`. With `keep_opening` the opening always stays and `count` counts
    the messages since (DART, arXiv 2509.23866: 35 of them).
    """

    count: int
    keep_opening: bool = False

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"a policy must see at least one message, not {self.count}")

    def view(
        self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()
    ) -> Sequence[Message]:
        messages = [] if self.keep_opening else list(opening)
        for turn in turns:
            messages = (
                [*turn.observation]
                if turn.info.get("forget")
                else [*messages, turn.action, *turn.observation]
            )
        return [*(opening if self.keep_opening else ()), *messages[-self.count :]]
