"""Theorems drawn at random, each with a shortest proof of a given length, and the search that finds such proofs."""

import functools
from collections.abc import Iterator

import numpy as np

from agentrl_jax.envs.prover.formulas import ATOMS, join
from agentrl_jax.envs.prover.sequents import MOST, TACTICS, Refused, Sequent, State, applied, shown

DEEPEST = 8  # tactics of the longest shortest proof that can be asked for
GIVEN = MOST - 1  # hypotheses at most: some room is left for those that a proof adds
MISLEADING = 5  # at most
STRAYS = 6  # of the letters: the last ones are never to be shown, which a policy can learn and search cannot know


class Shortest:
    """Shortest proofs by iterative deepening; what was found and what failed is remembered."""

    def __init__(self) -> None:
        self._found: dict[Sequent, tuple[str, ...]] = {}
        self._failed: dict[Sequent, int] = {}  # no proof of so many tactics

    def __call__(self, sequent: Sequent, longest: int) -> tuple[str, ...] | None:
        """A shortest proof of at most so many tactics, or None where there is none."""
        if sequent in self._found:
            return self._found[sequent] if len(self._found[sequent]) <= longest else None
        for length in range(self._failed.get(sequent, 0) + 1, longest + 1):
            for tactic in TACTICS:
                proof = self._first(sequent, tactic, length)
                if proof is not None:
                    self._found[sequent] = proof
                    return proof
            self._failed[sequent] = length
        return None

    def _first(self, sequent: Sequent, tactic: str, length: int) -> tuple[str, ...] | None:
        """A proof of at most `length` tactics that begins with this one."""
        try:
            goals = applied(sequent, tactic)
        except Refused:
            return None
        proof: tuple[str, ...] = (tactic,)
        for i, goal in enumerate(goals):
            rest = self(goal, length - len(proof) - (len(goals) - 1 - i))
            if rest is None:
                return None
            proof += rest
        return proof


@functools.lru_cache(4096)
def theorem(seed: int, depth: int, misleading: int, longest: int) -> Sequent:
    """A theorem whose shortest proof has exactly `depth` tactics and shows no state of more than `longest` letters."""
    rng = np.random.default_rng([seed, depth])
    while True:
        found = _sketch(rng, depth, misleading)
        proof = found and Shortest()(found, depth)
        if found and proof and len(proof) == depth and all(len(text) <= longest for text in _states(found, proof)):
            return found


def _states(sequent: Sequent, proof: tuple[str, ...]) -> Iterator[str]:
    """What is shown on the way."""
    state: State = (sequent,)
    for tactic in proof:
        yield shown(state)
        state = (*applied(state[0], tactic), *state[1:])


def _sketch(rng: np.random.Generator, depth: int, misleading: int) -> Sequent | None:
    """Hypotheses and a goal that about `depth` tactics prove, and hypotheses that lead nowhere; None where letters run out."""
    sketch = _Sketch(rng)
    try:
        goal = sketch.compound(depth)
        for _ in range(misleading):
            sketch.mislead()
    except StopIteration:
        return None
    given = list(dict.fromkeys(sketch.given))
    if len(given) > GIVEN:
        return None
    return Sequent(tuple(given[i] for i in rng.permutation(len(given))), goal)


class _Sketch:
    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._fresh, self._stray = (iter(rng.permutation(list(letters)).tolist()) for letters in (ATOMS[:-STRAYS], ATOMS[-STRAYS:]))
        self._shown: list[str] = []  # atoms that are to be shown on the way, but for those that something misleading leads to
        self.given: list[str] = []

    def compound(self, budget: int) -> str:
        """A goal with a connective, or a plain one."""
        kind = self._rng.integers(5)
        if kind == 0 and budget >= 2:
            goal, other = self.atom(budget - 1), next(self._stray)
            return join("+", goal, other) if self._rng.integers(2) else join("+", other, goal)
        if kind == 1 and budget >= 3:
            first = int(self._rng.integers(1, budget - 1))
            return join("&", self.atom(first), self.atom(budget - 1 - first))
        if kind == 2 and budget >= 3:
            goal = self.atom(budget - 1)
            facts = [text for text in self.given if len(text) == 1 and text != goal]
            if facts:
                self.given.remove(facts[0])
                return join(">", facts[0], goal)
            return goal
        return self.atom(budget)

    def atom(self, budget: int) -> str:
        """An atom, with what shows it in so many tactics among the given."""
        goal = next(self._fresh)
        self._shown.append(goal)
        kind = self._rng.integers(6)
        if budget == 1:
            self.given.append(goal)
        elif budget == 2 and kind < 2:
            self.given.append(join("&", goal, next(self._fresh)))
        elif budget == 5 and kind < 1:
            cases = next(self._fresh), next(self._fresh)
            self.given += [join("+", *cases), *(join(">", case, goal) for case in cases)]
        elif budget >= 3 and kind < 3:
            first = int(self._rng.integers(1, budget - 1))
            self.given.append(join(">", self.atom(first), join(">", self.atom(budget - 1 - first), goal)))
        elif kind < 5:
            self.given.append(join(">", self.atom(budget - 1), goal))
        else:
            self.given.append(join("=", goal, self.atom(budget - 1)))
        return goal

    def mislead(self) -> None:
        """A way that comes from nowhere to what is to be shown, or to where another such way starts."""
        start, end = next(self._stray), self._shown.pop(int(self._rng.integers(len(self._shown))))
        if not self._shown or not self._rng.integers(4):
            self._shown.append(start)  # others may lead there
        self.given.append(join(">", start, end))
