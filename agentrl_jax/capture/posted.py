"""`Posted`: a reward as its program posts it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrl_jax.capture.calls import Node
from agentrl_jax.capture.wire import Refused

FIELDS = ("reward", "rewards", "success", "truncated", "agent", "call", "choice", "final", "id")


@dataclass(frozen=True)
class Posted:
    """Named parts, and whose they are: the last call's, or the last of an agent, or an answer's."""

    rewards: Mapping[str, float]
    success: bool | None = None
    truncated: bool = False
    final: bool = False
    agent: str | None = None
    call: str | None = None
    choice: int = 0
    identity: str | None = None

    def means(self, node: Node) -> bool:
        return (self.call is None or (self.call, self.choice) == (node.identity, node.place)) and self.agent in (None, node.model)


def posted(body: Any) -> Posted:
    """Reads a reward. Raises Refused where a field is wrong."""
    if not isinstance(body, dict) or body.keys() - set(FIELDS):
        raise Refused(f"a reward's fields are {', '.join(FIELDS)}")
    parts, total = body.get("rewards", {}), body.get("reward")
    if not isinstance(parts, dict) or not all(map(_finite, parts.values())) or not (total is None or _finite(total)):
        raise Refused("reward must be a finite number, and rewards an object of such numbers", "reward")
    if total is None and not parts:
        raise Refused("say reward, or its parts in rewards", "reward")
    if total is not None and parts and not math.isclose(total, sum(parts.values()), rel_tol=1e-6, abs_tol=1e-6):
        raise Refused("reward must be the sum of rewards", "reward")
    for names, kinds in ((("success", "truncated", "final"), bool), (("agent", "call"), str), (("choice",), int), (("id",), str | int)):
        for name in names:
            if not isinstance(body.get(name), kinds | None):
                raise Refused(f"{name}={body[name]!r:.40} cannot be", name)
    return Posted(
        {name: float(value) for name, value in (parts or {"task": total}).items()}, body.get("success"), bool(body.get("truncated")),
        bool(body.get("final")), body.get("agent"), body.get("call"), body.get("choice") or 0,
        None if body.get("id") is None else str(body["id"]),
    )  # fmt: skip


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30
