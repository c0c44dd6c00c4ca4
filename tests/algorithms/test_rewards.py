"""Reward transforms against the numbers of their papers."""

import dataclasses
import math

import numpy as np
import pytest
from hand_made import batch_shapes, grown_groups, make_call, make_trajectory, make_turn, told
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.algorithms.process_rewards import (
    Compactness,
    InfoGain,
    JudgedTurns,
    ToolUse,
    ToolVariety,
    expert_match,
    expert_match_as_released,
)
from agentrl_jax.algorithms.quality import illegal, malformed
from agentrl_jax.algorithms.rewards import (
    AttemptDecay,
    DistanceSuccess,
    EpisodePenalty,
    Gate,
    InsteadOfAll,
    InTurn,
    OnlyTurn,
    Outcome,
    Overlong,
    Progress,
    RepeatedAnswers,
    Reward,
    TurnPenalty,
    at_last_turn,
    dense,
)
from agentrl_jax.algorithms.schedules import Constant, Cosine
from agentrl_jax.errors import UserError
from agentrl_jax.messages import ToolCall, assistant
from agentrl_jax.rows import collate
from agentrl_jax.trajectories import Group, Trajectory


def episode(*rewards: float, success: bool | None = None, text: str = "a", tools: tuple = (), **facts: list) -> Trajectory:
    """One token a turn; `name=[...]` says a fact for each turn, None where it says nothing."""
    turns = []
    for i, reward in enumerate(rewards):
        info = {name: values[i] for name, values in facts.items() if values[i] is not None}
        action = dataclasses.replace(assistant(text), tool_calls=tuple(ToolCall("", name, "{}") for name in (tools[i] if tools else ())))
        turn = dataclasses.replace(make_turn([make_call([1], [2])], reward), action=action, info=info, rewards={"task": float(reward)})
        turns.append(turn)
    return make_trajectory(*turns).replace(success=success)


def paid(reward: Reward, trajectory: Trajectory, step: int = 0) -> list[float]:
    """Each turn's reward; its named parts sum to it."""
    (found,) = reward(Group("a", (trajectory,)), step).trajectories
    for turn in found.turns:
        assert sum(turn.rewards.values()) == pytest.approx(turn.reward, abs=1e-12)
    return [turn.reward for turn in found.turns]


