"""`Prover`: theorems of propositional logic, proved one tactic a turn (BFS-Prover-V2, arXiv 2509.06493, has Lean's)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.context import ContextManager, LastMessages
from agentrl_jax.environment import Environment, Messages, Player
from agentrl_jax.envs.players import Mixed
from agentrl_jax.envs.probes.probe import whole
from agentrl_jax.envs.prover.formulas import canonical
from agentrl_jax.envs.prover.sequents import MOST, TACTICS, Refused, Sequent, State, applied, shown, stated, with_hypotheses
from agentrl_jax.envs.prover.theorems import DEEPEST, MISLEADING, Shortest, theorem
from agentrl_jax.envs.rewindable import Rewindable
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user

QUIT = "q"


def _random(env: Environment, rng: np.random.Generator) -> str:
    """A uniform tactic of those that apply; gives up where none does."""
    assert isinstance(env, Prover)
    tactics = env.applicable()
    return tactics[rng.integers(len(tactics))] if tactics else QUIT


def _expert(env: Environment, rng: np.random.Generator) -> str:
    """The first tactic of a shortest proof of the first goal; gives up where there is none that is short enough."""
    assert isinstance(env, Prover)
    proof = Shortest()(env.state[0], DEEPEST)
    return proof[0] if proof and proof[0] in env.applicable() else QUIT


class Prover(Rewindable):
    """ "a,a2>b|-b": show b from a and a>b, one tactic a turn. A reward of 1 when nothing is left to show.

    Tactics are about the goal that is shown last, and those that apply are named: `i` assumes the premise of a>b; `s` splits a&b or a=b;
    `l` and `r` choose a side of a+b; a name uses that hypothesis, which closes the goal, is applied to it (a>b>goal leaves a and b),
    rewrites it (a=b: a by b, or else b by a) or is taken apart (a&b, a+b); `q` gives up. A tactic that does not apply is answered by the
    reason, leaves everything as it is, and costs a turn. The last message is always all that is left to show, so a policy sees no more.

    Theorems have a shortest proof of `least` to `depth` tactics, and `misleading` hypotheses that start from the last letters, m to u:
    nothing shows these. Reset options: `theorem` ("a>b,a|-b") in place of one that is drawn; `lemmas`, further hypotheses; `claim`, what
    to show in place of the goal. Whoever adds a lemma must have shown it as a claim.

    `info` says `legal` and `anchor`.
    """

    players: ClassVar[Mapping[str, Player]] = MappingProxyType(
        {"random": _random, "weak": Mixed(_expert, _random, 0.4), "mixture": Mixed(_expert, _random, 0.8), "expert": _expert}
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
        self.depth = whole("depth", depth, 1, DEEPEST)
        self.least = whole("least", least, 1, self.depth)
        self.misleading = whole("misleading", misleading, 0, MISLEADING)
        self.horizon = whole("horizon", horizon, 1, 1000)
        self.longest = whole("longest", longest, 60, 1000)  # letters of what is left to show
        self.rules = (
            f"Prove what stands after |- from what stands before it, in at most {horizon} turns: & and, + or, > implies, = the same.\n"
            "i assumes the premise of a>b, s splits a&b and a=b, l and r choose a side of a+b, 1 uses the first hypothesis, q gives up."
        )
        self.start: State = ()
        self.state: State = ()
        self.turns = 0

    def applicable(self) -> tuple[str, ...]:
        """The tactics that would be accepted now."""
        return tuple(tactic for tactic in TACTICS if isinstance(self._after(tactic), tuple))

    def _after(self, tactic: str) -> State | str:
        """What is left to show after a tactic, or why it is refused."""
        try:
            state = (*applied(self.state[0], tactic), *self.state[1:])
        except Refused as refused:
            return str(refused)
        return state if len(shown(state)) <= self.longest else f"no room for more than {self.longest} letters"

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        unknown = sorted(options.keys() - {"theorem", "lemmas", "claim"})
        if unknown:
            raise UserError(f"Prover has no reset option {unknown}, only theorem, lemmas and claim")
        depth, seed = int(self.np_random.integers(self.least, self.depth + 1)), int(self.np_random.integers(2**31))
        drawn = None if "theorem" in options else theorem(seed, depth, self.misleading, self.longest)
        self.start = (self._asked(drawn, **options),)
        self._rewind()
        return (user(shown(self.state) + "\n"),), {}

    def _asked(self, drawn: Sequent | None, theorem: Any = "", lemmas: Any = (), claim: Any = "") -> Sequent:
        """Raises UserError where an option is no formula."""
        if not isinstance(lemmas, list | tuple) or not all(isinstance(text, str) for text in (theorem, claim, *lemmas)):
            raise UserError("theorem and claim are texts, and lemmas a list of texts")
        try:
            found = stated(theorem) if drawn is None else drawn
            found = with_hypotheses(found, *map(canonical, lemmas))
            found = Sequent(found.hypotheses, canonical(claim)) if claim else found
        except ValueError as error:
            raise UserError(f"theorem, lemmas or claim: {error}") from error
        if len(found.hypotheses) > MOST or len(shown((found,))) > self.longest:
            raise UserError(f"a theorem with its lemmas has at most {MOST} hypotheses and {self.longest} letters")
        return found

    def _rewind(self) -> None:
        self.state, self.turns = self.start, 0

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self.turns += 1
        tactic, anchor = text.strip(), shown(self.state)
        after = "given up" if tactic == QUIT else self._after(tactic)
        legal = isinstance(after, tuple)
        if legal:
            self.state = after
        proved, over = not self.state, not self.state or tactic == QUIT
        cut = not over and self.turns == self.horizon
        said = ("proved",) if proved else (shown(self.state),) if legal else (after, shown(self.state))
        info = {"rewards": {"outcome": float(proved)}, "full_score": 1.0, "legal": legal or tactic == QUIT, "anchor": anchor}
        if over or cut:
            info["success"] = proved
        return tuple(user(line + "\n") for line in said), float(proved), over, cut, info
