"""Random theorems with a shortest proof of a given length, and the search for shortest proofs."""

import functools
from collections.abc import Iterator

import numpy as np

from agentrl_jax.envs.prover.formulas import ATOMS, compose
from agentrl_jax.envs.prover.sequents import (
    MAX_HYPOTHESES,
    TACTICS,
    ProofState,
    Sequent,
    TacticError,
    apply_tactic,
    state_text,
)

MAX_DEPTH = 8  # largest length of a shortest proof
MAX_GIVEN_HYPOTHESES = MAX_HYPOTHESES - 1  # a proof may add one
MAX_MISLEADING = 5
# The last letters never have to be shown, which a policy can learn and a search does not know.
NUM_STRAY_ATOMS = 6


class ShortestProofSearch:
    """Shortest proofs by iterative deepening, with memory of proofs and failures."""

    def __init__(self) -> None:
        self._proofs: dict[Sequent, tuple[str, ...]] = {}
        self._failed_lengths: dict[Sequent, int] = {}  # no proof of this length

    def __call__(self, sequent: Sequent, max_length: int) -> tuple[str, ...] | None:
        """A shortest proof of at most `max_length` tactics, or None."""
        if sequent in self._proofs:
            return self._proofs[sequent] if len(self._proofs[sequent]) <= max_length else None
        for length in range(self._failed_lengths.get(sequent, 0) + 1, max_length + 1):
            for tactic in TACTICS:
                proof = self._proof_starting_with(sequent, tactic, length)
                if proof is not None:
                    self._proofs[sequent] = proof
                    return proof
            self._failed_lengths[sequent] = length
        return None

    def _proof_starting_with(
        self, sequent: Sequent, tactic: str, length: int
    ) -> tuple[str, ...] | None:
        """A proof of at most `length` tactics that begins with this one."""
        try:
            goals = apply_tactic(sequent, tactic)
        except TacticError:
            return None
        proof: tuple[str, ...] = (tactic,)
        for i, goal in enumerate(goals):
            subproof = self(goal, length - len(proof) - (len(goals) - 1 - i))
            if subproof is None:
                return None
            proof += subproof
        return proof


@functools.lru_cache(4096)
def sample_theorem(seed: int, depth: int, misleading: int, max_state_length: int) -> Sequent:
    """A theorem whose shortest proof has exactly `depth` tactics.

    No state of that proof has more than `max_state_length` characters.
    """
    rng = np.random.default_rng([seed, depth])
    while True:
        theorem = _sample_sketch(rng, depth, misleading)
        proof = theorem and ShortestProofSearch()(theorem, depth)
        if (
            theorem
            and proof
            and len(proof) == depth
            and all(len(text) <= max_state_length for text in _state_texts(theorem, proof))
        ):
            return theorem


def _state_texts(sequent: Sequent, proof: tuple[str, ...]) -> Iterator[str]:
    """The texts of the states along a proof."""
    state: ProofState = (sequent,)
    for tactic in proof:
        yield state_text(state)
        state = (*apply_tactic(state[0], tactic), *state[1:])


def _sample_sketch(rng: np.random.Generator, depth: int, misleading: int) -> Sequent | None:
    """A goal that about `depth` tactics prove, with misleading hypotheses.

    None where there are not enough letters or too many hypotheses.
    """
    sketch = _TheoremSketch(rng)
    try:
        goal = sketch.add_goal(depth)
        for _ in range(misleading):
            sketch.add_misleading_hypothesis()
    except StopIteration:
        return None
    hypotheses = list(dict.fromkeys(sketch.hypotheses))
    if len(hypotheses) > MAX_GIVEN_HYPOTHESES:
        return None
    return Sequent(tuple(hypotheses[i] for i in rng.permutation(len(hypotheses))), goal)


class _TheoremSketch:
    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._fresh_atoms, self._stray_atoms = (
            iter(rng.permutation(list(letters)).tolist())
            for letters in (ATOMS[:-NUM_STRAY_ATOMS], ATOMS[-NUM_STRAY_ATOMS:])
        )
        # Atoms that a proof must show and that no misleading hypothesis implies yet.
        self._goal_atoms: list[str] = []
        self.hypotheses: list[str] = []

    def add_goal(self, budget: int) -> str:
        """A goal, with or without a connective."""
        kind = self._rng.integers(5)
        if kind == 0 and budget >= 2:
            goal, other = self.add_atom(budget - 1), next(self._stray_atoms)
            return compose("+", goal, other) if self._rng.integers(2) else compose("+", other, goal)
        if kind == 1 and budget >= 3:
            first = int(self._rng.integers(1, budget - 1))
            return compose("&", self.add_atom(first), self.add_atom(budget - 1 - first))
        if kind == 2 and budget >= 3:
            goal = self.add_atom(budget - 1)
            facts = [text for text in self.hypotheses if len(text) == 1 and text != goal]
            if facts:
                self.hypotheses.remove(facts[0])
                return compose(">", facts[0], goal)
            return goal
        return self.add_atom(budget)

    def add_atom(self, budget: int) -> str:
        """An atom, and hypotheses that show it in about `budget` tactics."""
        goal = next(self._fresh_atoms)
        self._goal_atoms.append(goal)
        kind = self._rng.integers(6)
        if budget == 1:
            self.hypotheses.append(goal)
        elif budget == 2 and kind < 2:
            self.hypotheses.append(compose("&", goal, next(self._fresh_atoms)))
        elif budget == 5 and kind < 1:
            cases = next(self._fresh_atoms), next(self._fresh_atoms)
            self.hypotheses += [compose("+", *cases), *(compose(">", case, goal) for case in cases)]
        elif budget >= 3 and kind < 3:
            first = int(self._rng.integers(1, budget - 1))
            self.hypotheses.append(
                compose(
                    ">", self.add_atom(first), compose(">", self.add_atom(budget - 1 - first), goal)
                )
            )
        elif kind < 5:
            self.hypotheses.append(compose(">", self.add_atom(budget - 1), goal))
        else:
            self.hypotheses.append(compose("=", goal, self.add_atom(budget - 1)))
        return goal

    def add_misleading_hypothesis(self) -> None:
        """A hypothesis from an atom that nothing shows to a goal atom, or to another such atom."""
        start, end = (
            next(self._stray_atoms),
            self._goal_atoms.pop(int(self._rng.integers(len(self._goal_atoms)))),
        )
        if not self._goal_atoms or not self._rng.integers(4):
            self._goal_atoms.append(start)  # another one may imply it
        self.hypotheses.append(compose(">", start, end))
