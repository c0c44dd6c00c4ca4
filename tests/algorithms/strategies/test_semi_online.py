"""Semi-online rollouts along an expert's episode: matches, patches, thoughts, sequences, returns
and the SOP metric (UI-S1).
"""

import dataclasses
from pathlib import Path

import pytest
from support.fixtures import make_credit_inputs
from support.strategy_runs import (
    AGENT,
    BRITTLE_ID,
    KEY,
    RENDERER,
    KeyedTextEngine,
    ListEngine,
    chain_task,
    collect_group,
    expert_actions,
    groups_equal,
    make_runtime,
)

from agentrl_jax.algorithms.advantages.token_masks import OnlySources
from agentrl_jax.algorithms.advantages.turn import (
    RewardToGo,
    stop_at_mismatch,
    stop_before_mismatch,
)
from agentrl_jax.algorithms.experience.turn_rewards import (
    expert_match_reward,
    expert_match_reward_released,
)
from agentrl_jax.algorithms.strategies.semi_online import (
    SemiOnlineRollouts,
    ThoughtWriter,
    first_word,
    semi_online_performance,
)
from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import collate, sequences_of, token_identity
from agentrl_jax.messages import assistant
from agentrl_jax.rollout.agent import Limits
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.storage import trajectory_json
from agentrl_jax.trajectories import Group, Sampling
from agentrl_jax.workers.pool import Task

TASK = chain_task(2, length=5, horizon=9)


RIGHT = expert_actions(TASK)


def wrong(step: int) -> str:
    return "b" if RIGHT[step] == "a" else "a"


def letter(action: str) -> str | None:
    """All letters have the same action type."""
    return "letter" if action in ("a", "b") else None


def collect_walk(
    strategy: SemiOnlineRollouts, *texts: str, task: Task = TASK
) -> tuple[Group, ListEngine]:
    engine = ListEngine(*texts)
    return collect_group(dataclasses.replace(strategy, group_size=1), engine, task), engine


@pytest.mark.parametrize("patches", [0, 1, 2, -1])
@pytest.mark.parametrize("misses", [(), (0,), (2,), (1, 2), (0, 2, 4), (4,)])
def test_an_episode_continues_while_patches_are_left(patches: int, misses: tuple[int, ...]):
    texts = [wrong(i) if i in misses else right for i, right in enumerate(RIGHT)]
    group, engine = collect_walk(
        SemiOnlineRollouts(max_patches=patches, action_type=letter), *texts
    )
    (walk,) = group.trajectories
    ends = 5 if patches < 0 or len(misses) <= patches else misses[patches] + 1
    assert len(walk.turns) == ends and walk.success == (not misses)
    assert walk.stop_reason == ("terminated" if patches < 0 or len(misses) <= patches else "early")
    assert [turn.info["match"] for turn in walk.turns] == [
        "type" if i in misses else "exact" for i in range(ends)
    ]
    assert [turn.reward for turn in walk.turns] == [float(i not in misses) for i in range(ends)]
    patched = [i for i in misses[: len(misses) if patches < 0 else patches] if i < ends]
    assert [i for i, turn in enumerate(walk.turns) if turn.info["patched"]] == patched
    sampled_calls = [call for call in walk.calls if call.source == "sampled"]
    assert [RENDERER.parse(call.action).text for call in sampled_calls] == texts[
        :ends
    ]  # the sampled actions are trained
    assert [call.source for turn in walk.turns for call in turn.calls] == [
        source
        for i in range(ends)
        for source in (["sampled", "patch"] if i in patched else ["sampled"])
    ]
    if ends == 5:  # every prompt holds the expert's actions so far, whatever was sampled
        opening = engine.prompts[0]
        assert (
            engine.prompts[-1].startswith(opening)
            and [line for line in engine.prompts[-1].split("\n") if len(line) == 1] == RIGHT[:4]
        )


def test_patches_are_not_trained():
    group, _ = collect_walk(
        SemiOnlineRollouts(max_patches=-1, action_type=letter),
        RIGHT[0],
        wrong(1),
        RIGHT[2],
        wrong(3),
        RIGHT[4],
    )
    (walk,) = group.trajectories
    collated = collate([group])
    assert token_identity([group], collated) == 1.0
    mask = OnlySources()(make_credit_inputs([group]))
    assert mask.sum() == 5 * 2 and len(mask) == 7 * 2  # a letter and a line feed each
    # a patch starts a training sequence, which continues until the next patch
    assert len(sequences_of(walk)) == 3
    assert walk.turns[1].notes == (assistant(wrong(1)),) and walk.turns[1].action == assistant(
        RIGHT[1]
    )
    again = trajectory_json.decode(trajectory_json.encode(walk))
    assert [call.source for call in again.calls] == [call.source for call in walk.calls]
    assert [call.prompt.tolist() for call in again.calls] == [
        call.prompt.tolist() for call in walk.calls
    ]


