"""Two attempts at one answer (SCoRe), and a strategist with a frozen actor (EPO)."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.fixtures import make_credit_inputs
from support.strategy_runs import (
    AGENT,
    BRITTLE_ID,
    KEY,
    KeyedTextEngine,
    ListEngine,
    chain_task,
    collect_group,
    expert_actions,
    groups_equal,
    make_runtime,
)

from agentrl_jax.algorithms.advantages.token_masks import OnlySources
from agentrl_jax.algorithms.advantages.token_weights import turn_mean
from agentrl_jax.algorithms.experience.rewards import ProgressBonus, SingleTurnReward
from agentrl_jax.algorithms.methods.multi_turn import epo_strategic
from agentrl_jax.algorithms.strategies.self_correction import (
    MATH_CORRECTION_PROMPT,
    SelfCorrectionRollouts,
)
from agentrl_jax.algorithms.strategies.strategist import StrategistRollouts
from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import sequences_of
from agentrl_jax.rollout.agent import Limits
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.trajectories import Group, Trajectory
from agentrl_jax.workers.pool import Task

ARITHMETIC = "agentrl_jax.envs:agentrl/Arithmetic-v0"
ONE = Task(ARITHMETIC, 4, {"largest": 1, "operators": "+", "attempts": 1})
TWO = Task(ARITHMETIC, 4, {"largest": 1, "operators": "+", "always": True})
UNREVEALING = "Check it and answer again.\n"


GOOD = expert_actions(ONE)[0]
BAD = "9"


@pytest.mark.parametrize("task", [ONE, TWO])
@pytest.mark.parametrize(
    ("first", "second", "paid"), [(BAD, GOOD, 11), (GOOD, GOOD, 1), (BAD, BAD, 0), (GOOD, BAD, -10)]
)
def test_both_attempts_are_scored_and_the_first_reply_is_hidden(
    task: Task, first: str, second: str, paid: int
):
    engine = ListEngine(first, second)
    (episode,) = collect_group(SelfCorrectionRollouts(1), engine, task).trajectories
    assert [turn.reward for turn in episode.turns] == [float(first == GOOD), float(second == GOOD)]
    assert (
        episode.success == (second == GOOD)
        and episode.stop_reason == "terminated"
        and len(sequences_of(episode)) == 1
    )
    assert (
        engine.prompts[1] == f"{engine.prompts[0]}{first}\n{MATH_CORRECTION_PROMPT}"
    )  # the same prompt, whether right or wrong
    group = Group("t", (episode,))
    assert ProgressBonus(10.0)(group, 0).trajectories[0].turns[1].reward == paid  # alpha 10
    assert (
        SingleTurnReward(1)(group, 0).trajectories[0].turns[0].reward == 0
    )  # in the first stage the first attempt has no reward


def test_in_an_environment_of_two_attempts_they_are_independent_episodes():
    strategy = SelfCorrectionRollouts(8, UNREVEALING)
    assert groups_equal(
        collect_group(strategy, KeyedTextEngine(("0", "1", "2")), TWO),
        collect_group(IndependentEpisodes(8), KeyedTextEngine(("0", "1", "2")), TWO),
    )
    other = collect_group(strategy, KeyedTextEngine(("0", "1", "2")), ONE)
    for call, plain_call in zip(
        other.trajectories,
        collect_group(strategy, KeyedTextEngine(("0", "1", "2")), TWO).trajectories,
    ):
        assert [turn.reward for turn in call.turns] == [turn.reward for turn in plain_call.turns]
        assert [c.prompt.tolist() for c in call.calls] == [
            c.prompt.tolist() for c in plain_call.calls
        ]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_first_attempts_of_the_base_model_are_corrected_and_not_trained(share: float):
    strategy = SelfCorrectionRollouts(16, base_agent="base", base_fraction=share)
    with make_runtime(KeyedTextEngine(("1", "2"))) as runtime:
        runtime.add_agent(
            "base",
            dataclasses.replace(AGENT, name="base", engine="base", trainable=False),
            KeyedTextEngine(("7",)),
        )
        (group,) = runtime.collect(strategy, [TWO], KEY)
    first, second = ([t.turns[i] for t in group.trajectories] for i in (0, 1))
    lent = [turn.action.text == "7" for turn in first]
    assert [turn.calls[0].source == "patch" for turn in first] == lent and all(
        turn.calls[0].source == "sampled" for turn in second
    )
    assert all(turn.action.text in "12" for turn in second) and (
        sum(lent) == 16 * share if share != 0.5 else 3 < sum(lent) < 13
    )
    trained = OnlySources()(make_credit_inputs([group]))
    assert trained.tolist() == [
        mask for borrowed in lent for mask in (*[not borrowed] * 2, True, True)
    ]
    plain = collect_group(SelfCorrectionRollouts(16), KeyedTextEngine(("1", "2")), TWO)
    assert share or groups_equal(group, plain)
    for corrected, plain_trajectory, borrowed in zip(group.trajectories, plain.trajectories, lent):
        assert borrowed or corrected.messages == plain_trajectory.messages
    with pytest.raises(UserError, match="needs a base"):
        SelfCorrectionRollouts(base_fraction=0.1)


def test_limits_and_faults_in_the_second_attempt(tmp_path: Path):
    short = dataclasses.replace(AGENT, limits=Limits(turns=1))
    (episode,) = collect_group(
        SelfCorrectionRollouts(1), ListEngine(BAD, GOOD), ONE, short
    ).trajectories
    assert (len(episode.turns), episode.stop_reason, episode.success) == (1, "turns", None)
    group = collect_group(
        SelfCorrectionRollouts(3),
        KeyedTextEngine(),
        Task(BRITTLE_ID, 0, {"healthy_resets": 0, "path": str(tmp_path / "log")}),
        retries=1,
    )
    assert group.trajectories == () and group.num_dropped == 3


def guided(
    strategy: StrategistRollouts,
    strategist: object,
    actor: object,
    task: Task,
    limits: Limits | None = None,
) -> Group:
    with make_runtime(strategist) as runtime:
        runtime.add_agent(
            "actor",
            dataclasses.replace(AGENT, name="actor", engine="actor", limits=limits or Limits()),
            actor,  # type: ignore[arg-type]
        )
        (group,) = runtime.collect(strategy, [task], KEY)
    return group


def nearer(trajectory: Trajectory) -> Sequence[bool]:
    """For each turn, whether it brought the end nearer."""
    distances = [99, *(turn.info["distance"] for turn in trajectory.turns)]
    return [after < before for before, after in itertools.pairwise(distances)]


def test_the_actor_observes_the_strategy_and_only_the_strategists_calls_are_recorded():
    task = chain_task(2, length=3)
    right = expert_actions(task)
    bad = "b" if right[1] == "a" else "a"
    strategist, actor = (
        ListEngine("s0", "s1", "s2", "s3"),
        ListEngine(right[0], bad, right[1], right[2]),
    )
    (episode,) = guided(
        StrategistRollouts(1, critical_turn_judge=nearer), strategist, actor, task
    ).trajectories
    opening = strategist.prompts[0]
    replies = [turn.observation[-1].text for turn in episode.turns]
    assert strategist.prompts[2] == f"{opening}s0\n{right[0]}\n{replies[0]}s1\n{bad}\n{replies[1]}"
    assert actor.prompts[2] == f"{opening}s0\n{right[0]}\n{replies[0]}s1\n{bad}\n{replies[1]}s2\n"
    assert [turn.action.text for turn in episode.turns] == ["s0", "s1", "s2", "s3"] and len(
        episode.calls
    ) == 4
    assert (
        episode.success
        and episode.agent == "policy"
        and episode.total_reward == 1.0
        and len(sequences_of(episode)) == 1
    )
    assert [call.key for call in episode.calls] == [(*KEY, 0, 0, 0, turn) for turn in range(4)]
    assert [turn.info["critical"] for turn in episode.turns] == [True, False, True, True]


def test_epos_weights_on_such_an_episode():
    """Critical turns earn 1, the last one the outcome; gamma .99; the largest return is 1, so all
    scales give the same weights.
    """
    task = chain_task(2, length=3)
    right = expert_actions(task)
    bad = "b" if right[1] == "a" else "a"
    group = guided(
        StrategistRollouts(1, critical_turn_judge=nearer),
        ListEngine("s0", "s1", "s2", "s3"),
        ListEngine(right[0], bad, *right[1:]),
        task,
    )
    method = epo_strategic(agent="policy", scale=1.0)
    assert method.rewards is not None
    credit_inputs = make_credit_inputs([method.rewards(group, 0)])
    returns = [1 + 0.99**2 + 0.99**3, 0.99 + 0.99**2, 1.99, 1.0]
    weights = [[x / returns[0]] * 3 for x in returns]  # three tokens each: "s0\n"
    assert method.advantage(credit_inputs) == pytest.approx([x for turn in weights for x in turn])
    assert turn_mean(credit_inputs) == pytest.approx([1 / 12] * 12)
    doubled = dataclasses.replace(credit_inputs, turn_reward=2 * credit_inputs.turn_reward)
    assert method.advantage(doubled) == pytest.approx(method.advantage(credit_inputs))
    assert method.mask is not None and method.mask(credit_inputs).all()


def test_without_an_actor_strategies_are_actions():
    assert groups_equal(
        guided(StrategistRollouts(8, actor=""), KeyedTextEngine(), KeyedTextEngine(), chain_task()),
        collect_group(IndependentEpisodes(8), KeyedTextEngine()),
    )


def test_strategies_may_be_sent_to_the_environment():
    task = chain_task(2, length=2)
    first, second = expert_actions(task)
    strategist = ListEngine(first, "s1")
    (episode,) = guided(
        StrategistRollouts(1, send_strategy_to_env=True), strategist, ListEngine("?", second), task
    ).trajectories
    assert [len(turn.observation) for turn in episode.turns] == [
        3,
        3,
    ] and episode.success  # its reply, the actor's action, its reply
    (episode,) = guided(
        StrategistRollouts(1, send_strategy_to_env=True),
        ListEngine(first, second),
        ListEngine("?"),
        task,
    ).trajectories
    assert episode.success and [len(turn.observation) for turn in episode.turns] == [
        3,
        1,
    ]  # the strategy itself ended the episode


def test_an_actor_without_room_a_missing_actor_and_faults(tmp_path: Path):
    (episode,) = guided(
        StrategistRollouts(1),
        KeyedTextEngine(),
        KeyedTextEngine(),
        chain_task(),
        Limits(context=20),
    ).trajectories
    assert episode.stop_reason == "context" and len(episode.turns) == 2
    with pytest.raises(UserError, match="no agent 'actor'"):
        collect_group(StrategistRollouts(1), KeyedTextEngine())
    brittle = Task(BRITTLE_ID, 0, {"healthy_resets": 0, "path": str(tmp_path / "log")})
    group = guided(StrategistRollouts(3), KeyedTextEngine(), KeyedTextEngine(), brittle)
    assert group.trajectories == () and group.num_dropped == 3


def test_two_agent_rollouts_are_determined_by_the_key():
    prompt = guided(StrategistRollouts(6), KeyedTextEngine(), KeyedTextEngine(seed=1), chain_task())
    assert groups_equal(
        prompt,
        guided(
            StrategistRollouts(6),
            KeyedTextEngine(max_delay=0.004, num_slots=2),
            KeyedTextEngine(max_delay=0.004, seed=1),
            chain_task(),
        ),
    )
    calls = [call for trajectory in prompt.trajectories for call in trajectory.calls]
    assert {call.key[4] for call in calls} == {0}
