"""Feedback by rules after a turn that did not end the episode, as MINT's expert gives it."""

import re
from dataclasses import dataclass

FEEDBACK = ("none", "binary", "textual")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


@dataclass(frozen=True)
class TurnSummary:
    """A turn as the critic sees it.

    Args:
        proposal: the wrong answer that was proposed; None: there was none.
        output: what the last code printed, in this turn or before; None: nothing has run.
        failed: whether the last code failed.
        reference: a right answer, where the critic knows it.
        output_is_right: whether the last line of the output is a right answer.
    """

    proposal: str | None
    output: str | None
    failed: bool
    reference: str | None
    output_is_right: bool


def feedback_text(kind: str, turn: TurnSummary) -> str:
    """The critic's sentence; it never names the answer.

    A binary critic says whether the turn helped: to one that knows the answer, code did whose
    output is right; to one that does not, code that ran without an error.
    """
    if kind == "binary":
        knows = turn.reference is not None
        is_good = turn.proposal is None and turn.output is not None and not turn.failed
        return f"This is {'GOOD' if is_good and (turn.output_is_right or not knows) else 'BAD'}."
    if turn.output is None:
        return "Run code first, and propose what it prints."
    if turn.failed:
        return "The code failed: read the last line of the error and run it again."
    if turn.reference is None:
        if turn.proposal is not None and turn.proposal not in turn.output:
            return "The code did not print what you proposed: propose what it prints."
        return "The code ran: check that it computes what is asked."
    if turn.output_is_right:
        return "The output is right: propose it."
    return f"The code does not compute what is asked.{_comparison(turn)}"


def _comparison(turn: TurnSummary) -> str:
    """Whether a proposed number is too large or too small."""
    numbers = (turn.proposal, turn.reference)
    if not all(text is not None and _NUMBER.fullmatch(text) for text in numbers):
        return ""
    proposal, reference = (float(text or "") for text in numbers)
    return f" The answer is {'smaller' if proposal > reference else 'larger'}."
