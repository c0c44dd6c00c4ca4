"""`Forward`: a scripted planner that claims what follows in one step from what is given."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentrl_jax.envs.prover.formulas import parts
from agentrl_jax.envs.prover.sequents import stated


@dataclass
class Forward:
    """Claims that a hypothesis gives from other hypotheses alone: b of a and a>b, a and b of a&b, either side of a=b from the other.

    Each plan starts from what was proven before, so plans go further and further; what has failed is not claimed again.
    """

    async def plan(self, theorem: str, proven: Sequence[str], failed: Sequence[str], runtime: Any = None, key: Any = ()) -> list[str]:
        """Raises ValueError where the theorem is none."""
        given = [*stated(theorem).hypotheses, *proven]
        claims = dict.fromkeys(claim for hypothesis in given for claim in _following(hypothesis, given))
        return [claim for claim in claims if claim not in given and claim not in failed]


def _following(hypothesis: str, given: Sequence[str]) -> list[str]:
    connective, left, right = parts(hypothesis)
    if connective == "&":
        return [left, right]
    if connective == "=":
        return [other for one, other in ((left, right), (right, left)) if one in given]
    while connective == ">" and left in given:
        connective, left, right = parts(hypothesis := right)
        if connective != ">" or left not in given:
            return [hypothesis]
    return []
