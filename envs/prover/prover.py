"""`Prover`: propositional theorems, one tactic per turn (after BFS-Prover-V2, arXiv 2509.06493)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.context import ContextManager, LastMessages
from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.forkable import Forkable
from agentrl_jax.envs.options import checked_int
from agentrl_jax.envs.prover.formulas import canonical_formula
from agentrl_jax.envs.prover.sequents import (
    MAX_HYPOTHESES,
    TACTICS,
    ProofState,
    Sequent,
    TacticError,
    add_hypotheses,
    apply_tactic,
    parse_sequent,
    state_text,
)
from agentrl_jax.envs.prover.theorems import (
    MAX_DEPTH,
    MAX_MISLEADING,
    ShortestProofSearch,
    sample_theorem,
)
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user

QUIT = "q"


def _random_action(env: "Prover", rng: np.random.Generator) -> str:
    """A uniform applicable tactic; gives up where there is none."""
    tactics = env.applicable_tactics()
    return tactics[rng.integers(len(tactics))] if tactics else QUIT


def _expert_action(env: "Prover", rng: np.random.Generator) -> str:
    """The first tactic of a shortest proof of the first goal; gives up where none is found."""
    proof = ShortestProofSearch()(env.state[0], MAX_DEPTH)
    return proof[0] if proof and proof[0] in env.applicable_tactics() else QUIT


class Prover(Forkable):
    """The task "a,a2>b|-b" is to show b from a and a>b; a proof without open goals earns 1.

    Tactics act on the goal that is printed last, and the applicable ones are named in the text: `i`
    assumes the premise of a>b; `s` splits a&b or a=b; `l` and `r` choose a side of a+b; a name uses
    that hypothesis, which closes the goal, is applied to it (a>b>goal leaves a and b), rewrites it
    (a=b: a by b, or else b by a) or is taken apart (a&b, a+b); `q` gives up. A tactic that does not
    apply is answered by the reason, changes nothing and costs a turn. The last message always holds
    all open goals, and the default context shows only it. `info` holds `legal` and `anchor`.

    Scripted policies: `random` (uniform over applicable tactics), `expert` (a shortest proof),
    `weak` and `mixture` (the expert with probability 0.4 and 0.8). Reset options: `theorem`
    ("a>b,a|-b") instead of a sampled one; `lemmas`, further hypotheses; `claim`, the formula to
    show instead of the goal. A caller that adds a lemma must have shown it as a claim.

    Args:
        depth: largest length of a theorem's shortest proof, in tactics.
        least: smallest length of a theorem's shortest proof.
        misleading: hypotheses that start from the last letters, m to u, which nothing shows.
        horizon: turns before truncation.
        longest: largest number of characters of the open goals.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "weak": MixturePolicy(_expert_action, _random_action, 0.4),
            "mixture": MixturePolicy(_expert_action, _random_action, 0.8),
            "expert": _expert_action,
        }
    )
    context: ContextManager = LastMessages(1)
    reward_bounds: tuple[float, float] = (0.0, 1.0)

    def __init__(
        self,
        depth: int = 5,
        least: int = 2,
        misleading: int = 2,
        horizon: int = 12,
        longest: int = 80,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.depth = checked_int("depth", depth, 1, MAX_DEPTH)
        self.least = checked_int("least", least, 1, self.depth)
        self.misleading = checked_int("misleading", misleading, 0, MAX_MISLEADING)
        self.horizon = checked_int("horizon", horizon, 1, 1000)
        self.longest = checked_int("longest", longest, 60, 1000)  # characters of the open goals
        self.rules = (
            f"Prove what stands after |- from what stands before it, in at most {horizon} turns: "
            "& and, + or, > implies, = the same.\n"
            "i assumes the premise of a>b, s splits a&b and a=b, l and r choose a side of a+b, 1 "
            "uses the first hypothesis, q gives up."
        )
        self.start_state: ProofState = ()
        self.state: ProofState = ()
        self.turns = 0

    def applicable_tactics(self) -> tuple[str, ...]:
        """The tactics that would be accepted now."""
        return tuple(tactic for tactic in TACTICS if isinstance(self._next_state(tactic), tuple))

    def _next_state(self, tactic: str) -> ProofState | str:
        """The state after a tactic, or the reason why it is refused."""
        try:
            state = (*apply_tactic(self.state[0], tactic), *self.state[1:])
        except TacticError as refused:
            return str(refused)
        return (
            state
            if len(state_text(state)) <= self.longest
            else f"no room for more than {self.longest} letters"
        )

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        unknown = sorted(options.keys() - {"theorem", "lemmas", "claim"})
        if unknown:
            raise UserError(f"Prover has no reset option {unknown}, only theorem, lemmas and claim")
        depth, seed = (
            int(self.np_random.integers(self.least, self.depth + 1)),
            int(self.np_random.integers(2**31)),
        )
        sampled = (
            None
            if "theorem" in options
            else sample_theorem(seed, depth, self.misleading, self.longest)
        )
        self.start_state = (self._initial_sequent(sampled, **options),)
        self._rewind()
        return (user(state_text(self.state) + "\n"),), {}

    def _initial_sequent(
        self, sampled: Sequent | None, theorem: Any = "", lemmas: Any = (), claim: Any = ""
    ) -> Sequent:
        """The sequent that an episode starts with.

        Raises:
            UserError: an option is no formula.
        """
        if not isinstance(lemmas, list | tuple) or not all(
            isinstance(text, str) for text in (theorem, claim, *lemmas)
        ):
            raise UserError("theorem and claim are texts, and lemmas a list of texts")
        try:
            sequent = parse_sequent(theorem) if sampled is None else sampled
            sequent = add_hypotheses(sequent, *map(canonical_formula, lemmas))
            sequent = Sequent(sequent.hypotheses, canonical_formula(claim)) if claim else sequent
        except ValueError as error:
            raise UserError(f"theorem, lemmas or claim: {error}") from error
        if len(sequent.hypotheses) > MAX_HYPOTHESES or len(state_text((sequent,))) > self.longest:
            raise UserError(
                f"a theorem with its lemmas has at most {MAX_HYPOTHESES} hypotheses and "
                f"{self.longest} letters"
            )
        return sequent

    def _rewind(self) -> None:
        self.state, self.turns = self.start_state, 0

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self.turns += 1
        tactic, anchor = text.strip(), state_text(self.state)
        after = "given up" if tactic == QUIT else self._next_state(tactic)
        legal = isinstance(after, tuple)
        if legal:
            self.state = after
        proved, over = not self.state, not self.state or tactic == QUIT
        cut = not over and self.turns == self.horizon
        lines = (
            ("proved",)
            if proved
            else (state_text(self.state),)
            if legal
            else (after, state_text(self.state))
        )
        info = {
            "rewards": {"outcome": float(proved)},
            "full_score": 1.0,
            "legal": legal or tactic == QUIT,
            "anchor": anchor,
        }
        if over or cut:
            info["success"] = proved
        return tuple(user(line + "\n") for line in lines), float(proved), over, cut, info
