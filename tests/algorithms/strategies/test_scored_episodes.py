"""Rewards, filters and choices by models: parts by name, counted failures, best of n, majority."""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from support.strategy_runs import (
    AGENT,
    KEY,
    KeyedTextEngine,
    ListEngine,
    chain_task,
    collect_group,
    expert_actions,
    groups_equal,
    make_runtime,
)

from agentrl_jax.algorithms.experience.rewards import WeightedParts
from agentrl_jax.algorithms.strategies.best_of_n import BestOfN, MajorityVote
from agentrl_jax.algorithms.strategies.episode_scorers import (
    AnswerScore,
    EpisodeQuestion,
    Judge,
    RewardModelScore,
    YesProbability,
    transcript,
)
from agentrl_jax.algorithms.strategies.scored_episodes import AcceptedEpisodes, ScoredEpisodes
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import assistant, user
from agentrl_jax.rollout.named_models import Model
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.trajectories import Group, RandomKey, Trajectory, Turn
from agentrl_jax.workers.pool import Task

JUDGE = dataclasses.replace(
    AGENT,
    name="judge",
    engine="judge",
    trainable=False,
    sampling=dataclasses.replace(AGENT.sampling, budget=500),
)
SUM = Task(
    "agentrl_jax.envs:agentrl/Arithmetic-v0", 4, {"largest": 1, "operators": "+", "attempts": 1}
)
RIGHT = expert_actions(SUM)[0]
RUBRIC = EpisodeQuestion("{transcript}How good?\n")


@dataclasses.dataclass
class LengthScore:
    """The number of letters of the last action; `failing` samples fail, each `times` times."""

    failing: Sequence[int] = ()
    times: int = 99

    def __post_init__(self) -> None:
        self.calls: list[tuple[int, RandomKey]] = []

    async def __call__(
        self, trajectory: Trajectory, runtime: Runtime, key: RandomKey
    ) -> Mapping[int, float]:
        self.calls.append((trajectory.sample, key))
        earlier = sum(sample == trajectory.sample for sample, _ in self.calls)
        if trajectory.sample in self.failing and earlier <= self.times:
            raise EnvironmentFailure("no answer")
        return {len(trajectory.turns) - 1: float(len(trajectory.turns[-1].action.text))}


def scored(strategy: Any, engine: Any, task: Task, judge: Any = None) -> tuple[Group, Runtime]:
    """The group of a task, and the runtime after it."""
    with make_runtime(engine) as runtime:
        if judge is not None:
            runtime.add_model("judge", Model(JUDGE, judge))
        (group,) = runtime.collect(strategy, [task], KEY)
    return group, runtime


def test_scores_are_parts_of_the_reward_beside_the_environments():
    strategy = ScoredEpisodes(IndependentEpisodes(6), {"length": LengthScore()})
    group, runtime = scored(strategy, KeyedTextEngine((RIGHT, "12")), SUM)
    for trajectory in group.trajectories:
        (turn,) = trajectory.turns
        is_right = float(turn.action.text == RIGHT)
        assert turn.rewards == {"outcome": is_right, "length": float(len(turn.action.text))}
        assert turn.reward == is_right + len(turn.action.text) == trajectory.total_reward
    assert len({t.turns[0].action.text for t in group.trajectories}) == 2
    only = WeightedParts({"length": 0.5})(group, 0).trajectories[0].turns[0]
    assert only.reward == 0.5 * len(only.action.text) and set(only.rewards) == {"length"}
    with pytest.raises(UserError, match="none of \\['absent'\\]"):
        WeightedParts({"absent": 1.0})(group, 0)
    assert runtime.failures.total == 0


def test_a_score_of_one_may_be_what_success_is():
    scorers = {"length": LengthScore()}
    strategy = ScoredEpisodes(IndependentEpisodes(6), scorers, success="length")
    group, _ = scored(strategy, KeyedTextEngine((RIGHT, "")), SUM)
    texts = [trajectory.turns[0].action.text for trajectory in group.trajectories]
    assert set(texts) == {RIGHT, ""}
    assert [t.success for t in group.trajectories] == [text == RIGHT for text in texts]
    with pytest.raises(UserError, match="success names one of them"):
        scored(ScoredEpisodes(scorers=scorers, success="x"), KeyedTextEngine((RIGHT,)), SUM)


@pytest.mark.parametrize("scale", [1.0, -0.5])
def test_a_frozen_readers_answer_is_scored_against_the_right_one(scale: float):
    def with_gold(group: Group) -> Trajectory:
        (trajectory,) = group.trajectories
        (turn,) = trajectory.turns
        turn = dataclasses.replace(turn, info={**turn.info, "gold": "Ox"})
        return trajectory.replace(turns=(turn,))

    reader = ListEngine("Ox", "cow")
    score = AnswerScore(RUBRIC, lambda answer, golds: float(answer in golds), "judge", scale)
    group, _ = scored(IndependentEpisodes(1), KeyedTextEngine((RIGHT,)), SUM)
    with make_runtime(KeyedTextEngine((RIGHT,))) as runtime:
        runtime.add_model("judge", Model(JUDGE, reader))
        scores = [runtime.run(score(with_gold(group), runtime, (*KEY, i))) for i in range(2)]
        assert scores == [{0: scale}, {0: 0.0}]
        with pytest.raises(UserError, match="gold"):
            runtime.run(score(group.trajectories[0], runtime, KEY))
    assert reader.prompts == ["".join(m.text for m in RUBRIC(group.trajectories[0]))] * 2