@pytest.mark.parametrize(
    ("reward", "trajectory", "expected"),
    [
        (Outcome(), episode(3, 4, success=True), [0, 1]),
        (Outcome(1.0, -1.0), episode(3, 4, success=False), [0, -1]),
        (at_last_turn, episode(3, 4, 1), [0, 0, 8]),
        (TurnPenalty("legal", 0.1, illegal), episode(1, 0, 0, legal=[False, True, None]), [0.9, 0, 0]),
        (EpisodePenalty("format", 0.5, malformed), episode(0, 0, 1, formatted=[False, False, True]), [0, 0, 0.5]),
        (EpisodePenalty("format", 0.5, malformed), episode(0, 1), [0, 1]),
        (InsteadOfAll("format", -1.0, malformed), episode(1, 1, formatted=[False, True]), [0, -1]),
        (InsteadOfAll("format", -1.0, malformed), episode(1, 1), [1, 1]),
        # UFO: right on the third try; never; five identical wrong answers; two of three distinct; none given
        (AttemptDecay(), episode(0, 0, 9, success=True), [0, 0, 0.25]),
        (AttemptDecay(), episode(9, success=True), [1]),
        (AttemptDecay(), episode(0, 0, success=False), [0, 0]),
        (RepeatedAnswers(), episode(*[0] * 5, answer=["x"] * 5), [0, 0, 0, 0, -0.4]),
        (RepeatedAnswers(), episode(0, 0, 0.25, answer=["x", "y", "z"]), [0, 0, 0.25]),
        (RepeatedAnswers(), episode(0, 0, 0, 0, answer=["x", None, "y", "x"]), [0, 0, 0, -0.5 / 3]),
        (RepeatedAnswers(), episode(0, 0), [0, 0]),
        # SCoRe's second attempt
        (Progress(), episode(0, 1), [0, 11]),
        (Progress(), episode(1, 1), [1, 1]),
        (Progress(), episode(0, 0), [0, 0]),
        (Progress(), episode(1, 0), [1, -10]),
        (Progress(0.0), episode(1, 0), [1, 0]),
        (OnlyTurn(1), episode(1, 0.5), [0, 0.5]),
        # ActiveVLN
        (DistanceSuccess(), episode(7, 7, distance=[5, 0.0], stopped=[False, True]), [0, 15]),
        (DistanceSuccess(), episode(0, distance=[1.5], stopped=[True]), [7.5]),
        (DistanceSuccess(), episode(0, distance=[3.1], stopped=[True]), [0]),
        (DistanceSuccess(), episode(0, distance=[0.0]), [0]),
        # the Practitioner's Guide: a win sums to 1, a loss to what it found of all there is
        (dense, episode(1, 0, 1, 1, 1, success=True), [0.25, 0, 0.25, 0.25, 0.25]),
        (dense, episode(1, 0, 1, success=False, full_score=[4, 4, 4]), [0.25, 0, 0.25]),
        (dense, episode(0, 0, 1, success=True), [0, 0, 1]),
        # DAPO's overlong penalty at 1 + 1 + 1 tokens
        (Overlong(4, 2), episode(0, 0, 1), [0, 0, 0.5]),
        (Overlong(4, 1), episode(0, 0, 1), [0, 0, 1]),
        (Overlong(3, 2, 0.5), episode(0, 0, 1), [0, 0, 0.5]),
        # IGPO: what each turn adds to the probability of the answer; the outcome stays
        (InfoGain(), episode(0, 0, 0.7, gold_logp=[math.log(0.1), math.log(0.4), math.log(0.3)]), [0.3, -0.1, 0.7]),
        (InfoGain(log=True), episode(0, 1, gold_logp=[-3.0, -1.0]), [2.0, 1]),
        # SPEAR's tool reward, and ARPO's for both tools
        (ToolUse(Constant()), episode(0, 1, 0, tool_calls=[2, 0, 1]), [0.1, 1, 0.1]),
        (ToolUse(Constant(0.5), 0.4, 1.0), episode(0, 0, 0, 0, tool_calls=[1, 1, 1, 1]), [0.2, 0.2, 0.1, 0]),
        (ToolUse(Constant()), episode(0, 0, tools=(("search",), ())), [0.1, 0]),
        (ToolVariety(("search", "python")), episode(0, 1, success=True, tools=(("search",), ("python",))), [0, 1.1]),
        (ToolVariety(("search", "python")), episode(0, 1, success=False, tools=(("search",), ("python",))), [0, 1]),
        (ToolVariety(("search", "python")), episode(0, 1, success=True, tools=(("search",), ())), [0, 1]),
        # UI-S1
        (expert_match, episode(*[9] * 4, match=["exact", "type", "parsed", "none"]), [1, 0.5, 0.1, 0.1]),
        (expert_match, episode(9, 9, match=["exact", "none"], formatted=[False, False]), [0, 0]),
        (expert_match_as_released, episode(*[9] * 4, match=["exact", "type", "parsed", "none"]), [1, 0.55, 0.19, 0.1]),
        (expert_match_as_released, episode(9, match=["exact"], formatted=[False]), [0.9]),
        (expert_match_as_released, episode(9, 9, match=["exact", "parsed"], annotation=["harmful", "neutral"]), [0.1, 0.55]),
        # EPO
        (JudgedTurns(0.1), episode(0, 0, 8, success=True, critical=[True, False, True]), [1, 0, 0.8]),
        (JudgedTurns(0.1), episode(0, 0, 8, success=False, critical=[True, False, True]), [0, 0, 0.8]),
        # MinD
        (Compactness(0.5, ("Wait",)), episode(0, 1, text="Wait, so it is 4."), [0, 1]),
        (Compactness(0.5, ("Wait", "But")), episode(0, 1, text="It is 3. Wait, no."), [-0.5, 0.5]),
    ],
)  # fmt: skip
def test_rewards_are_those_of_the_table(reward: Reward, trajectory: Trajectory, expected: list[float]):
    assert paid(reward, trajectory) == pytest.approx(expected, abs=1e-12)


def test_a_note_that_holds_two_units_is_not_compact():
    (turn, other) = episode(0, 1, text="4").turns
    noted = dataclasses.replace(turn, notes=(assistant("Is it 3? Wait, no."),))
    assert paid(Compactness(0.5, ("Wait",)), episode(0, 1).replace(turns=(noted, other))) == [-0.5, 1]


def test_a_tool_is_paid_for_less_and_less():
    trajectory = episode(*[0] * 20, tool_calls=[1] * 20)
    schedule = ToolUse(Cosine(1.0, 0.0, 200))
    totals = [sum(paid(schedule, trajectory, step)) for step in (0, 100, 200, 300)]
    assert totals == pytest.approx([1, 0.5, 0, 0], abs=1e-12)


def parts(*turns: dict[str, float]) -> Trajectory:
    return make_trajectory(*(dataclasses.replace(make_turn([make_call([1], [2])], sum(p.values())), rewards=p) for p in turns))


