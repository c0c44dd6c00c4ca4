"""`RewardPost`: a reward that an agent program posts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrl_jax.capture.api_error import APIError
from agentrl_jax.capture.prompts import CallNode

REWARD_FIELDS = (
    "reward", "rewards", "success", "truncated", "agent", "call", "choice", "final", "id"
)  # fmt: skip


@dataclass(frozen=True)
class RewardPost:
    """Named parts of a reward, for the last call, the last of an agent, or one completion."""

    rewards: Mapping[str, float]
    success: bool | None = None
    truncated: bool = False
    final: bool = False
    agent: str | None = None
    completion_id: str | None = None
    choice_index: int = 0
    post_id: str | None = None

    def matches(self, node: CallNode) -> bool:
        return (
            self.completion_id is None
            or (self.completion_id, self.choice_index) == (node.completion_id, node.choice_index)
        ) and self.agent in (None, node.model)


def parse_reward_post(body: Any) -> RewardPost:
    """Parse a reward. Raises APIError if a field is wrong."""
    if not isinstance(body, dict) or body.keys() - set(REWARD_FIELDS):
        raise APIError(f"a reward's fields are {', '.join(REWARD_FIELDS)}")
    parts, total = body.get("rewards", {}), body.get("reward")
    if (
        not isinstance(parts, dict)
        or not all(map(_is_finite_number, parts.values()))
        or not (total is None or _is_finite_number(total))
    ):
        raise APIError(
            "reward must be a finite number, and rewards an object of such numbers", "reward"
        )
    if total is None and not parts:
        raise APIError("say reward, or its parts in rewards", "reward")
    if (
        total is not None
        and parts
        and not math.isclose(total, sum(parts.values()), rel_tol=1e-6, abs_tol=1e-6)
    ):
        raise APIError("reward must be the sum of rewards", "reward")
    for names, kinds in (
        (("success", "truncated", "final"), bool),
        (("agent", "call"), str),
        (("choice",), int),
        (("id",), str | int),
    ):
        for name in names:
            if not isinstance(body.get(name), kinds | None):
                raise APIError(f"{name}={body[name]!r:.40} cannot be", name)
    return RewardPost(
        {name: float(value) for name, value in (parts or {"task": total}).items()},
        body.get("success"),
        bool(body.get("truncated")),
        bool(body.get("final")),
        body.get("agent"),
        body.get("call"),
        body.get("choice") or 0,
        None if body.get("id") is None else str(body["id"]),
    )


def _is_finite_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30
