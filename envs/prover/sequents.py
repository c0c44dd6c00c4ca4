"""Goals and tactics: what is to be shown from which hypotheses, and the steps that the prover accepts.

A tactic replaces the first goal by goals from which it follows; nothing is left of a proof that is done. The first goal is shown last.

    a,a>b|-b&a s   --s->   a,a2>b|-a;b   --2->   a1,a>b|-a;a   --1->   a1,a>b|-a   --1->   (proved)
"""

import functools
from dataclasses import dataclass

from agentrl_jax.envs.prover.formulas import canonical, join, parts, replaced

NAMES = "123456789ABC"  # of hypotheses
MOST = len(NAMES)
_NAMELESS = str.maketrans("", "", NAMES)
TACTICS = ("i", "s", "l", "r", *NAMES)


class Refused(Exception):
    """A tactic that does not apply; the message says why."""


@dataclass(frozen=True)
class Sequent:
    """What is to be shown, and from what."""

    hypotheses: tuple[str, ...]
    goal: str


State = tuple[Sequent, ...]  # all of them are to be shown, the first one first


def shown(state: State) -> str:
    """The goals as text, the first one last and ";" between them; hypotheses are not said again where they are those of the goal before.

    What applies to the first goal is named: hypotheses bear their names after what they begin with, other tactics are at the end.
    """
    said, before, names = [], None, applicable(state[0]) if state else ()
    for sequent in reversed(state):
        named = names if sequent.hypotheses == state[0].hypotheses else ()
        given = ",".join(_named(text, name) if name in named else text for name, text in zip(NAMES, sequent.hypotheses))
        said.append(sequent.goal if sequent.hypotheses == before else f"{given}|-{sequent.goal}")
        before = sequent.hypotheses
    others = "".join(name for name in names if name not in NAMES)
    return ";".join(said) + (f" {others}" if others else "")


def _named(hypothesis: str, name: str) -> str:
    """a>b -> a2>b: beside the premise, where it tells whether to go that way."""
    connective, left, right = parts(hypothesis)
    before = len(join(connective, left, right)) - len(join(connective, "a", right)) + 1 if connective else len(left)
    return hypothesis[:before] + name + hypothesis[before:]


def applicable(sequent: Sequent) -> tuple[str, ...]:
    """The tactics that apply."""
    return tuple(tactic for tactic in TACTICS if _applies(sequent, tactic))


def _applies(sequent: Sequent, tactic: str) -> bool:
    try:
        applied(sequent, tactic)
    except Refused:
        return False
    return True


def stated(text: str) -> Sequent:
    """A sequent as somebody typed it, with names or without: "a>b,a|-b". Raises ValueError where it is none."""
    given, turnstile, goal = text.strip().rstrip("islr ").partition("|-")
    if not turnstile:
        raise ValueError(f"a theorem is written a>b,a|-b, not {text[:50]!r}")
    hypotheses = tuple(map(canonical, given.translate(_NAMELESS).split(","))) if given.strip() else ()
    if len(hypotheses) > MOST:
        raise ValueError(f"a theorem has at most {MOST} hypotheses, not {len(hypotheses)}")
    return Sequent(hypotheses, canonical(goal))


def with_hypotheses(sequent: Sequent, *more: str) -> Sequent:
    """More to start from, without what is there already."""
    new = tuple(text for text in dict.fromkeys(more) if text not in sequent.hypotheses)
    return Sequent((*sequent.hypotheses, *new), sequent.goal)


@functools.lru_cache(65536)
def applied(sequent: Sequent, tactic: str) -> State:
    """The goals from which the sequent follows by a tactic: none where that proves it. Raises Refused."""
    connective, left, right = parts(sequent.goal)
    if tactic not in TACTICS:
        raise Refused(f"tactics are {' '.join(TACTICS)}")
    if tactic in NAMES:
        goals = _used(sequent, NAMES.index(tactic))
    elif tactic == "i" and connective == ">":
        goals = (with_hypotheses(Sequent(sequent.hypotheses, right), left),)
    elif tactic == "s" and connective in ("&", "="):
        pair = (left, right) if connective == "&" else (join(">", left, right), join(">", right, left))
        goals = tuple(Sequent(sequent.hypotheses, goal) for goal in pair)
    elif tactic in "lr" and connective == "+":
        goals = (Sequent(sequent.hypotheses, left if tactic == "l" else right),)
    else:
        wanted = {"i": "a>b", "s": "a&b or a=b", "l": "a+b", "r": "a+b"}[tactic]
        raise Refused(f"{tactic} needs a goal like {wanted}")
    if any(len(goal.hypotheses) > MOST for goal in goals):
        raise Refused(f"no room for more than {MOST} hypotheses")
    return goals


def _used(sequent: Sequent, place: int) -> State:
    """What is left to show after a hypothesis is used: it closes the goal, is applied to it, rewrites it, or is taken apart."""
    given, goal = sequent.hypotheses, sequent.goal
    if place >= len(given):
        raise Refused(f"there is no hypothesis {NAMES[place]}")
    hypothesis = given[place]
    if hypothesis == goal:
        return ()
    connective, left, right = parts(hypothesis)
    others = Sequent((*given[:place], *given[place + 1 :]), goal)
    if connective == "&":
        return (with_hypotheses(others, left, right),)
    if connective == "+":
        return with_hypotheses(others, left), with_hypotheses(others, right)
    if connective == "=":
        new = replaced(goal, left, right)
        new = replaced(goal, right, left) if new == goal else new
        if new == goal:
            raise Refused(f"neither {left} nor {right} is in the goal")
        return (Sequent(given, new),)
    premises = []
    while connective == ">":
        premises.append(left)
        if right == goal:
            return tuple(Sequent(given, premise) for premise in premises)
        connective, left, right = parts(right)
    raise Refused(f"{hypothesis} does not show the goal")
