"""Reward transforms against the numbers of their papers."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fixtures import (
    batch_shapes,
    make_call,
    make_trajectory,
    make_turn,
    random_groups,
    with_info,
)

from agentrl_jax.algorithms.advantages.info_fields import add_reward_part
from agentrl_jax.algorithms.advantages.trajectory_checks import is_illegal, is_malformed
from agentrl_jax.algorithms.experience.penalties import (
    EpisodePenalty,
    OverlongPenalty,
    RepeatedAnswerPenalty,
    ReplaceRewards,
    TurnPenalty,
)
from agentrl_jax.algorithms.experience.rewards import (
    AttemptDecay,
    DistanceReward,
    OutcomeReward,
    ProgressBonus,
    RewardChain,
    RewardGate,
    RewardTransform,
    SingleTurnReward,
    dense_rewards,
    return_at_last_turn,
)
from agentrl_jax.algorithms.experience.schedules import Constant, Cosine
from agentrl_jax.algorithms.experience.turn_rewards import (
    CompactnessPenalty,
    CriticalTurnReward,
    InformationGain,
    ToolNecessity,
    ToolUseReward,
    ToolVarietyReward,
    expert_match_reward,
    expert_match_reward_released,
)
from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import collate
from agentrl_jax.messages import ToolCall, assistant
from agentrl_jax.trajectories import Group, Trajectory


def episode(
    *rewards: float,
    success: bool | None = None,
    text: str = "a",
    message_calls: tuple = (),
    **info_fields: list,
) -> Trajectory:
    """A trajectory with a turn of one token for each reward; `name=[...]` gives an info field for
    each turn, None where it is absent.
    """
    turns = []
    for i, reward in enumerate(rewards):
        info = {name: values[i] for name, values in info_fields.items() if values[i] is not None}
        action = dataclasses.replace(
            assistant(text),
            tool_calls=tuple(
                ToolCall("", name, "{}") for name in (message_calls[i] if message_calls else ())
            ),
        )
        turn = dataclasses.replace(
            make_turn([make_call([1], [2])], reward),
            action=action,
            info=info,
            rewards={"task": float(reward)},
        )
        turns.append(turn)
    return make_trajectory(*turns).replace(success=success)


def turn_rewards(reward: RewardTransform, trajectory: Trajectory, step: int = 0) -> list[float]:
    """Each turn's reward, checked to be the sum of its named parts."""
    (rewarded,) = reward(Group("a", (trajectory,)), step).trajectories
    for turn in rewarded.turns:
        assert sum(turn.rewards.values()) == pytest.approx(turn.reward, abs=1e-12)
    return [turn.reward for turn in rewarded.turns]


