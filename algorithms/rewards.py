"""Reward transforms (slot R): (group, step) -> group with other rewards and named parts. What they read of a turn is in `facts`."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentrl_jax.algorithms.facts import fact, succeeded, with_part
from agentrl_jax.errors import UserError
from agentrl_jax.trajectories import Group, Trajectory, Turn

Reward = Callable[[Group, int], Group]


def each(group: Group, change: Callable[[Trajectory], Trajectory]) -> Group:
    """The group with every trajectory that has turns changed."""
    return dataclasses.replace(group, trajectories=tuple(change(t) if t.turns else t for t in group.trajectories))


def with_turns(trajectory: Trajectory, change: Callable[[Turn], Turn]) -> Trajectory:
    return trajectory.replace(turns=tuple(map(change, trajectory.turns)))


def at_end(trajectory: Trajectory, name: str, value: float) -> Trajectory:
    """`value` added to the last turn's reward as a named part."""
    *others, last = trajectory.turns
    return trajectory.replace(turns=(*others, with_part(last, name, value)))


def only(turn: Turn, name: str, value: float) -> Turn:
    """The turn with this reward instead of all that it had."""
    return with_part(dataclasses.replace(turn, reward=0.0, rewards={}), name, value)


@dataclass
class InTurn:
    """One transform after the other."""

    rewards: Sequence[Reward]

    def __call__(self, group: Group, step: int) -> Group:
        for reward in self.rewards:
            group = reward(group, step)
        return group


@dataclass
class InStages:
    """The transform that a schedule names for the step (SCoRe's two stages)."""

    schedule: Callable[[int], Reward]

    def __call__(self, group: Group, step: int) -> Group:
        return self.schedule(step)(group, step)


def _with_outcome(trajectory: Trajectory, right: float, wrong: float) -> Trajectory:
    bare = with_turns(trajectory, lambda turn: only(turn, "outcome", 0.0))
    return at_end(bare, "outcome", right if succeeded(trajectory) else wrong)


@dataclass
class Outcome:
    """`right` on the last turn of a solved episode, `wrong` on that of another, nothing before. Raises UserError where that is not said."""

    right: float = 1.0
    wrong: float = 0.0

    def __call__(self, group: Group, step: int) -> Group:
        return each(group, lambda t: _with_outcome(t, self.right, self.wrong))


@dataclass
class AttemptDecay:
    """factor^k for success at attempt k and 0 for failure, in place of all rewards.

    A turn is an attempt, counted from 0 (UFO, arXiv 2507.14295).
    """

    factor: float = 0.5

    def __call__(self, group: Group, step: int) -> Group:
        return each(group, lambda t: _with_outcome(t, self.factor ** (len(t.turns) - 1), 0.0))


def at_last_turn(group: Group, step: int) -> Group:
    """The whole return on the last turn, with its parts: the single reward of the Practitioner's Guide (arXiv 2510.01132)."""

    def moved(trajectory: Trajectory) -> Trajectory:
        parts: dict[str, float] = {}
        for turn in trajectory.turns:
            for name, value in turn.rewards.items():
                parts[name] = parts.get(name, 0.0) + value
        *others, last = (dataclasses.replace(turn, reward=0.0, rewards={}) for turn in trajectory.turns)
        return trajectory.replace(turns=(*others, dataclasses.replace(last, reward=trajectory.total_reward, rewards=parts)))

    return each(group, moved)


@dataclass
class TurnPenalty:
    """-amount on every turn that is wrong: `quality.malformed` (UFO .1), `quality.illegal` (EPO .1)."""

    name: str
    amount: float
    wrong: Callable[[Turn], bool]

    def __call__(self, group: Group, step: int) -> Group:
        return each(group, lambda t: with_turns(t, lambda turn: with_part(turn, self.name, -self.amount) if self.wrong(turn) else turn))


@dataclass
class EpisodePenalty:
    """-amount once, on the last turn, where any turn is wrong (ARPO for GUI, arXiv 2505.16282: .5 for a malformed action)."""

    name: str
    amount: float
    wrong: Callable[[Turn], bool]

    def __call__(self, group: Group, step: int) -> Group:
        return each(group, lambda t: at_end(t, self.name, -self.amount) if any(map(self.wrong, t.turns)) else t)


@dataclass
class InsteadOfAll:
    """`value` on the last turn and nothing else where any turn is wrong (ARPO, arXiv 2507.19849: -1; IGPO, 2510.14967: -2)."""

    name: str
    value: float
    wrong: Callable[[Turn], bool]

    def __call__(self, group: Group, step: int) -> Group:
        def replaced(trajectory: Trajectory) -> Trajectory:
            if not any(map(self.wrong, trajectory.turns)):
                return trajectory
            return at_end(with_turns(trajectory, lambda turn: only(turn, self.name, 0.0)), self.name, self.value)

        return each(group, replaced)


@dataclass
class RepeatedAnswers:
    """-weight (1 - E / T) on the last turn: E distinct among the T answers that the turns gave; 0 without any (UFO, arXiv 2507.14295)."""

    weight: float = 0.5

    def __call__(self, group: Group, step: int) -> Group:
        def penalised(trajectory: Trajectory) -> Trajectory:
            answers = [turn.info["answer"] for turn in trajectory.turns if turn.info.get("answer") is not None]
            return at_end(trajectory, "repetition", -self.weight * (1.0 - len(set(answers)) / len(answers)) if answers else 0.0)

        return each(group, penalised)


