"""Answers to questions about images: how they are compared, and how turns are written."""

import re

_SPACES = re.compile(r"\s+")
_TURN = re.compile(r"\s*<think>((?:(?!</?(?:think|answer)>).)+)</think>\s*(.*)", re.DOTALL)
_ANSWER = re.compile(r"<answer>((?:(?!</?(?:think|answer)>).)*)</answer>\s*", re.DOTALL)
_POINT = re.compile(r"\(\s*(\d{1,5}(?:\.\d+)?)\s*,\s*(\d{1,5}(?:\.\d+)?)\s*\)")


def normalized(answer: str) -> str:
    """An answer in lower case, without articles, a final period and repeated spaces."""
    text = _SPACES.sub(" ", answer.strip().lower()).rstrip(".")
    return text.removeprefix("the ").strip()


def is_right(answer: str | None, gold: str) -> bool:
    """Whether an answer is the right one after `normalized`."""
    return answer is not None and normalized(answer) == normalized(gold)


def thought_of(text: str) -> tuple[str, str] | None:
    """The thought with which a turn begins, and what follows; None: it begins with none."""
    match = _TURN.fullmatch(text)
    return None if match is None else (match[1], match[2])


def is_answer_turn(text: str) -> bool:
    """Whether a turn is one thought and then one answer."""
    parts = thought_of(text)
    return parts is not None and _ANSWER.fullmatch(parts[1]) is not None


def is_call_turn(text: str) -> bool:
    """Whether a turn's text beside its call is one thought."""
    parts = thought_of(text)
    return parts is not None and not parts[1].strip()


def points_in(text: str) -> list[tuple[float, float]]:
    """The points (x, y) that a text names, in order."""
    return [(float(x), float(y)) for x, y in _POINT.findall(text)]