@pytest.mark.parametrize(
    ("reward", "trajectory", "expected"),
    [
        (OutcomeReward(), episode(3, 4, success=True), [0, 1]),
        (OutcomeReward(1.0, -1.0), episode(3, 4, success=False), [0, -1]),
        (return_at_last_turn, episode(3, 4, 1), [0, 0, 8]),
        (
            TurnPenalty("legal", 0.1, is_illegal),
            episode(1, 0, 0, legal=[False, True, None]),
            [0.9, 0, 0],
        ),
        (
            EpisodePenalty("format", 0.5, is_malformed),
            episode(0, 0, 1, formatted=[False, False, True]),
            [0, 0, 0.5],
        ),
        (EpisodePenalty("format", 0.5, is_malformed), episode(0, 1), [0, 1]),
        (
            ReplaceRewards("format", -1.0, is_malformed),
            episode(1, 1, formatted=[False, True]),
            [0, -1],
        ),
        (ReplaceRewards("format", -1.0, is_malformed), episode(1, 1), [1, 1]),
        # UFO: solved at the third attempt; never; five identical wrong answers; two of three
        # distinct; no answers
        (AttemptDecay(), episode(0, 0, 9, success=True), [0, 0, 0.25]),
        (AttemptDecay(), episode(9, success=True), [1]),
        (AttemptDecay(), episode(0, 0, success=False), [0, 0]),
        (RepeatedAnswerPenalty(), episode(*[0] * 5, answer=["x"] * 5), [0, 0, 0, 0, -0.4]),
        (RepeatedAnswerPenalty(), episode(0, 0, 0.25, answer=["x", "y", "z"]), [0, 0, 0.25]),
        (
            RepeatedAnswerPenalty(),
            episode(0, 0, 0, 0, answer=["x", None, "y", "x"]),
            [0, 0, 0, -0.5 / 3],
        ),
        (RepeatedAnswerPenalty(), episode(0, 0), [0, 0]),
        # SCoRe's second attempt
        (ProgressBonus(), episode(0, 1), [0, 11]),
        (ProgressBonus(), episode(1, 1), [1, 1]),
        (ProgressBonus(), episode(0, 0), [0, 0]),
        (ProgressBonus(), episode(1, 0), [1, -10]),
        (ProgressBonus(0.0), episode(1, 0), [1, 0]),
        (SingleTurnReward(1), episode(1, 0.5), [0, 0.5]),
        # ActiveVLN
        (DistanceReward(), episode(7, 7, distance=[5, 0.0], stopped=[False, True]), [0, 15]),
        (DistanceReward(), episode(0, distance=[1.5], stopped=[True]), [7.5]),
        (DistanceReward(), episode(0, distance=[3.1], stopped=[True]), [0]),
        (DistanceReward(), episode(0, distance=[0.0]), [0]),
        # the Practitioner's Guide: a success sums to 1, a failure to the fraction of the score that
        # was reached
        (dense_rewards, episode(1, 0, 1, 1, 1, success=True), [0.25, 0, 0.25, 0.25, 0.25]),
        (dense_rewards, episode(1, 0, 1, success=False, full_score=[4, 4, 4]), [0.25, 0, 0.25]),
        (dense_rewards, episode(0, 0, 1, success=True), [0, 0, 1]),
        (dense_rewards, episode(0.125, 0, 0.375, success=True), [0.25, 0, 0.75]),
        (dense_rewards, episode(0, 0, success=True), [0, 0]),
        # DAPO's overlong penalty at 1 + 1 + 1 tokens
        (OverlongPenalty(4, 2), episode(0, 0, 1), [0, 0, 0.5]),
        (OverlongPenalty(4, 1), episode(0, 0, 1), [0, 0, 1]),
        (OverlongPenalty(3, 2, 0.5), episode(0, 0, 1), [0, 0, 0.5]),
        # IGPO: what each turn adds to the probability of the answer; the outcome reward is
        # unchanged
        (
            InformationGain(),
            episode(0, 0, 0.7, gold_logp=[math.log(0.1), math.log(0.4), math.log(0.3)]),
            [0.3, -0.1, 0.7],
        ),
        (InformationGain(use_logp=True), episode(0, 1, gold_logp=[-3.0, -1.0]), [2.0, 1]),
        # SPEAR's tool reward, and ARPO's for both tools
        (
            ToolUseReward(Constant()),
            episode(0, 1, 0, called_tools=[["a", "b"], [], ["a"]]),
            [0.1, 1, 0.1],
        ),
        (
            ToolUseReward(Constant(0.5), 0.4, 1.0),
            episode(0, 0, 0, 0, called_tools=[["a"]] * 4),
            [0.2, 0.2, 0.1, 0],
        ),
        (ToolUseReward(Constant()), episode(0, 0, message_calls=(("search",), ())), [0.1, 0]),
        (
            ToolVarietyReward(("search", "python")),
            episode(0, 1, success=True, message_calls=(("search",), ("python",))),
            [0, 1.1],
        ),
        (
            ToolVarietyReward(("search", "python")),
            episode(0, 1, success=False, message_calls=(("search",), ("python",))),
            [0, 1],
        ),
        (
            ToolVarietyReward(("search", "python")),
            episode(0, 1, success=True, message_calls=(("search",), ())),
            [0, 1],
        ),
        (
            ToolVarietyReward(("search", "python")),
            episode(0, 0, 1, success=True, called_tools=[["python"], ["search"], []]),
            [0, 0, 1.1],
        ),
        (
            ToolVarietyReward(("search",)),
            episode(0, 1, called_tools=[["search"], []]).replace(stop_reason="tokens"),
            [0, 1],
        ),
        # UI-S1
        (
            expert_match_reward,
            episode(*[9] * 4, match=["exact", "type", "parsed", "none"]),
            [1, 0.5, 0.1, 0.1],
        ),
        (
            expert_match_reward,
            episode(9, 9, match=["exact", "none"], formatted=[False, False]),
            [0, 0],
        ),
        (
            expert_match_reward_released,
            episode(*[9] * 4, match=["exact", "type", "parsed", "none"]),
            [1, 0.55, 0.19, 0.1],
        ),
        (expert_match_reward_released, episode(9, match=["exact"], formatted=[False]), [0.9]),
        (
            expert_match_reward_released,
            episode(9, 9, match=["exact", "parsed"], annotation=["harmful", "neutral"]),
            [0.1, 0.55],
        ),
        # EPO
        (
            CriticalTurnReward(0.1),
            episode(0, 0, 8, success=True, critical=[True, False, True]),
            [1, 0, 0.8],
        ),
        (
            CriticalTurnReward(0.1),
            episode(0, 0, 8, success=False, critical=[True, False, True]),
            [0, 0, 0.8],
        ),
        # MinD
        (CompactnessPenalty(0.5, ("Wait",)), episode(0, 1, text="Wait, so it is 4."), [0, 1]),
        (
            CompactnessPenalty(0.5, ("Wait", "But")),
            episode(0, 1, text="It is 3. Wait, no."),
            [-0.5, 0.5],
        ),
    ],
)
def test_rewards_are_those_of_the_table(
    reward: RewardTransform, trajectory: Trajectory, expected: list[float]
):
    assert turn_rewards(reward, trajectory) == pytest.approx(expected, abs=1e-12)


