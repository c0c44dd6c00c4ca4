"""Sequents and tactics of the prover.

A tactic replaces the first goal by goals from which it follows; a finished proof has no goals left.
The first goal is printed last.

    a,a>b|-b&a s   --s->   a,a2>b|-a;b   --2->   a1,a>b|-a;a   --1->   a1,a>b|-a   --1->   (proved)
"""

import functools
from dataclasses import dataclass

from agentrl_jax.envs.prover.formulas import canonical_formula, compose, decompose, substitute

HYPOTHESIS_NAMES = "123456789ABC"
MAX_HYPOTHESES = len(HYPOTHESIS_NAMES)
_NAME_REMOVAL_TABLE = str.maketrans("", "", HYPOTHESIS_NAMES)
TACTICS = ("i", "s", "l", "r", *HYPOTHESIS_NAMES)


class TacticError(Exception):
    """The tactic does not apply; the message is the reason."""


@dataclass(frozen=True)
class Sequent:
    """A goal and the hypotheses to show it from."""

    hypotheses: tuple[str, ...]
    goal: str


ProofState = tuple[Sequent, ...]  # the open goals, in the order in which to show them


def state_text(state: ProofState) -> str:
    """The goals as text, the first one last, separated by ";".

    Hypotheses are left out where they are those of the goal before. The applicable tactics of the
    first goal are marked: the names of hypotheses inside them, the other tactics at the end.
    """
    parts, previous, names = [], None, applicable_tactics(state[0]) if state else ()
    for sequent in reversed(state):
        named = names if sequent.hypotheses == state[0].hypotheses else ()
        hypotheses = ",".join(
            _annotated_hypothesis(text, name) if name in named else text
            for name, text in zip(HYPOTHESIS_NAMES, sequent.hypotheses)
        )
        parts.append(
            sequent.goal if sequent.hypotheses == previous else f"{hypotheses}|-{sequent.goal}"
        )
        previous = sequent.hypotheses
    other_tactics = "".join(name for name in names if name not in HYPOTHESIS_NAMES)
    return ";".join(parts) + (f" {other_tactics}" if other_tactics else "")


def _annotated_hypothesis(hypothesis: str, name: str) -> str:
    """a>b -> a2>b: the name stands next to the premise."""
    connective, left, right = decompose(hypothesis)
    before = (
        len(compose(connective, left, right)) - len(compose(connective, "a", right)) + 1
        if connective
        else len(left)
    )
    return hypothesis[:before] + name + hypothesis[before:]


def applicable_tactics(sequent: Sequent) -> tuple[str, ...]:
    """The tactics that apply to a sequent."""
    return tuple(tactic for tactic in TACTICS if _is_applicable(sequent, tactic))


def _is_applicable(sequent: Sequent, tactic: str) -> bool:
    try:
        apply_tactic(sequent, tactic)
    except TacticError:
        return False
    return True


def parse_sequent(text: str) -> Sequent:
    """A sequent from text, with or without the marks of tactics: "a>b,a|-b".

    Raises:
        ValueError: the text is no sequent.
    """
    premises, turnstile, goal = text.strip().rstrip("islr ").partition("|-")
    if not turnstile:
        raise ValueError(f"a theorem is written a>b,a|-b, not {text[:50]!r}")
    hypotheses = (
        tuple(map(canonical_formula, premises.translate(_NAME_REMOVAL_TABLE).split(",")))
        if premises.strip()
        else ()
    )
    if len(hypotheses) > MAX_HYPOTHESES:
        raise ValueError(
            f"a theorem has at most {MAX_HYPOTHESES} hypotheses, not {len(hypotheses)}"
        )
    return Sequent(hypotheses, canonical_formula(goal))


def add_hypotheses(sequent: Sequent, *hypotheses: str) -> Sequent:
    """The sequent with further hypotheses, without duplicates."""
    new = tuple(text for text in dict.fromkeys(hypotheses) if text not in sequent.hypotheses)
    return Sequent((*sequent.hypotheses, *new), sequent.goal)


@functools.lru_cache(65536)
def apply_tactic(sequent: Sequent, tactic: str) -> ProofState:
    """The goals from which the sequent follows by a tactic; none where it proves the sequent.

    Raises:
        TacticError: the tactic does not apply.
    """
    connective, left, right = decompose(sequent.goal)
    if tactic not in TACTICS:
        raise TacticError(f"tactics are {' '.join(TACTICS)}")
    if tactic in HYPOTHESIS_NAMES:
        goals = _apply_hypothesis(sequent, HYPOTHESIS_NAMES.index(tactic))
    elif tactic == "i" and connective == ">":
        goals = (add_hypotheses(Sequent(sequent.hypotheses, right), left),)
    elif tactic == "s" and connective in ("&", "="):
        pair = (
            (left, right)
            if connective == "&"
            else (compose(">", left, right), compose(">", right, left))
        )
        goals = tuple(Sequent(sequent.hypotheses, goal) for goal in pair)
    elif tactic in "lr" and connective == "+":
        goals = (Sequent(sequent.hypotheses, left if tactic == "l" else right),)
    else:
        goal_form = {"i": "a>b", "s": "a&b or a=b", "l": "a+b", "r": "a+b"}[tactic]
        raise TacticError(f"{tactic} needs a goal like {goal_form}")
    if any(len(goal.hypotheses) > MAX_HYPOTHESES for goal in goals):
        raise TacticError(f"no room for more than {MAX_HYPOTHESES} hypotheses")
    return goals


def _apply_hypothesis(sequent: Sequent, index: int) -> ProofState:
    """The goals after using a hypothesis.

    It closes the goal, is applied to it, rewrites it, or is taken apart.
    """
    hypotheses, goal = sequent.hypotheses, sequent.goal
    if index >= len(hypotheses):
        raise TacticError(f"there is no hypothesis {HYPOTHESIS_NAMES[index]}")
    hypothesis = hypotheses[index]
    if hypothesis == goal:
        return ()
    connective, left, right = decompose(hypothesis)
    remaining = Sequent((*hypotheses[:index], *hypotheses[index + 1 :]), goal)
    if connective == "&":
        return (add_hypotheses(remaining, left, right),)
    if connective == "+":
        return add_hypotheses(remaining, left), add_hypotheses(remaining, right)
    if connective == "=":
        new = substitute(goal, left, right)
        new = substitute(goal, right, left) if new == goal else new
        if new == goal:
            raise TacticError(f"neither {left} nor {right} is in the goal")
        return (Sequent(hypotheses, new),)
    premises = []
    while connective == ">":
        premises.append(left)
        if right == goal:
            return tuple(Sequent(hypotheses, premise) for premise in premises)
        connective, left, right = decompose(right)
    raise TacticError(f"{hypothesis} does not show the goal")
