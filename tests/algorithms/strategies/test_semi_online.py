"""Walks along an expert's path: matches, patches, thoughts, rows, returns and the SOP metric (UI-S1)."""

import dataclasses
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hand_made import evidence_of, make_call
from stages import AGENT, BRITTLE, KEY, RENDERER, Whimsical, chain, collected, runtime_on, same, shown

from agentrl_jax import journal
from agentrl_jax.algorithms.masks import Sources
from agentrl_jax.algorithms.process_rewards import expert_match, expert_match_as_released
from agentrl_jax.algorithms.strategies.semi_online import SemiOnline, Thought, first_word, semi_online_performance
from agentrl_jax.algorithms.turn_credit import RewardToGo, after_mismatch, before_mismatch
from agentrl_jax.errors import UserError
from agentrl_jax.messages import assistant
from agentrl_jax.rows import collate, rows_of, token_identity
from agentrl_jax.speaking import Limits
from agentrl_jax.strategies import Independent
from agentrl_jax.trajectories import Call, Group, Key, Sampling
from agentrl_jax.workers import Task

TASK = chain(2, length=5, horizon=9)


class Saying:
    """Implements `Engine`: writes one text after the other, whoever asks."""

    places = 8

    def __init__(self, *texts: str) -> None:
        self.left, self.prompts = list(texts), []

    def submit(self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None = None, images: Any = ()) -> "Future[Call]":
        self.prompts.append(RENDERER.codec.text(tuple(ids.tolist())))
        future: Future[Call] = Future()
        action = RENDERER.action_ids(assistant(self.left.pop(0)))[: sampling.budget]
        future.set_result(dataclasses.replace(make_call(ids, action), sampling=sampling, key=key, parent=parent))
        return future

    def release(self, call: Call) -> None: ...

    def publish(self, params: Any, version: int, recompute: bool = False) -> None: ...

    def close(self) -> None: ...


RIGHT = shown(TASK)


def wrong(step: int) -> str:
    return "b" if RIGHT[step] == "a" else "a"


def letter(action: str) -> str | None:
    """Letters are of one kind."""
    return "letter" if action in ("a", "b") else None


def walked(strategy: SemiOnline, *texts: str, task: Task = TASK) -> tuple[Group, Saying]:
    engine = Saying(*texts)
    return collected(dataclasses.replace(strategy, group_size=1), engine, task), engine


@pytest.mark.parametrize("patches", [0, 1, 2, -1])
@pytest.mark.parametrize("misses", [(), (0,), (2,), (1, 2), (0, 2, 4), (4,)])
def test_a_walk_goes_on_while_patches_are_left(patches: int, misses: tuple[int, ...]):
    texts = [wrong(i) if i in misses else right for i, right in enumerate(RIGHT)]
    group, engine = walked(SemiOnline(patches=patches, kind=letter), *texts)
    (walk,) = group.trajectories
    ends = 5 if patches < 0 or len(misses) <= patches else misses[patches] + 1
    assert len(walk.turns) == ends and walk.success == (not misses)
    assert walk.stop_reason == ("terminated" if patches < 0 or len(misses) <= patches else "early")
    assert [turn.info["match"] for turn in walk.turns] == ["type" if i in misses else "exact" for i in range(ends)]
    assert [turn.reward for turn in walk.turns] == [float(i not in misses) for i in range(ends)]
    patched = [i for i in misses[: len(misses) if patches < 0 else patches] if i < ends]
    assert [i for i, turn in enumerate(walk.turns) if turn.info["patched"]] == patched
    own = [call for call in walk.calls if call.source == "sampled"]
    assert [RENDERER.parse(call.action).text for call in own] == texts[:ends]  # what is trained is what was sampled
    assert [call.source for turn in walk.turns for call in turn.calls] == [
        source for i in range(ends) for source in (["sampled", "patch"] if i in patched else ["sampled"])
    ]
    if ends == 5:  # every prompt holds the expert's path so far, whatever was said
        opening = engine.prompts[0]
        assert engine.prompts[-1].startswith(opening) and [line for line in engine.prompts[-1].split("\n") if len(line) == 1] == RIGHT[:4]