@given(
    outcome=st.floats(-2, 2, width=16),
    tools=st.lists(st.floats(-1, 1, width=16), min_size=1, max_size=4),
    threshold=st.sampled_from([0.0, 0.5]),
)
@settings(max_examples=60, deadline=None)
def test_a_gate_counts_the_steps_only_above_its_threshold(outcome: float, tools: list, threshold: float):
    trajectory = parts(*({"outcome": outcome if i == 0 else 0.0, "tool": x} for i, x in enumerate(tools)))
    total = sum(paid(Gate(("outcome", "tool"), (threshold,)), trajectory))
    assert total == pytest.approx(outcome + (sum(tools) if outcome > threshold else 0.0), abs=1e-9)
    assert sum(paid(Gate(("outcome", "tool"), (-math.inf,)), trajectory)) == pytest.approx(outcome + sum(tools), abs=1e-9)


def test_a_closed_gate_closes_all_below_it():
    trajectory = parts({"a": 1.0, "b": 0.0, "c": 5.0}, {"b": 0.5, "c": 7.0})
    for thresholds, expected in (((0.0, 0.0), [6, 7.5]), ((0.0, 0.5), [1, 0.5]), ((1.0, -9.0), [1, 0]), ((-9.0, 0.4), [6, 7.5])):
        assert paid(Gate(("a", "b", "c"), thresholds), trajectory) == pytest.approx(expected, abs=1e-12)
    (turn, _) = Gate(("a", "b", "c"), (1.0, 0.0))(Group("x", (trajectory,)), 0).trajectories[0].turns
    assert dict(turn.rewards) == {"a": 1.0}


@pytest.mark.parametrize(
    ("reward", "trajectory", "complaint"),
    [
        (Outcome(), episode(1), "does not say whether it was solved"),
        (dense, episode(1, success=False), "'full_score'"),
        (dense, episode(1, success=False, full_score=[0]), "above 0"),
        (DistanceSuccess(), episode(1, stopped=[True]), "'distance'"),
        (InfoGain(), episode(1), "'gold_logp'"),
        (expert_match, episode(1), "'match'"),
        (expert_match, episode(1, match=["nearly"]), "must be one of"),
        (Gate(("task", "x"), ()), episode(1), "has 1 thresholds"),
        (Gate(("x",), ()), episode(1), "lacks"),
        (Gate(("task",), ()), parts({"task": 1.0}).replace(turns=(make_turn([make_call([1], [2])], 1.0),)), "do not sum"),
    ],
)  # fmt: skip
def test_what_cannot_be_known_is_said(reward: Reward, trajectory: Trajectory, complaint: str):
    with pytest.raises(UserError, match=complaint):
        reward(Group("a", (trajectory,)), 0)


def test_a_reward_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="must be finite"):
        Progress()(Group("a", (episode(0, float("nan")),)), 0)


PURE: list[Reward] = [at_last_turn, Progress(), OnlyTurn(0), Overlong(2, 1), TurnPenalty("x", 1.0, lambda turn: turn.reward > 0)]


@pytest.mark.parametrize("reward", [*PURE, InTurn(PURE)])
@given(shapes=batch_shapes)
@settings(max_examples=15, deadline=None)
def test_a_transform_is_pure_and_sees_one_trajectory_at_a_time(reward: Reward, shapes: list):
    groups = grown_groups(shapes)
    before = [turn.reward for group in groups for t in group.trajectories for turn in t.turns]
    changed = [reward(group, 3) for group in groups]
    assert [turn.reward for group in groups for t in group.trajectories for turn in t.turns] == before
    for group, new in zip(groups, changed):
        assert [t.calls for t in new.trajectories] == [t.calls for t in group.trajectories] and new.task == group.task
        for old, one in zip(group.trajectories, new.trajectories):
            (alone,) = reward(Group("", (old,)), 3).trajectories
            assert [turn.reward for turn in alone.turns] == [turn.reward for turn in one.turns]
    if reward is at_last_turn:
        assert collate(changed).indices.trajectory_return == pytest.approx(collate(groups).indices.trajectory_return, abs=1e-12)


@given(shapes=batch_shapes, seed=st.integers(0, 9))
@settings(max_examples=30, deadline=None)
def test_gains_of_information_telescope(shapes: list, seed: int):
    rng = np.random.default_rng(seed)
    for group in told(grown_groups(shapes), gold_logp=lambda turn, place: -float(rng.exponential())):
        for before, after in zip(group.trajectories, InfoGain()(group, 0).trajectories):
            gains = sum(turn.reward - old.reward for turn, old in zip(after.turns, before.turns))
            ends = [math.exp(t.info["gold_logp"]) for t in before.turns]
            assert gains == pytest.approx(ends[-1] - ends[0] if ends else 0.0, abs=1e-9)
