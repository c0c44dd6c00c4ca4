"""The fields of `turn.info`, set by environments, judges and strategies, that components read in
addition to tokens and rewards.

| in `turn.info` | meaning | if absent |
|---|---|---|
| `legal` | False: the environment refused the action | True |
| `formatted` | False: the action was not in the requested form | True |
| `void` | True: the turn has neither tool code nor an answer | `trajectory_checks.is_void_text` |
| `answer` | the answer given in this turn, normalized, or None | None |
| `called_tools` | the names of the tools called, in order | those of `action.tool_calls` |
| `anchor` | the state that the action was taken in: text or number | the last observation |
| `step` | the step of the expert's path that the turn is at | the turn index |
| `match` | agreement with the expert's action: "exact", "type", "parsed" (wrong type) or "none"
(unreadable) | an error |
| `steps` | how many steps the expert's path has | an error |
| `patched` | True: the expert's action replaces the policy's in the history | False |
| `annotation` | an annotator's label of the step: "harmful" or "neutral" | neither |
| `critical` | True: a judge labels the turn as decisive for the episode | False |
| `gold_logp` | mean log-prob of the correct answer's tokens, were it given in the state that the
action was taken in | an error |
| `distance` | distance to the goal after the turn | an error |
| `stopped` | True: the agent itself ended the episode in this turn | False |
| `full_score` | the largest sum of rewards that the task has | an error |
| `weight` | the turn's weight in the loss, set from outside | an error |
| `instruction` | the number of the instruction that the episode was played under, see
`contexts.instruction_population` | not read |
| `span_factors` | [start, end, factor] of spans of the action's text, in characters | an error |
| `token_factors` | a factor for each token that the policy wrote, see `SpanFactors` | an error |
| `calls` | a name for each call of the turn: "action", "thought", "answer", "summary", ... |
"action" for each |

`trajectory.succeeded` is the outcome, `turn.rewards` holds the named parts of `turn.reward`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import CreditInputs
from agentrl_jax.trajectories import Call, Trajectory, Turn


def info_field(turn: Turn, name: str) -> Any:
    """`turn.info[name]`; raises UserError where the environment does not set it."""
    if name not in turn.info:
        raise UserError(
            f"a turn's info has no {name!r}: use an environment that sets it, or leave out the "
            "component that requires it"
        )
    return turn.info[name]


def succeeded(trajectory: Trajectory) -> bool:
    """Whether the episode was solved: a truncated one was not.

    Raises:
        UserError: it ended without a limit, and its environment does not report success.
    """
    if trajectory.succeeded is None:
        raise UserError(
            f"{trajectory.task or 'a task'} does not say whether it was solved: use an environment "
            "that does, or judge by its reward"
        )
    return trajectory.succeeded


def called_tools(turn: Turn) -> tuple[str, ...]:
    """The names of the tools that the turn called, in order. Raises UserError where the environment
    gives something else.
    """
    names = turn.info.get("called_tools", [call.name for call in turn.action.tool_calls])
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise UserError(f"a turn's info['called_tools'] must be a list of names, not {names!r:.80}")
    return tuple(names)


def add_reward_part(turn: Turn, name: str, value: float) -> Turn:
    """The turn with `value` added to its reward and to the named part of it. Raises UserError
    where it is not finite.
    """
    if not np.isfinite(value):
        raise UserError(
            f"the reward's part {name!r} is {value}, but rewards are finite numbers: check the "
            "reward transforms and models of the algorithm"
        )
    parts = {**turn.rewards, name: turn.rewards.get(name, 0.0) + float(value)}
    return turn.with_reward(turn.reward + float(value), parts)


def require_values(values: np.ndarray | None, description: str) -> np.ndarray:
    """Optional credit inputs as float64 [N]; raises UserError where the method does not compute
    them, and where one is not finite.
    """
    if values is None:
        raise UserError(
            f"the tokens' {description} is not known: this component needs it, and the method does "
            "not compute it"
        )
    values = np.asarray(values, np.float64)
    if not np.isfinite(values).all():
        raise UserError(
            f"the tokens' {description} is not finite: look at the weights and the learning rate "
            "of what computes it"
        )
    return values


def calls_and_owners(inputs: CreditInputs) -> tuple[Sequence[Call], np.ndarray]:
    """All calls, and the index of the call that each token belongs to, int [N]. Raises ValueError
    where the inputs lack some of the tokens.
    """
    calls = [call for trajectory in inputs.trajectories for call in trajectory.calls]
    lengths = [len(call.action) - len(call.sampling.forced) for call in calls]
    owner = np.repeat(np.arange(len(calls)), lengths)
    if len(owner) != len(inputs.token_sequence):
        raise ValueError(
            "calls are found by counting tokens: pass the inputs of all tokens, not of those that "
            "a mask keeps"
        )
    return calls, owner