def test_a_note_with_two_units_is_not_compact():
    (turn, other) = episode(0, 1, text="4").turns
    noted = dataclasses.replace(turn, notes=(assistant("Is it 3? Wait, no."),))
    assert turn_rewards(
        CompactnessPenalty(0.5, ("Wait",)), episode(0, 1).replace(turns=(noted, other))
    ) == [
        -0.5,
        1,
    ]


def test_the_reward_of_a_tool_decreases_with_its_calls():
    trajectory = episode(*[0] * 20, called_tools=[["a"]] * 20)
    schedule = ToolUseReward(Cosine(1.0, 0.0, 200))
    totals = [sum(turn_rewards(schedule, trajectory, step)) for step in (0, 100, 200, 300)]
    assert totals == pytest.approx([1, 0.5, 0, 0], abs=1e-12)


def parts(*turns: dict[str, float]) -> Trajectory:
    return make_trajectory(
        *(
            dataclasses.replace(make_turn([make_call([1], [2])], sum(p.values())), rewards=p)
            for p in turns
        )
    )


@given(
    outcome=st.floats(-2, 2, width=16),
    tools=st.lists(st.floats(-1, 1, width=16), min_size=1, max_size=4),
    threshold=st.sampled_from([0.0, 0.5]),
)
@settings(max_examples=60, deadline=None)
def test_a_gate_adds_the_step_rewards_only_above_its_threshold(
    outcome: float, tools: list, threshold: float
):
    trajectory = parts(
        *({"outcome": outcome if i == 0 else 0.0, "tool": x} for i, x in enumerate(tools))
    )
    total = sum(turn_rewards(RewardGate(("outcome", "tool"), (threshold,)), trajectory))
    assert total == pytest.approx(outcome + (sum(tools) if outcome > threshold else 0.0), abs=1e-9)
    assert sum(
        turn_rewards(RewardGate(("outcome", "tool"), (-math.inf,)), trajectory)
    ) == pytest.approx(outcome + sum(tools), abs=1e-9)


def test_a_closed_gate_closes_all_gates_below_it():
    trajectory = parts({"a": 1.0, "b": 0.0, "c": 5.0}, {"b": 0.5, "c": 7.0})
    for thresholds, expected in (
        ((0.0, 0.0), [6, 7.5]),
        ((0.0, 0.5), [1, 0.5]),
        ((1.0, -9.0), [1, 0]),
        ((-9.0, 0.4), [6, 7.5]),
    ):
        assert turn_rewards(RewardGate(("a", "b", "c"), thresholds), trajectory) == pytest.approx(
            expected, abs=1e-12
        )
    (turn, _) = (
        RewardGate(("a", "b", "c"), (1.0, 0.0))(Group("x", (trajectory,)), 0).trajectories[0].turns
    )
    assert dict(turn.rewards) == {"a": 1.0}