def test_patches_are_not_trained_and_rows_are_sampled_tokens():
    group, _ = walked(SemiOnline(patches=-1, kind=letter), RIGHT[0], wrong(1), RIGHT[2], wrong(3), RIGHT[4])
    (walk,) = group.trajectories
    collated = collate([group])
    assert token_identity([group], collated) == 1.0
    kept = Sources()(evidence_of([group]))
    assert kept.sum() == 5 * 2 and len(kept) == 7 * 2  # a letter and a line feed each
    assert len(rows_of(walk)) == 3  # a patch starts a row, which goes on until the next one
    assert walk.turns[1].notes == (assistant(wrong(1)),) and walk.turns[1].action == assistant(RIGHT[1])
    again = journal.decode(journal.encode(walk))
    assert [call.source for call in again.calls] == [call.source for call in walk.calls]
    assert [call.prompt.tolist() for call in again.calls] == [call.prompt.tolist() for call in walk.calls]


def test_until_its_first_mismatch_a_walk_is_live_play_bit_for_bit():
    live = collected(Independent(16), Whimsical(), TASK)
    walks = collected(SemiOnline(16, patches=0, kind=letter), Whimsical(), TASK)
    lengths = set()
    for walk, episode in zip(walks.trajectories, live.trajectories):
        matched = sum(turn.info["match"] == "exact" for turn in walk.turns)
        assert len(walk.turns) == min(matched + 1, 5)
        for mine, theirs in zip(walk.calls, episode.calls):
            assert (mine.key, mine.prompt.tolist(), mine.action.tolist()) == (theirs.key, theirs.prompt.tolist(), theirs.action.tolist())
        lengths.add(len(walk.turns))
    assert len(lengths) > 2


def test_a_policy_that_is_the_expert_plays_live_exactly():
    for strategy in (SemiOnline(patches=0), SemiOnline(patches=-1), SemiOnline(own=False, patches=-1)):
        group, _ = walked(strategy, *RIGHT)
        live = collected(Independent(1), Saying(*RIGHT), TASK)
        for mine, theirs in zip(group.trajectories[0].calls, live.trajectories[0].calls, strict=True):
            assert (mine.key, mine.prompt.tolist(), mine.action.tolist()) == (theirs.key, theirs.prompt.tolist(), theirs.action.tolist())
        assert semi_online_performance(group.trajectories).score == 1.0


@pytest.mark.parametrize(
    ("text", "match", "formatted"),
    [
        ("it is near>find ann", "exact", True), (">find ann", "exact", False), ("find ann", "exact", False),
        ("so>find bob", "type", True), ("so>answer ann", "parsed", True), ("so>", "none", True), ("a>b>find ann ", "exact", True),
    ],
)  # fmt: skip
def test_matches_by_hand(text: str, match: str, formatted: bool):
    assert SemiOnline(marker=">").judged(text, "because>find ann") == {"match": match, "formatted": formatted}
    assert first_word("find ann") == "find" and first_word("  ") is None


def test_without_a_marker_there_is_no_thought_to_ask_for():
    assert SemiOnline().judged(" find ann", "find ann\n") == {"match": "exact", "formatted": True}


def test_the_papers_and_the_codes_rewards_and_returns_on_a_walk():
    group, _ = walked(SemiOnline(patches=0, kind=letter), RIGHT[0], RIGHT[1], "?")
    for reward, stop, rewards, returns in (
        (expert_match, after_mismatch, [1.0, 1.0, 0.1], [1.525, 1.05, 0.1]),
        (expert_match_as_released, before_mismatch, [1.0, 1.0, 0.1], [1.5, 1.0, 0.1]),
    ):
        scored = reward(group, 0)
        assert [turn.reward for turn in scored.trajectories[0].turns] == pytest.approx(rewards)
        assert RewardToGo(0.5, stop)(evidence_of([scored])) == pytest.approx(returns)