def test_until_its_first_mismatch_a_semi_online_episode_is_an_online_one_bit_for_bit():
    live = collect_group(IndependentEpisodes(16), KeyedTextEngine(), TASK)
    walks = collect_group(
        SemiOnlineRollouts(16, max_patches=0, action_type=letter), KeyedTextEngine(), TASK
    )
    lengths = set()
    for walk, episode in zip(walks.trajectories, live.trajectories):
        matched = sum(turn.info["match"] == "exact" for turn in walk.turns)
        assert len(walk.turns) == min(matched + 1, 5)
        for call, plain_call in zip(walk.calls, episode.calls):
            assert (call.key, call.prompt.tolist(), call.action.tolist()) == (
                plain_call.key,
                plain_call.prompt.tolist(),
                plain_call.action.tolist(),
            )
        lengths.add(len(walk.turns))
    assert len(lengths) > 2


def test_a_policy_equal_to_the_expert_plays_the_same_episode():
    for strategy in (
        SemiOnlineRollouts(max_patches=0),
        SemiOnlineRollouts(max_patches=-1),
        SemiOnlineRollouts(use_policy_history=False, max_patches=-1),
    ):
        group, _ = collect_walk(strategy, *RIGHT)
        live = collect_group(IndependentEpisodes(1), ListEngine(*RIGHT), TASK)
        for call, other_call in zip(
            group.trajectories[0].calls, live.trajectories[0].calls, strict=True
        ):
            assert (call.key, call.prompt.tolist(), call.action.tolist()) == (
                other_call.key,
                other_call.prompt.tolist(),
                other_call.action.tolist(),
            )
        assert semi_online_performance(group.trajectories).score == 1.0


@pytest.mark.parametrize(
    ("text", "match", "formatted"),
    [
        ("it is near>find ann", "exact", True),
        (">find ann", "exact", False),
        ("find ann", "exact", False),
        ("so>find bob", "type", True),
        ("so>answer ann", "parsed", True),
        ("so>", "none", True),
        ("a>b>find ann ", "exact", True),
    ],
)
def test_matches_by_hand(text: str, match: str, formatted: bool):
    assert SemiOnlineRollouts(thought_end_marker=">").match_info(text, "because>find ann") == {
        "match": match,
        "formatted": formatted,
    }
    assert first_word("find ann") == "find" and first_word("  ") is None


def test_without_a_marker_every_action_is_formatted():
    assert SemiOnlineRollouts().match_info(" find ann", "find ann\n") == {
        "match": "exact",
        "formatted": True,
    }


def test_the_papers_and_the_released_codes_rewards_and_returns_on_an_episode():
    group, _ = collect_walk(
        SemiOnlineRollouts(max_patches=0, action_type=letter), RIGHT[0], RIGHT[1], "?"
    )
    for reward, stop, rewards, returns in (
        (expert_match_reward, stop_at_mismatch, [1.0, 1.0, 0.1], [1.525, 1.05, 0.1]),
        (expert_match_reward_released, stop_before_mismatch, [1.0, 1.0, 0.1], [1.5, 1.0, 0.1]),
    ):
        scored = reward(group, 0)
        assert [turn.reward for turn in scored.trajectories[0].turns] == pytest.approx(rewards)
        assert RewardToGo(0.5, stop)(make_credit_inputs([scored])) == pytest.approx(returns)


def test_the_sop_metric_by_hand():
    walks = [
        collect_walk(SemiOnlineRollouts(max_patches=0), *texts)[0].trajectories[0]
        for texts in (RIGHT, [*RIGHT[:2], wrong(2)], [wrong(0)])
    ]
    performance = semi_online_performance(walks)
    assert (performance.progress, performance.success_rate) == pytest.approx(
        ((1 + 0.4 + 0) / 3, 1 / 3)
    )
    assert performance.score == pytest.approx((1.4 / 3 + 1 / 3) / 2)
    patched = collect_walk(SemiOnlineRollouts(max_patches=-1), wrong(0), *RIGHT[1:])[0].trajectories
    assert (
        semi_online_performance(patched).progress == 0.0
    )  # turns after the first mismatch do not count
    with pytest.raises(UserError):
        semi_online_performance([])