@pytest.mark.parametrize(
    ("reward", "trajectory", "complaint"),
    [
        (OutcomeReward(), episode(1), "does not say whether it was solved"),
        (dense_rewards, episode(1, success=False), "'full_score'"),
        (dense_rewards, episode(1, success=False, full_score=[0]), "above 0"),
        (DistanceReward(), episode(1, stopped=[True]), "'distance'"),
        (InformationGain(), episode(1), "'gold_logp'"),
        (ToolUseReward(Constant()), episode(1, called_tools=[2]), "list of names"),
        (expert_match_reward, episode(1), "'match'"),
        (expert_match_reward, episode(1, match=["nearly"]), "must be one of"),
        (RewardGate(("task", "x"), ()), episode(1), "has 1 thresholds"),
        (RewardGate(("x",), ()), episode(1), "lacks"),
        (
            RewardGate(("task",), ()),
            parts({"task": 1.0}).replace(turns=(make_turn([make_call([1], [2])], 1.0),)),
            "do not sum",
        ),
    ],
)
def test_missing_or_contradictory_info_is_an_error(
    reward: RewardTransform, trajectory: Trajectory, complaint: str
):
    with pytest.raises(UserError, match=complaint):
        reward(Group("a", (trajectory,)), 0)


def test_a_reward_that_is_not_finite_is_refused():
    with pytest.raises(UserError, match="rewards are finite numbers"):
        ProgressBonus()(Group("a", (episode(0, float("nan")),)), 0)


PURE: list[RewardTransform] = [
    return_at_last_turn,
    ProgressBonus(),
    SingleTurnReward(0),
    OverlongPenalty(2, 1),
    TurnPenalty("x", 1.0, lambda turn: turn.reward > 0),
]


@pytest.mark.parametrize("reward", [*PURE, RewardChain(PURE)])
@given(shapes=batch_shapes)
@settings(max_examples=15, deadline=None)
def test_a_transform_is_pure_and_depends_on_one_trajectory_at_a_time(
    reward: RewardTransform, shapes: list
):
    groups = random_groups(shapes)
    before = [turn.reward for group in groups for t in group.trajectories for turn in t.turns]
    changed = [reward(group, 3) for group in groups]
    assert [
        turn.reward for group in groups for t in group.trajectories for turn in t.turns
    ] == before
    for group, new in zip(groups, changed):
        assert [t.calls for t in new.trajectories] == [
            t.calls for t in group.trajectories
        ] and new.task == group.task
        for old, changed_trajectory in zip(group.trajectories, new.trajectories):
            (alone,) = reward(Group("", (old,)), 3).trajectories
            assert [turn.reward for turn in alone.turns] == [
                turn.reward for turn in changed_trajectory.turns
            ]
    if reward is return_at_last_turn:
        assert collate(changed).token_index.trajectory_return == pytest.approx(
            collate(groups).token_index.trajectory_return, abs=1e-12
        )


@given(shapes=batch_shapes, seed=st.integers(0, 9))
@settings(max_examples=30, deadline=None)
def test_information_gains_telescope(shapes: list, seed: int):
    rng = np.random.default_rng(seed)
    for group in with_info(
        random_groups(shapes), gold_logp=lambda turn, index: -float(rng.exponential())
    ):
        for before, after in zip(group.trajectories, InformationGain()(group, 0).trajectories):
            gains = sum(turn.reward - old.reward for turn, old in zip(after.turns, before.turns))
            ends = [math.exp(t.info["gold_logp"]) for t in before.turns]
            assert gains == pytest.approx(ends[-1] - ends[0] if ends else 0.0, abs=1e-9)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_reward_part_that_is_not_finite_is_named(value: float):
    with pytest.raises(UserError, match=f"part 'style' is {value}, but rewards are finite"):
        add_reward_part(episode(0).turns[0], "style", value)


def test_an_overlong_penalty_without_a_buffer_is_refused():
    with pytest.raises(UserError, match="at least 1 token"):
        OverlongPenalty(100, 0)


def test_the_necessity_of_tools_compares_a_group():
    """With tools 2 of 2 succeed, without 1 of 2: .5 times the weight for each user of tools."""

    def episode_with(tools: list[str], success: bool) -> Trajectory:
        turn = dataclasses.replace(make_turn([make_call([1], [2])]), info={"called_tools": tools})
        return make_trajectory(turn).replace(success=success)

    group = Group("t", (episode_with(["crop"], True), episode_with(["crop"], True), episode_with([], True),
                        episode_with([], False)))  # fmt: skip
    rewarded = ToolNecessity(0.4)(group, 0)
    assert [t.total_reward for t in rewarded.trajectories] == [0.2, 0.2, 0, 0]
    worse = Group("t", (episode_with(["crop"], False), episode_with([], True)))
    assert [t.total_reward for t in ToolNecessity(0.4)(worse, 0).trajectories] == [0, 0]
    alone = Group("t", (episode_with(["crop"], True),))
    assert ToolNecessity(0.4)(alone, 0) == alone