@dataclass
class Progress:
    """alpha (r_k - r_{k-1}) on every attempt but the first; a turn is an attempt (SCoRe, arXiv 2409.12917: two attempts, alpha 10)."""

    alpha: float = 10.0

    def __call__(self, group: Group, step: int) -> Group:
        def bonus(trajectory: Trajectory) -> Trajectory:
            first, *later = trajectory.turns
            gains = [self.alpha * (turn.reward - before.reward) for before, turn in zip(trajectory.turns, later)]
            return trajectory.replace(turns=(first, *(with_part(turn, "progress", gain) for turn, gain in zip(later, gains))))

        return each(group, bonus)


@dataclass
class OnlyTurn:
    """The rewards of one turn, counted from 0, and none elsewhere (SCoRe's first stage: the second attempt's)."""

    place: int

    def __call__(self, group: Group, step: int) -> Group:
        def kept(trajectory: Trajectory) -> Trajectory:
            turns = trajectory.turns
            return trajectory.replace(
                turns=tuple(turn if i == self.place else dataclasses.replace(turn, reward=0.0, rewards={}) for i, turn in enumerate(turns))
            )

        return each(group, kept)


@dataclass
class Gate:
    """G-RA (arXiv 2508.10548): a part of the reward counts only where every part of higher priority exceeds its threshold.

    R = sum_i R^(i) prod_{j above i} 1[R^(j) > delta_j], R^(j) the part's sum over the episode; parts that do not count leave
    every turn's reward. Thresholds of -inf give the plain sum. The values of the paper are not known. Raises UserError where a turn
    has a part that is not in the order, or parts that do not sum to its reward.
    """

    order: Sequence[str]  # the parts' names, highest priority first
    thresholds: Sequence[float]  # one for each part but the last

    def __call__(self, group: Group, step: int) -> Group:
        if len(self.thresholds) != len(self.order) - 1:
            raise UserError(f"a gate of {len(self.order)} parts has {len(self.order) - 1} thresholds, not {len(self.thresholds)}")
        return each(group, self._gated)

    def _gated(self, trajectory: Trajectory) -> Trajectory:
        for turn in trajectory.turns:
            if unknown := set(turn.rewards) - set(self.order):
                raise UserError(f"the gate's order {list(self.order)} lacks {sorted(unknown)}: name every part of the reward")
            if abs(sum(turn.rewards.values()) - turn.reward) > 1e-6 * max(1.0, abs(turn.reward)):
                raise UserError(f"a turn's named parts {dict(turn.rewards)} do not sum to its reward {turn.reward}")
        counted = []
        for name, threshold in zip(self.order, [*self.thresholds, 0.0]):
            counted.append(name)
            if not sum(turn.rewards.get(name, 0.0) for turn in trajectory.turns) > threshold:
                break

        def gated(turn: Turn) -> Turn:
            parts = {name: value for name, value in turn.rewards.items() if name in counted}
            return dataclasses.replace(turn, reward=float(sum(parts.values())), rewards=parts)

        return with_turns(trajectory, gated)


@dataclass
class DistanceSuccess:
    """1[stopped by itself, distance < radius] scale (1 - distance / radius) on the last turn, in place of all rewards.

    ActiveVLN (arXiv 2509.12618): radius 3 m, scale 15.
    """

    radius: float = 3.0
    scale: float = 15.0

    def __call__(self, group: Group, step: int) -> Group:
        def shaped(trajectory: Trajectory) -> Trajectory:
            last = trajectory.turns[-1]
            near = max(0.0, 1.0 - float(fact(last, "distance")) / self.radius) if last.info.get("stopped", False) else 0.0
            return at_end(with_turns(trajectory, lambda turn: only(turn, "distance", 0.0)), "distance", self.scale * near)

        return each(group, shaped)


def dense(group: Group, step: int) -> Group:
    """Each reward divided by the number of positive ones if the episode was won, else by the task's `full_score` (arXiv 2510.01132).

    With rewards of 1 a win sums to 1 and a loss to at most 1.
    """

    def divided(trajectory: Trajectory) -> Trajectory:
        positive = sum(turn.reward > 0 for turn in trajectory.turns)
        most = max(positive, 1) if succeeded(trajectory) else float(fact(trajectory.turns[-1], "full_score"))
        if most <= 0:
            raise UserError(f"a task's full_score must be above 0, not {most}")
        return with_turns(
            trajectory,
            lambda turn: dataclasses.replace(
                turn, reward=turn.reward / most, rewards={name: value / most for name, value in turn.rewards.items()}
            ),
        )

    return each(group, divided)


@dataclass
class Overlong:
    """min(0, -(length - (longest - buffer)) / buffer factor) on the last turn; length counts what was sampled (DAPO, arXiv 2503.14476)."""

    longest: int
    buffer: int
    factor: float = 1.0

    def __call__(self, group: Group, step: int) -> Group:
        def penalised(trajectory: Trajectory) -> Trajectory:
            length = sum(len(call.action) for call in trajectory.calls)
            return at_end(trajectory, "overlong", min(0.0, -(length - (self.longest - self.buffer)) / self.buffer * self.factor))

        return each(group, penalised)
