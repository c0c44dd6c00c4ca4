"""`ForwardPlanner`: a scripted planner that proposes one-step consequences of what is known."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentrl_jax.envs.prover.formulas import decompose
from agentrl_jax.envs.prover.sequents import parse_sequent


@dataclass
class ForwardPlanner:
    """Proposes what follows from one hypothesis given the others.

    From a and a>b it proposes b, from a&b both a and b, from a=b either side given the other. Each
    plan starts from what was proven before, so plans reach further and further; failed claims are
    not proposed again.
    """

    async def plan(
        self,
        theorem: str,
        proven_claims: Sequence[str],
        failed_claims: Sequence[str],
        runtime: Any = None,
        key: Any = (),
    ) -> list[str]:
        """The claims to prove next.

        Raises:
            ValueError: the theorem cannot be parsed.
        """
        known = [*parse_sequent(theorem).hypotheses, *proven_claims]
        claims = dict.fromkeys(
            claim for hypothesis in known for claim in _consequences(hypothesis, known)
        )
        return [claim for claim in claims if claim not in known and claim not in failed_claims]


def _consequences(hypothesis: str, known: Sequence[str]) -> list[str]:
    connective, left, right = decompose(hypothesis)
    if connective == "&":
        return [left, right]
    if connective == "=":
        return [other for side, other in ((left, right), (right, left)) if side in known]
    while connective == ">" and left in known:
        connective, left, right = decompose(hypothesis := right)
        if connective != ">" or left not in known:
            return [hypothesis]
    return []
