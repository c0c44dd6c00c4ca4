"""Two attempts at one answer (SCoRe), and a strategist beside a frozen agent (EPO)."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from hand_made import evidence_of
from stages import AGENT, BRITTLE, KEY, Whimsical, chain, collected, runtime_on, same, shown
from test_semi_online import Saying

from agentrl_jax.algorithms.aggregation import turn_mean
from agentrl_jax.algorithms.masks import Sources
from agentrl_jax.algorithms.methods.dialogue import epo_strategic
from agentrl_jax.algorithms.rewards import OnlyTurn, Progress
from agentrl_jax.algorithms.strategies.guided import Guided
from agentrl_jax.algorithms.strategies.two_attempts import MATHEMATICS, TwoAttempts
from agentrl_jax.errors import UserError
from agentrl_jax.rows import rows_of
from agentrl_jax.speaking import Limits
from agentrl_jax.strategies import Independent
from agentrl_jax.trajectories import Group, Trajectory
from agentrl_jax.workers import Task

ARITHMETIC = "agentrl_jax.envs:agentrl/Arithmetic-v0"
ONE = Task(ARITHMETIC, 4, {"largest": 1, "operators": "+", "attempts": 1})
TWO = Task(ARITHMETIC, 4, {"largest": 1, "operators": "+", "always": True})
UNREVEALING = "Check it and answer again.\n"


GOOD = shown(ONE)[0]
BAD = "9"


@pytest.mark.parametrize("task", [ONE, TWO])
@pytest.mark.parametrize(("first", "second", "paid"), [(BAD, GOOD, 11), (GOOD, GOOD, 1), (BAD, BAD, 0), (GOOD, BAD, -10)])
def test_both_attempts_are_scored_and_nothing_is_revealed(task: Task, first: str, second: str, paid: int):
    engine = Saying(first, second)
    (episode,) = collected(TwoAttempts(1), engine, task).trajectories
    assert [turn.reward for turn in episode.turns] == [float(first == GOOD), float(second == GOOD)]
    assert episode.success == (second == GOOD) and episode.stop_reason == "terminated" and len(rows_of(episode)) == 1
    assert engine.prompts[1] == f"{engine.prompts[0]}{first}\n{MATHEMATICS}"  # the same words, right or wrong
    group = Group("t", (episode,))
    assert Progress(10.0)(group, 0).trajectories[0].turns[1].reward == paid  # alpha 10
    assert OnlyTurn(1)(group, 0).trajectories[0].turns[0].reward == 0  # the first stage pays nothing to the first attempt


def test_in_a_world_of_two_attempts_with_these_words_they_are_independent_episodes():
    strategy = TwoAttempts(8, UNREVEALING)
    assert same(collected(strategy, Whimsical(("0", "1", "2")), TWO), collected(Independent(8), Whimsical(("0", "1", "2")), TWO))
    other = collected(strategy, Whimsical(("0", "1", "2")), ONE)
    for one, two in zip(other.trajectories, collected(strategy, Whimsical(("0", "1", "2")), TWO).trajectories):
        assert [turn.reward for turn in one.turns] == [turn.reward for turn in two.turns]
        assert [c.prompt.tolist() for c in one.calls] == [c.prompt.tolist() for c in two.calls]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_first_attempts_of_the_base_model_are_corrected_and_not_trained(share: float):
    strategy = TwoAttempts(16, base="base", share=share)
    with runtime_on(Whimsical(("1", "2"))) as runtime:
        runtime.add("base", dataclasses.replace(AGENT, name="base", engine="base", trainable=False), Whimsical(("7",)))
        (group,) = runtime.collect(strategy, [TWO], KEY)
    first, second = ([t.turns[i] for t in group.trajectories] for i in (0, 1))
    lent = [turn.action.text == "7" for turn in first]
    assert [turn.calls[0].source == "patch" for turn in first] == lent and all(turn.calls[0].source == "sampled" for turn in second)
    assert all(turn.action.text in "12" for turn in second) and (sum(lent) == 16 * share if share != 0.5 else 3 < sum(lent) < 13)
    trained = Sources()(evidence_of([group]))
    assert trained.tolist() == [kept for borrowed in lent for kept in (*[not borrowed] * 2, True, True)]
    plain = collected(TwoAttempts(16), Whimsical(("1", "2")), TWO)
    assert share or same(group, plain)
    for mine, theirs, borrowed in zip(group.trajectories, plain.trajectories, lent):
        assert borrowed or mine.messages == theirs.messages
    with pytest.raises(UserError, match="needs a base"):
        TwoAttempts(share=0.1)


def test_limits_and_faults_in_the_second_attempt(tmp_path: Path):
    short = dataclasses.replace(AGENT, limits=Limits(turns=1))
    (episode,) = collected(TwoAttempts(1), Saying(BAD, GOOD), ONE, short).trajectories
    assert (len(episode.turns), episode.stop_reason, episode.success) == (1, "turns", None)
    group = collected(TwoAttempts(3), Whimsical(), Task(BRITTLE, 0, {"good": 0, "path": str(tmp_path / "log")}), retries=1)
    assert group.trajectories == () and group.dropped == 3


def guided(strategy: Guided, strategist: object, actor: object, task: Task, limits: Limits | None = None) -> Group:
    with runtime_on(strategist) as runtime:
        runtime.add("actor", dataclasses.replace(AGENT, name="actor", engine="actor", limits=limits or Limits()), actor)  # type: ignore[arg-type]
        (group,) = runtime.collect(strategy, [task], KEY)
    return group


def nearer(trajectory: Trajectory) -> Sequence[bool]:
    """Turns after which the end was nearer than before."""
    distances = [99, *(turn.info["distance"] for turn in trajectory.turns)]
    return [after < before for before, after in itertools.pairwise(distances)]


def test_the_actor_reads_the_strategy_and_only_the_strategists_calls_are_recorded():
    task = chain(2, length=3)
    right = shown(task)
    bad = "b" if right[1] == "a" else "a"
    strategist, actor = Saying("s0", "s1", "s2", "s3"), Saying(right[0], bad, right[1], right[2])
    (episode,) = guided(Guided(1, judge=nearer), strategist, actor, task).trajectories
    opening = strategist.prompts[0]
    said = [turn.observation[-1].text for turn in episode.turns]
    assert strategist.prompts[2] == f"{opening}s0\n{right[0]}\n{said[0]}s1\n{bad}\n{said[1]}"
    assert actor.prompts[2] == f"{opening}s0\n{right[0]}\n{said[0]}s1\n{bad}\n{said[1]}s2\n"
    assert [turn.action.text for turn in episode.turns] == ["s0", "s1", "s2", "s3"] and len(episode.calls) == 4
    assert episode.success and episode.agent == "policy" and episode.total_reward == 1.0 and len(rows_of(episode)) == 1
    assert [call.key for call in episode.calls] == [(*KEY, 0, 0, 0, turn) for turn in range(4)]
    assert [turn.info["critical"] for turn in episode.turns] == [True, False, True, True]


def test_epos_weights_on_such_an_episode():
    """Critical turns earn 1, the last one the outcome; gamma .99; the largest return is 1, so all scales give the same weights."""
    task = chain(2, length=3)
    right = shown(task)
    bad = "b" if right[1] == "a" else "a"
    group = guided(Guided(1, judge=nearer), Saying("s0", "s1", "s2", "s3"), Saying(right[0], bad, *right[1:]), task)
    method = epo_strategic(agent="policy", scale=1.0)
    assert method.rewards is not None
    evidence = evidence_of([method.rewards(group, 0)])
    returns = [1 + 0.99**2 + 0.99**3, 0.99 + 0.99**2, 1.99, 1.0]
    weights = [[x / returns[0]] * 3 for x in returns]  # three tokens each: "s0\n"
    assert method.advantage(evidence) == pytest.approx([x for turn in weights for x in turn])
    assert turn_mean(evidence) == pytest.approx([1 / 12] * 12)
    doubled = dataclasses.replace(evidence, turn_reward=2 * evidence.turn_reward)
    assert method.advantage(doubled) == pytest.approx(method.advantage(evidence))
    assert method.mask is not None and method.mask(evidence).all()


def test_without_an_actor_strategies_are_actions():
    assert same(guided(Guided(8, actor=""), Whimsical(), Whimsical(), chain()), collected(Independent(8), Whimsical()))


def test_a_world_may_hear_strategies_too():
    task = chain(2, length=2)
    first, second = shown(task)
    strategist = Saying(first, "s1")
    (episode,) = guided(Guided(1, heard=True), strategist, Saying("?", second), task).trajectories
    assert [len(turn.observation) for turn in episode.turns] == [3, 3] and episode.success  # its answer, what the actor did, its answer
    (episode,) = guided(Guided(1, heard=True), Saying(first, second), Saying("?"), task).trajectories
    assert episode.success and [len(turn.observation) for turn in episode.turns] == [3, 1]  # the strategy itself ended the world


def test_an_actor_without_room_a_missing_actor_and_faults(tmp_path: Path):
    (episode,) = guided(Guided(1), Whimsical(), Whimsical(), chain(), Limits(context=20)).trajectories
    assert episode.stop_reason == "context" and len(episode.turns) == 2
    with pytest.raises(UserError, match="no agent 'actor'"):
        collected(Guided(1), Whimsical())
    brittle = Task(BRITTLE, 0, {"good": 0, "path": str(tmp_path / "log")})
    group = guided(Guided(3), Whimsical(), Whimsical(), brittle)
    assert group.trajectories == () and group.dropped == 3


def test_two_agents_follow_from_the_key():
    prompt = guided(Guided(6), Whimsical(), Whimsical(seed=1), chain())
    assert same(prompt, guided(Guided(6), Whimsical(moment=0.004, places=2), Whimsical(moment=0.004, seed=1), chain()))
    calls = [call for trajectory in prompt.trajectories for call in trajectory.calls]
    assert {call.key[4] for call in calls} == {0}
