"""What pieces read of a record beside tokens and rewards: the names under which environments, judges and strategies say it.

| in `turn.info` | says | if absent |
|---|---|---|
| `legal` | False: the environment refused the action | True |
| `formatted` | False: the action was not in the asked form | True |
| `void` | True: the turn held neither a tool's code nor an answer | what the text says, see `quality.Void` |
| `answer` | the answer given in this turn, normalised, or None | None |
| `tool_calls` | how many tools the turn called | `action.tool_calls` are counted |
| `anchor` | the state that the action was taken in, as text or a number | the last messages that were shown |
| `step` | the step of the expert's path that the turn stands at | the turn's place in its trajectory |
| `match` | how the action agrees with the expert's: "exact", "type", "parsed" (wrong type) or "none" (unreadable) | an error |
| `steps` | how many steps the expert's path has | an error |
| `patched` | True: the expert's action stands in the history for the policy's own | False |
| `annotation` | what an annotator says of the step: "harmful" or "neutral" | neither |
| `critical` | True: a judge holds that the turn decided the episode | False |
| `gold_logp` | mean log-prob of the right answer's tokens, were it given at once in the state that the action was taken in | an error |
| `distance` | how far the goal is after the turn | an error |
| `stopped` | True: the agent itself ended the episode in this turn | False |
| `full_score` | the largest sum of rewards that the task has | an error |
| `weight` | the turn's weight in the loss, from outside | an error |
| `instruction` | the number of the instruction that the episode was played under, see `contexts.population` | nobody asks |
| `calls` | a name for each call of the turn: "action", "thought", "answer", "summary", ... | "action" for each |

`trajectory.success` is the outcome, `turn.rewards` holds the named parts of `turn.reward`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.rows import Evidence
from agentrl_jax.trajectories import Call, Trajectory, Turn


def fact(turn: Turn, name: str) -> Any:
    """`turn.info[name]`; raises UserError where the environment does not say."""
    if name not in turn.info:
        raise UserError(f"a turn's info has no {name!r}: take an environment that says so, or leave out the piece that asks for it")
    return turn.info[name]


def succeeded(trajectory: Trajectory) -> bool:
    """The outcome; raises UserError where the environment does not say."""
    if trajectory.success is None:
        raise UserError(f"{trajectory.task or 'a task'} does not say whether it was solved: take one that does, or judge by its reward")
    return trajectory.success


def tool_calls(turn: Turn) -> int:
    return int(turn.info.get("tool_calls", len(turn.action.tool_calls)))


def with_part(turn: Turn, name: str, value: float) -> Turn:
    """The turn with `value` added to its reward and to the named part of it. Raises ValueError where it is not finite."""
    if not np.isfinite(value):
        raise ValueError(f"the reward's part {name!r} is {value}: rewards must be finite numbers")
    parts = {**turn.rewards, name: turn.rewards.get(name, 0.0) + float(value)}
    return dataclasses.replace(turn, reward=turn.reward + float(value), rewards=parts)


def known(values: np.ndarray | None, what: str) -> np.ndarray:
    """An array of the evidence as float64 [N]; raises UserError where nobody computed it."""
    if values is None:
        raise UserError(f"the tokens' {what} is not known: this piece needs it, and the method does not compute it")
    values = np.asarray(values, np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"the tokens' {what} is not finite")
    return values


def calls_of(evidence: Evidence) -> tuple[Sequence[Call], np.ndarray]:
    """All calls, and which of them wrote each token, int [N]. Raises ValueError where the evidence lacks some of the tokens."""
    calls = [call for trajectory in evidence.trajectories for call in trajectory.calls]
    lengths = [len(call.action) - len(call.sampling.forced) for call in calls]
    owner = np.repeat(np.arange(len(calls)), lengths)
    if len(owner) != len(evidence.token_row):
        raise ValueError("calls are found by counting tokens: give the evidence of all of them, not of those that a mask leaves")
    return calls, owner