def test_an_episode_that_cannot_be_scored_is_counted_and_dropped_and_never_scores_zero():
    scorer = LengthScore(failing=[1])
    strategy = ScoredEpisodes(IndependentEpisodes(3), {"length": scorer})
    group, runtime = scored(strategy, KeyedTextEngine(("7",)), SUM)
    assert [t.sample for t in group.trajectories] == [0, 2] and group.num_dropped == 1
    assert group.discarded_turns == 1 and group.num_turns_played == 3
    assert runtime.failures.counts == {"raised": 2} and runtime.failures.dropped == 1
    keys = [key for sample, key in scorer.calls if sample == 1]
    assert len(keys) == 2 and keys[0] != keys[1]  # asked once more, with other random numbers


def test_a_failure_that_does_not_recur_leaves_no_trace_but_its_count():
    plain = ScoredEpisodes(IndependentEpisodes(3), {"length": LengthScore()})
    once = ScoredEpisodes(IndependentEpisodes(3), {"length": LengthScore([2], times=1)})
    engine = ("7", "12")
    group, runtime = scored(once, KeyedTextEngine(engine), SUM)
    assert groups_equal(group, collect_group(plain, KeyedTextEngine(engine), SUM))
    assert runtime.failures.counts == {"raised": 1} and runtime.failures.dropped == 0


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("7", 0.7),
        ("7/10", 0.7),
        ("It asked 3 times.\tScore: 2.5", 0.25),
        ("score 1, no: score 4", 0.4),
        ("10", 1.0),
    ],
)
def test_a_judges_number_becomes_a_score_from_0_to_1(answer: str, score: float):
    judge = ListEngine(answer)
    with make_runtime(ListEngine(RIGHT)) as runtime:
        runtime.add_model("judge", Model(JUDGE, judge))
        strategy = ScoredEpisodes(IndependentEpisodes(1), {"judge": Judge(RUBRIC)})
        (group,) = runtime.collect(strategy, [SUM], KEY)
    assert group.trajectories[0].turns[0].rewards["judge"] == pytest.approx(score)
    opening = group.trajectories[0].opening[0].text
    assert judge.prompts == [f"user: {opening}assistant: {RIGHT}\nuser: Correct.\nHow good?\n"]


@pytest.mark.parametrize("answer", ["", "good", "11", "-1", "score: ten", "9" * 400, "nan"])
def test_a_malformed_answer_is_counted_asked_again_and_then_dropped(answer: str):
    for answers, dropped in (((answer, "5"), 0), ((answer, answer), 1)):
        with make_runtime(ListEngine(RIGHT)) as runtime:
            runtime.add_model("judge", Model(JUDGE, ListEngine(*answers)))
            strategy = ScoredEpisodes(IndependentEpisodes(1), {"judge": Judge(RUBRIC)})
            (group,) = runtime.collect(strategy, [SUM], KEY)
            assert runtime.failures.counts == {"malformed": 1 + dropped}
        assert group.num_dropped == runtime.failures.dropped == dropped
        assert len(group.trajectories) == 1 - dropped


def test_a_judge_may_score_every_turn_from_what_it_has_seen_so_far():
    right = expert_actions(chain_task())
    judge = KeyedTextEngine(("5",))
    strategy = ScoredEpisodes(IndependentEpisodes(1), {"judge": Judge(RUBRIC, per_turn=True)})
    group, _ = scored(strategy, ListEngine(*right), chain_task(), judge)
    (trajectory,) = group.trajectories
    assert [turn.rewards["judge"] for turn in trajectory.turns] == [0.5] * len(right)
    assert sorted(len(call.prompt) for call in judge.calls) == sorted(
        {len(call.prompt) for call in judge.calls}
    )  # each prompt is longer than the one before
    assert len({call.key for call in judge.calls}) == len(right)


def test_texts_of_an_episode_are_never_read_as_a_template():
    question = EpisodeQuestion("{opening}|{answer}|{transcript}", max_characters=21)
    turn = Turn((), assistant("{opening} {x} \\1"), (user("ok\n"),), 0.0)
    (message,) = question(Trajectory((user("{answer}\n"),), (turn,)))
    assert message.text == "{answer}|{opening} {x} \\1|ing} {x} \\1\nuser: ok\n"
    assert transcript(Trajectory((user("go\n"),), ())) == "user: go\n"