def test_the_sop_metric_by_hand():
    walks = [walked(SemiOnline(patches=0), *texts)[0].trajectories[0] for texts in (RIGHT, [*RIGHT[:2], wrong(2)], [wrong(0)])]
    found = semi_online_performance(walks)
    assert (found.progress, found.success) == pytest.approx(((1 + 0.4 + 0) / 3, 1 / 3))
    assert found.score == pytest.approx((1.4 / 3 + 1 / 3) / 2)
    patched = walked(SemiOnline(patches=-1), wrong(0), *RIGHT[1:])[0].trajectories
    assert semi_online_performance(patched).progress == 0.0  # what comes after the first mismatch does not count
    with pytest.raises(UserError):
        semi_online_performance([])


def test_the_three_modes_of_thought():
    marked = SemiOnline(marker=">", patches=1, kind=letter)
    said = [f"i>{RIGHT[0]}", f"you>{wrong(1)}"]
    for thought, expected in ((None, RIGHT[1]), (Thought("writer"), f"since>{RIGHT[1]}"), (Thought(), f"why>{RIGHT[1]}")):
        engine, writer = Saying(*said, *([] if thought is None or thought.agent != "policy" else ["why"]), "x", "x", "x"), Saying("since")
        strategy = dataclasses.replace(marked, thought=thought, group_size=1)
        agent = dataclasses.replace(AGENT, sampling=Sampling(budget=9), limits=Limits(turns=3))
        with runtime_on(engine, agent) as runtime:
            runtime.add("writer", dataclasses.replace(agent, name="writer", engine="writer"), writer)
            (group,) = runtime.collect(strategy, [TASK], KEY)
        (walk,) = group.trajectories
        assert walk.turns[0].action.text == said[0]  # the history holds the policy's own words where they match
        assert walk.turns[1].action.text == expected and walk.turns[1].notes == (assistant(said[1]),)
        assert f"{said[0]}\n" in engine.prompts[-1] and f"{expected}\n" in engine.prompts[-1] and said[1] not in engine.prompts[-1]
        asked = (writer if thought and thought.agent == "writer" else engine).prompts
        assert any(prompt.endswith(f"The right action is {RIGHT[1]}. Why?\n") for prompt in asked) == (thought is not None)
        assert [call.source for call in walk.calls].count("patch") == 1
    with pytest.raises(UserError, match="marker"):
        SemiOnline(thought=Thought())


def test_offline_the_history_is_the_experts():
    group, engine = walked(SemiOnline(marker=">", own=False, patches=-1), *(f"i>{text}" for text in RIGHT))
    assert group.trajectories[0].success and "i>" not in engine.prompts[-1]
    _, engine = walked(SemiOnline(marker=">", patches=-1), *(f"i>{text}" for text in RIGHT))
    assert engine.prompts[-1].count("i>") == 4


def test_limits_cut_a_walk_and_a_failing_expert_is_counted(tmp_path: Path):
    agent = dataclasses.replace(AGENT, limits=Limits(turns=2))
    (walk,) = collected(SemiOnline(1, patches=-1), Saying(*RIGHT), TASK, agent).trajectories
    assert (walk.stop_reason, len(walk.turns), walk.success) == ("turns", 2, False)
    group = collected(SemiOnline(4), Whimsical(), Task(BRITTLE, 0, {"good": 0, "path": str(tmp_path / "log")}), retries=1)
    assert group.trajectories == () and group.dropped == 4


def test_walks_follow_from_the_key():
    prompt = collected(SemiOnline(8), Whimsical(), TASK)
    assert same(prompt, collected(SemiOnline(8), Whimsical(moment=0.004, places=3), TASK))
