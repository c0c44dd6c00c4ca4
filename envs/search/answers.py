"""Scores of short answers: exact match and F1 after SQuAD's normalization (arXiv 1606.05250)."""

import re
import string
from collections import Counter
from collections.abc import Sequence

MAX_ANSWER = 1000  # characters; a longer answer scores 0
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized(answer: str) -> str:
    """Lower case, without punctuation, articles (a, an, the) and repeated white space."""
    text = answer.lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact_match(answer: str, golds: Sequence[str]) -> float:
    """1 if the answer equals a right one after normalization, else 0."""
    if len(answer) > MAX_ANSWER:
        return 0.0
    return float(normalized(answer) in {normalized(gold) for gold in golds})


def f1_score(answer: str, golds: Sequence[str]) -> float:
    """The largest 2 p r / (p + r) over the right answers, p and r over normalized words as bags.

    As in HotpotQA (arXiv 1809.09600), yes and no score only as exact matches.
    """
    if len(answer) > MAX_ANSWER:
        return 0.0
    return max((_f1(normalized(answer), normalized(gold)) for gold in golds), default=0.0)


def _f1(answer: str, gold: str) -> float:
    if answer == gold or {answer, gold} & {"yes", "no", "noanswer"}:
        return float(answer == gold)
    common = sum((Counter(answer.split()) & Counter(gold.split())).values())
    if not common:
        return 0.0
    return 2 * common / (len(answer.split()) + len(gold.split()))