def test_a_judge_without_a_range_or_a_number_in_its_pattern_is_refused():
    for fields in ({"low": 1.0, "high": 1.0}, {"pattern": "score"}):
        with pytest.raises(UserError, match="low < high and a pattern with one group"):
            Judge(RUBRIC, **fields)  # type: ignore[arg-type]
    for strategy in (ScoredEpisodes(), AcceptedEpisodes(), BestOfN()):
        with pytest.raises(UserError, match=r"needs (a )?scorer"):
            collect_group(strategy, KeyedTextEngine(), SUM)


def test_a_filter_that_asks_keeps_what_the_model_accepts():
    strategy = AcceptedEpisodes(IndependentEpisodes(8), LengthScore([0]), threshold=2.0)
    group, _ = scored(strategy, KeyedTextEngine(("7", "12")), SUM)
    plain = collect_group(IndependentEpisodes(8), KeyedTextEngine(("7", "12")), SUM)
    accepted = [t.sample for t in plain.trajectories if t.sample and t.turns[0].action.text == "12"]
    assert [t.sample for t in group.trajectories] == accepted and 0 < len(accepted) < 7
    assert group.num_turns_played == 8 and group.num_dropped == 1


def test_the_best_of_n_has_the_highest_score_and_keeps_its_own_reward():
    task, texts = SUM, ("7", "123", "12", RIGHT)
    strategy = BestOfN(IndependentEpisodes(6), LengthScore())
    group, _ = scored(strategy, KeyedTextEngine(texts), task)
    plain = collect_group(IndependentEpisodes(6), KeyedTextEngine(texts), task).trajectories
    lengths = [len(t.turns[0].action.text) for t in plain]
    (best,) = group.trajectories
    assert best.sample == lengths.index(max(lengths)) and group.num_turns_played == 6
    assert best.turns[-1].info["score"] == max(lengths)
    assert best.total_reward == plain[best.sample].total_reward
    every = BestOfN(IndependentEpisodes(2), LengthScore(failing=[0, 1]))
    group, runtime = scored(every, KeyedTextEngine(texts), task)
    assert group.trajectories == () and group.num_dropped == runtime.failures.dropped == 2


@pytest.mark.parametrize(
    ("answers", "majority"),
    [("7122", "2"), ("1712", "1"), ("12", "1"), ("9", "9"), ("xxx1", "1"), ("xy", None)],
)
def test_the_majority_is_the_most_frequent_answer_and_of_ties_the_first(
    answers: str, majority: str | None
):
    strategy = MajorityVote(IndependentEpisodes(len(answers)))
    (episode,) = collect_group(strategy, ListEngine(*answers), SUM).trajectories
    assert episode.turns[0].info["answer"] == majority
    assert episode.sample == (answers.index(majority) if majority else 0)


class TableScorer:
    """A `Scorer` of log-probs from a table by the last letter scored."""

    def __init__(self, logp: Mapping[str, float]) -> None:
        self.logp = logp

    def submit(self, tokens: Any, is_scored: Any) -> Any:
        future: Future[float] = Future()
        future.set_result(self.logp[AGENT.renderer.codec.decode(tuple(tokens[is_scored].tolist()))])
        return future

    def close(self) -> None: ...


def test_the_verifiers_score_is_the_probability_of_yes_among_yes_and_no():
    scorer = YesProbability(EpisodeQuestion("{opening}{answer} right? "))
    rewards = {"reward": RewardModelScore("verifier", scale=2.0, offset=1.0)}
    with make_runtime(KeyedTextEngine((RIGHT,))) as runtime:
        runtime.add_model("verifier", Model(JUDGE, scorer=TableScorer({"yes": -1.0, "no": -2.0})))
        (group,) = runtime.collect(
            ScoredEpisodes(IndependentEpisodes(1), {"p": scorer}), [SUM], KEY
        )
        runtime.add_model("verifier", Model(JUDGE, scorer=TableScorer({f"{RIGHT}\n": 3.0})))
        (other,) = runtime.collect(ScoredEpisodes(IndependentEpisodes(1), rewards), [SUM], KEY)
    p_yes, p_no = 0.36788, 0.13534  # e^-1, e^-2
    assert group.trajectories[0].turns[0].rewards["p"] == pytest.approx(
        p_yes / (p_yes + p_no), abs=1e-4
    )
    assert other.trajectories[0].turns[0].rewards["reward"] == 2.0 * (3.0 - 1.0)


def test_scores_are_requested_while_other_groups_play():
    """The engine has one slot, and the first score waits until the second group has played."""
    engine = KeyedTextEngine((RIGHT,), num_slots=1)

    @dataclasses.dataclass
    class Late:
        async def __call__(
            self, trajectory: Trajectory, runtime: Runtime, key: RandomKey
        ) -> Mapping[int, float]:
            async with asyncio.timeout(10):
                while len(engine.calls) < 2:
                    await asyncio.sleep(0.001)
            return {0: 1.0}

    strategy = ScoredEpisodes(IndependentEpisodes(1), {"late": Late()})
    with make_runtime(engine) as runtime:
        groups = runtime.collect(strategy, [SUM, dataclasses.replace(SUM, seed=5)], KEY)
    assert [group.trajectories[0].turns[0].rewards["late"] for group in groups] == [1.0, 1.0]
