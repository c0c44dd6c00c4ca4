"""Contexts that have the policy write notes: summaries (SUPO), thoughts before an action (MinD)."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agentrl_jax.config_tree import OMITTED_AT_DEFAULT
from agentrl_jax.context import ContextManager, NoteRequest
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, user
from agentrl_jax.trajectories import Turn


@dataclass(frozen=True)
class Summarize(ContextManager):
    """A summary in place of a history that is too long (SUPO, arXiv 2510.06727).

    Where the next prompt would have `window` tokens or more, the newest action and its observation
    are left out (their effect on the environment stays), the policy answers the `instruction` with
    a summary, and its context from then on is the opening, the summary and the later messages:

        go | a1 o1 a2 o2 a3 o3   is too long:
        go | a1 o1 a2 o2 | instruction -> summary   then:
        go | summary -> a4

    A summary is trained as an action is, unless another `model` writes it. There is at most one a
    turn, whatever its length, and at most `max_summaries` an episode. After the last one the
    context grows until the agent's `limits.context` ends the episode, as it does without summaries:
    the window should leave room below that limit for an action, and for instruction and summary.
    With `max_summaries` 0 this is the full history.

    With `include_newest` the newest action and its observation are summarized, too (not the
    paper's): nothing is lost unseen, and the window must leave room for one more turn.
    """

    window: int
    max_summaries: int
    instruction: str
    heading: str = ""  # before a summary in the view
    max_tokens: int = 0  # of a summary; 0: as many as an action has
    model: str = ""  # the named model that writes the summaries; empty: the policy
    # The summary in a demonstration, from the messages that it summarizes.
    demonstration_writer: Callable[[Sequence[Message]], str] | None = None
    include_newest: bool = field(default=False, metadata=OMITTED_AT_DEFAULT)

    def __post_init__(self) -> None:
        if self.window < 1 or self.max_summaries < 0 or self.max_tokens < 0:
            raise UserError(
                "summaries need a window of at least 1 token, and max_summaries and max_tokens "
                f"of at least 0: {self}"
            )

    @property
    def writes_notes(self) -> bool:
        return True

    def view(
        self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()
    ) -> Sequence[Message]:
        summarized_turn = next((i for i in reversed(range(len(turns))) if turns[i].notes), 0)
        last_summary = (*(turns[summarized_turn].notes if turns else ()), *notes)[-1:]
        later_turns = () if notes else turns[summarized_turn:]
        return [
            *opening,
            *(user(f"{self.heading}{note.text}\n") for note in last_summary),
            *(m for turn in later_turns for m in (turn.action, *turn.observation)),
        ]

    def next_note_request(
        self,
        opening: Sequence[Message],
        turns: Sequence[Turn],
        notes: Sequence[Message],
        prompt_length: int,
    ) -> NoteRequest | None:
        num_summaries = sum(len(turn.notes) for turn in turns)
        if prompt_length < self.window or not turns or notes:
            return None
        if num_summaries >= self.max_summaries:
            return None
        return NoteRequest(
            [*self._summarized_view(opening, turns), user(self.instruction)],
            budget=self.max_tokens,
            name="summary",
            model=self.model,
        )

    def demonstrated_note(
        self,
        opening: Sequence[Message],
        turns: Sequence[Turn],
        notes: Sequence[Message],
        action: Message,
    ) -> Message | None:
        if self.demonstration_writer is None:
            raise UserError(
                "demonstrations outgrow the window: set `demonstration_writer`, which summarizes "
                "them, or take a larger window"
            )
        view = self._summarized_view(opening, turns)
        return Message("assistant", self.demonstration_writer(view))

    def _summarized_view(
        self, opening: Sequence[Message], turns: Sequence[Turn]
    ) -> Sequence[Message]:
        """What a summary is written from."""
        view = self.view(opening, turns)
        return view if self.include_newest else view[: -1 - len(turns[-1].observation)]


@dataclass(frozen=True)
class RegexMatches:
    """A demonstration's summary: the distinct matches of a regular expression, in order."""

    pattern: str
    separator: str = " "

    def __call__(self, messages: Sequence[Message]) -> str:
        matches = [
            match.group()
            for message in messages
            for match in re.finditer(self.pattern, message.text)
        ]
        return self.separator.join(dict.fromkeys(matches))


@dataclass(frozen=True)
class StepwiseThinking(ContextManager):
    """Thinking in units, one unit a call (MinD, arXiv 2505.19788).

    The policy writes units until one matches the regular expression `final_pattern`: that is its
    action. Units stay in view, each followed by `continue_prompt` where that is not empty, so the
    prompt only grows. Unit number `max_units` is the action whatever it is; with `max_units` 1 this
    is the full history.
    """

    final_pattern: str
    max_units: int
    continue_prompt: str = ""
    max_tokens: int = 0  # of a unit; 0: as many as an action has
    # The units in a demonstration, from the view and the action.
    demonstration_writer: Callable[[Sequence[Message], Message], Sequence[str]] | None = None

    def __post_init__(self) -> None:
        if self.max_units < 1 or self.max_tokens < 0:
            raise UserError(f"max_units must be at least 1 and max_tokens at least 0: {self}")

    @property
    def writes_notes(self) -> bool:
        return True

    def view(
        self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()
    ) -> Sequence[Message]:
        history = [
            m
            for turn in turns
            for m in (*self._note_messages(turn.notes), turn.action, *turn.observation)
        ]
        return [*opening, *history, *self._note_messages(notes)]

    def _note_messages(self, notes: Sequence[Message]) -> list[Message]:
        suffix = (user(self.continue_prompt),) if self.continue_prompt else ()
        return [m for note in notes for m in (note, *suffix)]

    def next_note_request(
        self,
        opening: Sequence[Message],
        turns: Sequence[Turn],
        notes: Sequence[Message],
        prompt_length: int,
    ) -> NoteRequest | None:
        if len(notes) >= self.max_units - 1:
            return None
        return NoteRequest(
            self.view(opening, turns, notes),
            is_action=self.is_final,
            budget=self.max_tokens,
            name="thought",
        )

    def is_final(self, answer: Message) -> bool:
        """Whether the answer is the action."""
        return re.search(self.final_pattern, answer.text) is not None

    def demonstrated_note(
        self,
        opening: Sequence[Message],
        turns: Sequence[Turn],
        notes: Sequence[Message],
        action: Message,
    ) -> Message | None:
        units = (
            self.demonstration_writer(self.view(opening, turns), action)
            if self.demonstration_writer
            else ()
        )
        return Message("assistant", units[len(notes)]) if len(notes) < len(units) else None


UNIT = re.compile(r"<think>(.*?)</think>(.*?)(?=<think>|\Z)", re.DOTALL)


def split_units(text: str) -> list[tuple[str, str]]:
    """The thoughts of a text, each with the answer after it.

    "<think>u</think>a<think>v</think>b" -> (u, a), (v, b). Raises UserError where the text is not
    a sequence of such units.
    """
    units = [(thought, answer) for thought, answer in UNIT.findall(text)]
    if join_units(units) != text:
        raise UserError(
            "units are <think>...</think> with an answer after each, and nothing before the "
            f"first: {text!r}"
        )
    return units


def join_units(units: Sequence[tuple[str, str]]) -> str:
    """The inverse of `split_units`."""
    return "".join(f"<think>{thought}</think>{answer}" for thought, answer in units)
