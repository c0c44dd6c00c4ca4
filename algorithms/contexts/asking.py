"""Contexts that the policy writes notes for: summaries in place of what no longer fits (SUPO), thoughts before an action (MinD)."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentrl_jax.context import Question
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, user
from agentrl_jax.trajectories import Turn


@dataclass(frozen=True)
class Summarize:
    """Summarise and start anew (SUPO, arXiv 2510.06727), at most `most` times an episode.

    Where the next prompt would have `window` tokens or more, the newest action and its observation are left out (the world
    keeps their effect), the policy answers the `instruction` with a summary, and its context is from then on the opening, the
    summary and what comes after:

        go | a1 o1 a2 o2 a3 o3   too long:   go | a1 o1 a2 o2 | instruction -> summary   then:   go | summary -> a4

    A summary is trained as an action is. Whatever it says there is one a turn at most. After the last one the context grows until
    `limits.context` of the agent ends the episode, as it does without summaries: a window should leave room below that limit for an
    action, and for instruction and summary. With `most` 0 this is the full history.
    """

    window: int
    most: int
    instruction: str
    heading: str = ""  # before a summary, where it is shown
    budget: int = 0  # tokens of a summary; 0: as many as an action has
    demonstrated: Callable[[Sequence[Message]], str] | None = None  # what a demonstration writes, of the messages that it summarises

    def __post_init__(self) -> None:
        if self.window < 1 or self.most < 0 or self.budget < 0:
            raise UserError(f"summaries need a window of at least 1 token, and budget and number not below 0: {self}")

    def view(self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()) -> Sequence[Message]:
        since = next((i for i in reversed(range(len(turns))) if turns[i].notes), 0)
        summary = (*(turns[since].notes if turns else ()), *notes)[-1:]
        after = () if notes else turns[since:]
        carried = [user(f"{self.heading}{note.text}\n") for note in summary]
        return [*opening, *carried, *(m for turn in after for m in (turn.action, *turn.observation))]

    def ask(self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message], length: int) -> Question | None:
        done = sum(len(turn.notes) for turn in turns)
        if length < self.window or not turns or notes or done >= self.most:
            return None
        return Question([*self._without_newest(opening, turns), user(self.instruction)], budget=self.budget, name="summary")

    def shown(self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message], action: Message) -> Message | None:
        if self.demonstrated is None:
            raise UserError("demonstrations outgrow the window: say with `demonstrated` how they summarise, or take a larger window")
        return Message("assistant", self.demonstrated(self._without_newest(opening, turns)))

    def _without_newest(self, opening: Sequence[Message], turns: Sequence[Turn]) -> Sequence[Message]:
        return self.view(opening, turns)[: -1 - len(turns[-1].observation)]


@dataclass(frozen=True)
class Matches:
    """A demonstration's summary: all that matches a regular expression in the messages, in order and each once."""

    pattern: str
    between: str = " "

    def __call__(self, messages: Sequence[Message]) -> str:
        found = [match.group() for message in messages for match in re.finditer(self.pattern, message.text)]
        return self.between.join(dict.fromkeys(found))


@dataclass(frozen=True)
class Decomposed:
    """Thinking in units, one a call (MinD, arXiv 2505.19788): the policy goes on until it writes what `final` is found in, its action.

    `final` is a regular expression. Units stay in view, `more` said after each where it is not empty, so the prompt only grows. The
    unit number `most` is the action whatever it is; with `most` 1 this is the full history.
    """

    final: str
    most: int
    more: str = ""
    budget: int = 0  # tokens of a unit; 0: as many as an action has
    demonstrated: Callable[[Sequence[Message], Message], Sequence[str]] | None = None  # a demonstration's units, of what it saw and did

    def __post_init__(self) -> None:
        if self.most < 1 or self.budget < 0:
            raise UserError(f"an action has at least one unit, and a budget is not below 0: {self}")

    def view(self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message] = ()) -> Sequence[Message]:
        past = [m for turn in turns for m in (*self._said(turn.notes), turn.action, *turn.observation)]
        return [*opening, *past, *self._said(notes)]

    def _said(self, notes: Sequence[Message]) -> list[Message]:
        return [m for note in notes for m in ((note, user(self.more)) if self.more else (note,))]

    def ask(self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message], length: int) -> Question | None:
        if len(notes) >= self.most - 1:
            return None
        return Question(self.view(opening, turns, notes), ends=self.is_final, budget=self.budget, name="thought")

    def is_final(self, answer: Message) -> bool:
        """Whether the answer is the action."""
        return re.search(self.final, answer.text) is not None

    def shown(self, opening: Sequence[Message], turns: Sequence[Turn], notes: Sequence[Message], action: Message) -> Message | None:
        units = self.demonstrated(self.view(opening, turns), action) if self.demonstrated else ()
        return Message("assistant", units[len(notes)]) if len(notes) < len(units) else None


UNIT = re.compile(r"<think>(.*?)</think>(.*?)(?=<think>|\Z)", re.DOTALL)


def split_units(text: str) -> list[tuple[str, str]]:
    """The thoughts of a text, each with the answer behind it: "<think>u</think>a<think>v</think>b" -> (u, a), (v, b).

    Raises UserError where the text is not made of such units alone.
    """
    units = [(thought, answer) for thought, answer in UNIT.findall(text)]
    if join_units(units) != text:
        raise UserError(f"units are <think>...</think> with an answer behind each, and nothing before the first: {text!r}")
    return units


def join_units(units: Sequence[tuple[str, str]]) -> str:
    """The inverse of `split_units`."""
    return "".join(f"<think>{thought}</think>{answer}" for thought, answer in units)
