"""Rewards of single turns (slot `rewards`): information gain, tool use, agreement with an expert, a
judge's labels, compactness.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentrl_jax.algorithms.advantages.info_fields import (
    add_reward_part,
    called_tools,
    info_field,
    succeeded,
)
from agentrl_jax.algorithms.experience.rewards import (
    add_to_last_turn,
    map_trajectories,
    map_turns,
    set_reward,
)
from agentrl_jax.errors import UserError
from agentrl_jax.trajectories import Group, Trajectory, Turn


@dataclass
class InformationGain:
    """P_{t+1} - P_t added to each turn but the last, P_t = exp(gold_logp) of the state before turn
    t (IGPO, arXiv 2510.14967).

    The last turn keeps its reward from the environment, the outcome. `use_logp`: the difference of
    log-probs instead.
    """

    use_logp: bool = False

    def __call__(self, group: Group, step: int) -> Group:
        def with_gains(trajectory: Trajectory) -> Trajectory:
            value = [float(info_field(turn, "gold_logp")) for turn in trajectory.turns]
            value = value if self.use_logp else [math.exp(x) for x in value]
            *earlier, last = trajectory.turns
            gains = (
                add_reward_part(turn, "info_gain", value[t + 1] - value[t])
                for t, turn in enumerate(earlier)
            )
            return trajectory.replace(turns=(*gains, last))

        return map_trajectories(group, with_gains)


@dataclass
class ToolUseReward:
    """`amount` on each turn that calls a tool, at most `max_total` in all, times a schedule of the
    step (SPEAR, arXiv 2509.22601: .1, 1).
    """

    schedule: Callable[[int], float]
    amount: float = 0.1
    max_total: float = 1.0

    def __call__(self, group: Group, step: int) -> Group:
        scale = self.schedule(step)

        def rewarded(trajectory: Trajectory) -> Trajectory:
            turns, remaining = [], self.max_total
            for turn in trajectory.turns:
                part = min(self.amount, remaining) if called_tools(turn) else 0.0
                remaining -= part
                turns.append(add_reward_part(turn, "tools", scale * part) if part > 0 else turn)
            return trajectory.replace(turns=tuple(turns))

        return map_trajectories(group, rewarded)


@dataclass
class ToolVarietyReward:
    """`amount` on the last turn of a solved episode in which every one of these tools was called
    (ARPO, arXiv 2507.19849: .1).
    """

    tools: Sequence[str]
    amount: float = 0.1

    def __call__(self, group: Group, step: int) -> Group:
        def rewarded(trajectory: Trajectory) -> Trajectory:
            called = {name for turn in trajectory.turns for name in called_tools(turn)}
            if succeeded(trajectory) and called >= set(self.tools):
                return add_to_last_turn(trajectory, "variety", self.amount)
            return trajectory

        return map_trajectories(group, rewarded)


@dataclass
class ToolNecessity:
    """weight max(0, success with tools - success without) added to the last turn of each member
    that called a tool; success is the mean over those members of the group.

    0 where all members called tools, or none did (CodeVision, arXiv 2512.03746; its script has
    weight 0).
    """

    weight: float

    def __call__(self, group: Group, step: int) -> Group:
        trajectories = [t for t in group.trajectories if t.turns]
        used = [any(called_tools(turn) for turn in t.turns) for t in trajectories]
        rates = [
            [succeeded(t) for t, tools in zip(trajectories, used) if tools == kind]
            for kind in (True, False)
        ]
        if not all(rates):
            return group
        gain = max(0.0, sum(rates[0]) / len(rates[0]) - sum(rates[1]) / len(rates[1]))

        def rewarded(trajectory: Trajectory) -> Trajectory:
            if any(called_tools(turn) for turn in trajectory.turns):
                return add_to_last_turn(trajectory, "necessity", self.weight * gain)
            return trajectory

        return map_trajectories(group, rewarded)


_MATCH_LEVELS = ("exact", "type", "parsed", "none")


def _match_level(turn: Turn) -> str:
    match = info_field(turn, "match")
    if match not in _MATCH_LEVELS:
        raise UserError(f"a turn's match must be one of {_MATCH_LEVELS}, not {match!r}")
    return match


def _is_formatted(turn: Turn) -> bool:
    return bool(turn.info.get("formatted", True))


def expert_match_reward(group: Group, step: int) -> Group:
    """UI-S1's paper (arXiv 2509.11543): r = .1 [format] + .4 [format, type] + .5 [format, type,
    exact], in place of all rewards.
    """

    def reward(turn: Turn) -> Turn:
        level = _match_level(turn)
        value = 0.1 + 0.4 * (level in ("exact", "type")) + 0.5 * (level == "exact")
        return set_reward(turn, "match", value if _is_formatted(turn) else 0.0)

    return map_trajectories(group, lambda trajectory: map_turns(trajectory, reward))


def expert_match_reward_released(group: Group, step: int) -> Group:
    """UI-S1's code: r = .1 [format] + .9 a, a = 1 exact, .5 right type, .1 wrong type, 0
    unreadable, in place of all rewards.

    For a step annotated as harmful a becomes 1 - a, for a neutral one .5.
    """

    def reward(turn: Turn) -> Turn:
        a = (1.0, 0.5, 0.1, 0.0)[_MATCH_LEVELS.index(_match_level(turn))]
        a = {"harmful": 1.0 - a, "neutral": 0.5}.get(turn.info.get("annotation", ""), a)
        return set_reward(turn, "match", 0.1 * _is_formatted(turn) + 0.9 * a)

    return map_trajectories(group, lambda trajectory: map_turns(trajectory, reward))


@dataclass
class CriticalTurnReward:
    """`critical_reward` on turns that a judge labels critical, if the episode was solved; scale x
    outcome on the last turn; else 0 (EPO, arXiv 2502.12486).

    The outcome is the return from the environment (SOTOPIA's goal score: scale .1).
    """

    scale: float = 1.0
    critical_reward: float = 1.0

    def __call__(self, group: Group, step: int) -> Group:
        def with_judged_rewards(trajectory: Trajectory) -> Trajectory:
            solved = succeeded(trajectory)
            *earlier, last = trajectory.turns
            is_critical = [solved and bool(turn.info.get("critical", False)) for turn in earlier]
            labeled = (
                set_reward(turn, "critical", self.critical_reward * critical)
                for turn, critical in zip(earlier, is_critical)
            )
            last = set_reward(last, "outcome", self.scale * trajectory.total_reward)
            return trajectory.replace(turns=(*labeled, last))

        return map_trajectories(group, with_judged_rewards)


@dataclass
class CompactnessPenalty:
    """-amount on every turn of which a text, note or action, has more than one thinking unit (MinD,
    arXiv 2505.19788).

    A unit begins with the text and with every marker in it ("Wait", "Alternatively", ...). The
    paper's test, markers and amount are not known: the caller chooses them.
    """

    amount: float
    markers: Sequence[str]

    def __call__(self, group: Group, step: int) -> Group:
        def penalized(turn: Turn) -> Turn:
            texts = [message.text.strip() for message in (*turn.notes, turn.action)]
            has_several_units = any(
                text.count(marker) > text.startswith(marker)
                for text in texts
                for marker in self.markers
            )
            return add_reward_part(turn, "compactness", -self.amount) if has_several_units else turn

        return map_trajectories(group, lambda trajectory: map_turns(trajectory, penalized))