def test_the_three_modes_of_thought():
    marked = SemiOnlineRollouts(thought_end_marker=">", max_patches=1, action_type=letter)
    actions = [f"i>{RIGHT[0]}", f"you>{wrong(1)}"]
    for thought, expected in (
        (None, RIGHT[1]),
        (ThoughtWriter("writer"), f"since>{RIGHT[1]}"),
        (ThoughtWriter(), f"why>{RIGHT[1]}"),
    ):
        engine, writer = (
            ListEngine(
                *actions,
                *([] if thought is None or thought.agent != "policy" else ["why"]),
                "x",
                "x",
                "x",
            ),
            ListEngine("since"),
        )
        strategy = dataclasses.replace(marked, thought_writer=thought, group_size=1)
        agent = dataclasses.replace(AGENT, sampling=Sampling(budget=9), limits=Limits(turns=3))
        with make_runtime(engine, agent) as runtime:
            runtime.add_agent(
                "writer", dataclasses.replace(agent, name="writer", engine="writer"), writer
            )
            (group,) = runtime.collect(strategy, [TASK], KEY)
        (walk,) = group.trajectories
        assert walk.turns[0].action.text == actions[0]  # a matching action stays as it was sampled
        assert walk.turns[1].action.text == expected and walk.turns[1].notes == (
            assistant(actions[1]),
        )
        assert (
            f"{actions[0]}\n" in engine.prompts[-1]
            and f"{expected}\n" in engine.prompts[-1]
            and actions[1] not in engine.prompts[-1]
        )
        prompts = (writer if thought and thought.agent == "writer" else engine).prompts
        assert any(
            prompt.endswith(f"The right action is {RIGHT[1]}. Why?\n") for prompt in prompts
        ) == (thought is not None)
        assert [call.source for call in walk.calls].count("patch") == 1
    with pytest.raises(UserError, match="marker"):
        SemiOnlineRollouts(thought_writer=ThoughtWriter())


def test_offline_the_history_is_the_experts():
    group, engine = collect_walk(
        SemiOnlineRollouts(thought_end_marker=">", use_policy_history=False, max_patches=-1),
        *(f"i>{text}" for text in RIGHT),
    )
    assert group.trajectories[0].success and "i>" not in engine.prompts[-1]
    _, engine = collect_walk(
        SemiOnlineRollouts(thought_end_marker=">", max_patches=-1), *(f"i>{text}" for text in RIGHT)
    )
    assert engine.prompts[-1].count("i>") == 4


@pytest.mark.parametrize("misses", [(), (2,), (0, 2, 4)])
def test_without_thoughts_semi_online_and_offline_walks_have_the_same_prompts(
    misses: tuple[int, ...],
):
    """So without thoughts the two differ in their credit and where a walk ends, not in states."""
    texts = [wrong(i) if i in misses else right for i, right in enumerate(RIGHT)]
    prompts = [
        collect_walk(
            SemiOnlineRollouts(max_patches=-1, use_policy_history=history, action_type=letter),
            *texts,
        )[1].prompts
        for history in (True, False)
    ]
    assert prompts[0] == prompts[1] and len(prompts[0]) == len(RIGHT)


def test_limits_end_an_episode_and_a_failing_expert_is_counted(tmp_path: Path):
    agent = dataclasses.replace(AGENT, limits=Limits(turns=2))
    (walk,) = collect_group(
        SemiOnlineRollouts(1, max_patches=-1), ListEngine(*RIGHT), TASK, agent
    ).trajectories
    assert (walk.stop_reason, len(walk.turns), walk.success) == ("turns", 2, False)
    group = collect_group(
        SemiOnlineRollouts(4),
        KeyedTextEngine(),
        Task(BRITTLE_ID, 0, {"healthy_resets": 0, "path": str(tmp_path / "log")}),
        retries=1,
    )
    assert group.trajectories == () and group.num_dropped == 4


def test_episodes_are_determined_by_the_key():
    prompt = collect_group(SemiOnlineRollouts(8), KeyedTextEngine(), TASK)
    assert groups_equal(
        prompt,
        collect_group(SemiOnlineRollouts(8), KeyedTextEngine(max_delay=0.004, num_slots=3), TASK),
    )
