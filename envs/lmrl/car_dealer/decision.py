"""The line by which a buyer ends the talk, and what it is worth to the seller."""

import re
from dataclasses import dataclass

OPENING = "Output: Decision="
LINE = re.compile(
    r"Decision=(Accept|Reject)[ ,;]{1,3}MSRP=\$(\d[\d,]{0,10})(?:[ ,;]{1,3}Buy Price=\$(\d[\d,]{0,10}))?(?![\d,]*\d)", re.ASCII
)


@dataclass(frozen=True)
class Decision:
    accepted: bool
    msrp: int
    price: int  # 0 where nothing was bought

    @property
    def line(self) -> str:
        """ "Output: Decision=Accept MSRP=$60,000 Buy Price=$48,000"."""
        bought = f" Buy Price=${self.price:,}" if self.accepted else ""
        return f"{OPENING}{'Accept' if self.accepted else 'Reject'} MSRP=${self.msrp:,}{bought}"


def _number(digits: str | None) -> int:
    return int((digits or "0").replace(",", "") or 0)


def cut(text: str) -> tuple[str, Decision | None]:
    """A buyer's text without what begins with "Output:", and the decision that stands there; None where it is none.

    An acceptance needs a price, and a decision a list price above 0.
    """
    visible, mark, rest = text.partition("Output:")
    found = LINE.match(rest.strip()) if mark else None
    if found is None:
        return visible.strip(), None
    decision = Decision(found[1] == "Accept", _number(found[2]), _number(found[3]) if found[1] == "Accept" else 0)
    whole = decision.msrp > 0 and (decision.price > 0 or not decision.accepted)
    return visible.strip(), decision if whole else None


def fancy(decision: Decision, budget: int) -> float:
    """LMRL-Gym's default reward: price / ((budget + MSRP) / 2) of an accepted car, -(budget - MSRP) / MSRP of a rejected one."""
    if decision.accepted:
        return decision.price / (0.5 * (budget + decision.msrp))
    return -(budget - decision.msrp) / decision.msrp


def revenue(decision: Decision, budget: int) -> float:
    """Thousands of dollars that were paid."""
    return decision.price / 1000
