"""The line by which a buyer ends the dialogue, and the seller's reward for it."""

import re
from dataclasses import dataclass

DECISION_PREFIX = "Output: Decision="
DECISION_PATTERN = re.compile(
    r"Decision=(Accept|Reject)[ ,;]{1,3}MSRP=\$(\d[\d,]{0,10})"
    r"(?:[ ,;]{1,3}Buy Price=\$(\d[\d,]{0,10}))?(?![\d,]*\d)",
    re.ASCII,
)


@dataclass(frozen=True)
class Decision:
    accepted: bool
    msrp: int
    price: int  # 0 after a rejection

    @property
    def line(self) -> str:
        """ "Output: Decision=Accept MSRP=$60,000 Buy Price=$48,000"."""
        bought = f" Buy Price=${self.price:,}" if self.accepted else ""
        return (
            f"{DECISION_PREFIX}{'Accept' if self.accepted else 'Reject'} "
            f"MSRP=${self.msrp:,}{bought}"
        )


def _parse_number(digits: str | None) -> int:
    return int((digits or "0").replace(",", "") or 0)


def split_decision(text: str) -> tuple[str, Decision | None]:
    """The text before "Output:", and the decision after it; None where it is malformed.

    An acceptance needs a price, and every decision a list price above 0.
    """
    visible, mark, decision_text = text.partition("Output:")
    match = DECISION_PATTERN.match(decision_text.strip()) if mark else None
    if match is None:
        return visible.strip(), None
    decision = Decision(
        match[1] == "Accept",
        _parse_number(match[2]),
        _parse_number(match[3]) if match[1] == "Accept" else 0,
    )
    complete = decision.msrp > 0 and (decision.price > 0 or not decision.accepted)
    return visible.strip(), decision if complete else None


def fancy_reward(decision: Decision, budget: int) -> float:
    """LMRL-Gym's default reward.

    price / ((budget + MSRP) / 2) for an accepted car, -(budget - MSRP) / MSRP for a rejected one.
    """
    if decision.accepted:
        return decision.price / (0.5 * (budget + decision.msrp))
    return -(budget - decision.msrp) / decision.msrp


def revenue_reward(decision: Decision, budget: int) -> float:
    """The price in thousands of dollars."""
    return decision.price / 1000
