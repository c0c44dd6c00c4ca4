"""Rewards of single turns (slot R): information gain, tools, an expert's path, a judge's marks, compactness."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentrl_jax.algorithms.facts import fact, succeeded, tool_calls, with_part
from agentrl_jax.algorithms.rewards import at_end, each, only, with_turns
from agentrl_jax.errors import UserError
from agentrl_jax.trajectories import Group, Trajectory, Turn


@dataclass
class InfoGain:
    """P_{t+1} - P_t added to each turn but the last, P_t = exp(gold_logp) of the state that turn t was taken in (IGPO, arXiv 2510.14967).

    The last turn keeps what the environment gave, the outcome. `log`: the difference of log-probs instead.
    """

    log: bool = False

    def __call__(self, group: Group, step: int) -> Group:
        def gained(trajectory: Trajectory) -> Trajectory:
            value = [float(fact(turn, "gold_logp")) for turn in trajectory.turns]
            value = value if self.log else [math.exp(x) for x in value]
            *others, last = trajectory.turns
            gains = (with_part(turn, "info_gain", value[t + 1] - value[t]) for t, turn in enumerate(others))
            return trajectory.replace(turns=(*gains, last))

        return each(group, gained)


@dataclass
class ToolUse:
    """`amount` on each turn that calls a tool, `most` in all at the most, times a schedule of the step (SPEAR, arXiv 2509.22601: .1, 1)."""

    schedule: Callable[[int], float]
    amount: float = 0.1
    most: float = 1.0

    def __call__(self, group: Group, step: int) -> Group:
        scale = self.schedule(step)

        def paid(trajectory: Trajectory) -> Trajectory:
            turns, left = [], self.most
            for turn in trajectory.turns:
                part = min(self.amount, left) if tool_calls(turn) else 0.0
                left -= part
                turns.append(with_part(turn, "tools", scale * part) if part > 0 else turn)
            return trajectory.replace(turns=tuple(turns))

        return each(group, paid)


@dataclass
class ToolVariety:
    """`amount` on the last turn of a solved episode in which every one of these tools was called (ARPO, arXiv 2507.19849: .1)."""

    tools: Sequence[str]
    amount: float = 0.1

    def __call__(self, group: Group, step: int) -> Group:
        def paid(trajectory: Trajectory) -> Trajectory:
            called = {call.name for turn in trajectory.turns for call in turn.action.tool_calls}
            return at_end(trajectory, "variety", self.amount) if succeeded(trajectory) and called >= set(self.tools) else trajectory

        return each(group, paid)


_MATCHES = ("exact", "type", "parsed", "none")


def _match(turn: Turn) -> str:
    match = fact(turn, "match")
    if match not in _MATCHES:
        raise UserError(f"a turn's match must be one of {_MATCHES}, not {match!r}")
    return match


def _formatted(turn: Turn) -> bool:
    return bool(turn.info.get("formatted", True))


def expert_match(group: Group, step: int) -> Group:
    """UI-S1's paper (arXiv 2509.11543): r = .1 [format] + .4 [format, type] + .5 [format, type, exact], in place of all rewards."""

    def reward(turn: Turn) -> Turn:
        kind = _match(turn) in ("exact", "type")
        value = (0.1 + 0.4 * kind + 0.5 * (_match(turn) == "exact")) if _formatted(turn) else 0.0
        return only(turn, "match", value)

    return each(group, lambda trajectory: with_turns(trajectory, reward))


def expert_match_as_released(group: Group, step: int) -> Group:
    """UI-S1's code: r = .1 [format] + .9 a, a = 1 exact, .5 right type, .1 wrong type, 0 unreadable, in place of all rewards.

    A step annotated as harmful has 1 - a, a neutral one .5.
    """

    def reward(turn: Turn) -> Turn:
        a = (1.0, 0.5, 0.1, 0.0)[_MATCHES.index(_match(turn))]
        a = {"harmful": 1.0 - a, "neutral": 0.5}.get(turn.info.get("annotation", ""), a)
        return only(turn, "match", 0.1 * _formatted(turn) + 0.9 * a)

    return each(group, lambda trajectory: with_turns(trajectory, reward))


@dataclass
class JudgedTurns:
    """`mark` on turns that a judge holds critical, if the episode was solved; scale x outcome on the last; else 0 (EPO, arXiv 2502.12486).

    The outcome is the return that the environment gave (SOTOPIA's goal score: scale .1).
    """

    scale: float = 1.0
    mark: float = 1.0

    def __call__(self, group: Group, step: int) -> Group:
        def judged(trajectory: Trajectory) -> Trajectory:
            solved = succeeded(trajectory)
            *others, last = trajectory.turns
            marked = (only(turn, "critical", self.mark * (solved and bool(turn.info.get("critical", False)))) for turn in others)
            return trajectory.replace(turns=(*marked, only(last, "outcome", self.scale * trajectory.total_reward)))

        return each(group, judged)


@dataclass
class Compactness:
    """-amount on every turn of which some text, note or action, holds more than one thinking unit, else 0 (MinD, arXiv 2505.19788).

    A unit begins with the text and with every marker in it ("Wait", "Alternatively", ...). This test, the markers and the
    amount are the caller's: the paper's are not known.
    """

    amount: float
    markers: Sequence[str]

    def __call__(self, group: Group, step: int) -> Group:
        def penalised(turn: Turn) -> Turn:
            texts = [message.text.strip() for message in (*turn.notes, turn.action)]
            again = any(text.count(marker) > text.startswith(marker) for text in texts for marker in self.markers)
            return with_part(turn, "compactness", -self.amount) if again else turn

        return each(group, lambda trajectory: with_turns(trajectory, penalised))
