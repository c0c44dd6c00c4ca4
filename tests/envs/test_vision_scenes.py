"""`SceneQuestions`, `RegionQuestions` and `GridGrounding`: answers from pixels, tools, rewards."""

import re

import numpy as np
import pytest
from support.env_episodes import play_scripted_episode

from agentrl_jax.environment import make
from agentrl_jax.envs.vision import boxes
from agentrl_jax.envs.vision.images import COLORS
from agentrl_jax.envs.vision.region_questions import NO_REGION, RegionQuestions, region_text
from agentrl_jax.envs.vision.scene_protocols import LookCounts, vigorl, vigorl_single
from agentrl_jax.envs.vision.scene_questions import SceneQuestions
from agentrl_jax.envs.vision.scenes import OBJECT, SCENE_QUESTIONS, render_scene
from agentrl_jax.errors import UserError
from agentrl_jax.images.loading import ImageReader
from agentrl_jax.messages import Message, ToolCall, assistant
from agentrl_jax.tool_environment import tool_action
from agentrl_jax.tool_formats import HermesToolFormat, UITarsToolFormat


def scene_env(seed: int = 0, **options) -> SceneQuestions:
    env = make("agentrl/SceneQuestions-v0", options)
    assert isinstance(env, SceneQuestions)
    env.reset(seed=seed)
    return env


def region_env(seed: int = 0, **options) -> RegionQuestions:
    env = make("agentrl/RegionQuestions-v0", options)
    assert isinstance(env, RegionQuestions)
    env.reset(seed=seed)
    return env


def pixels(message: Message) -> np.ndarray:
    return ImageReader().pixels(message.images[0])


@pytest.mark.parametrize("kind", SCENE_QUESTIONS.phrasings)
def test_answers_follow_from_the_pixels(kind: str):
    """Dots are runs of two black pixels in the row 34 below an object's upper side."""
    split = "held_out" if kind in SCENE_QUESTIONS.held_out else "train"
    for seed in range(12):
        env = scene_env(seed, kinds=[kind], split=split)
        image = render_scene(env.scene)
        counted = {}
        for item in env.scene.objects:
            row = (image[item.y + 34, item.x : item.x + OBJECT] == 0).all(-1)
            counted[item.name] = int(row.sum()) // 2
            assert tuple(image[item.y + OBJECT - 2, item.x + OBJECT // 2]) in {
                COLORS[item.color], (255, 255, 255)
            }  # fmt: skip
        question = env.question
        named = [n for n in counted if n in question.text]
        if kind == "count":
            assert question.answer == str(counted[named[0]])
        if kind == "sum":
            assert question.answer == str(sum(counted[n] for n in named)) and len(named) == 2
        if kind == "compare":
            assert question.answer == max(named, key=counted.__getitem__) and len(named) == 2
            assert counted[named[0]] != counted[named[1]]
        if kind == "read":
            assert env.scene.named(named[0]).code == question.answer
        if kind == "locate":
            assert env.scene.named(question.answer).code in question.text
        assert len(set(question.choices)) == 5 and question.choices.count(question.answer) == 1


def test_the_expert_sees_its_evidence_and_the_guesser_is_at_chance():
    rates = {}
    for player in ("expert", "guessing"):
        episodes = [play_scripted_episode(scene_env(), player, seed).turns for seed in range(150)]
        rates[player] = np.mean([turns[-1].info["success"] for turns in episodes])
        if player == "expert":
            assert all(turns[-1].info["evidence"] == 1 for turns in episodes)
    assert rates["expert"] == 1 and 0.1 < rates["guessing"] < 0.32


def test_a_crop_is_cut_from_the_full_resolution():
    env = scene_env(kinds=["read"])
    item = env.scene.named(env.question.target)
    (opening,) = env._opening
    assert pixels(opening).shape == (112, 112, 3)
    x1, y1 = item.x // 4, item.y // 4
    (reply,), *_ = env.step(tool_action("crop", box=[x1, y1, x1 + 28, y1 + 28]))
    part = render_scene(env.scene)[4 * y1 : 4 * y1 + 112, 4 * x1 : 4 * x1 + 112]
    np.testing.assert_array_equal(pixels(reply), part[:112, :112])
    (turned,), *_ = env.step(tool_action("rotate", degrees=90, image=1))
    np.testing.assert_array_equal(pixels(turned), np.rot90(part))
    (bright,), *_ = env.step(tool_action("enhance", contrast=2, image=1))
    np.testing.assert_array_equal(
        pixels(bright), np.clip(128 + 2 * (part.astype(float) - 128), 0, 255).astype(np.uint8)
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (tool_action("crop", box=[0, 0, 500, 500]), "not within the image of 112x112"),
        (tool_action("crop", box=[-5, 0, 5, 5]), "not within"),
        (tool_action("crop", box=[9, 9, 3, 3]), "is empty"),
        (tool_action("crop", box=[0, 0, float("nan"), 3]), "coordinate|number|JSON"),
        (tool_action("crop", box=[1, 2]), "write a box"),
        (tool_action("crop", box="all"), "box"),
        (tool_action("crop", box=[1, 2, 30, 40], image=7), "there is no image 7"),
        (tool_action("zoom", point=[1e300, 1]), "no coordinate"),
        (tool_action("zoom", point=[113, 1]), "not within"),
        (tool_action("rotate", degrees=45), "90, 180 or 270"),
        (tool_action("enhance", contrast=-1), "from 0.5 to 4"),
        (tool_action("look"), "there is no tool 'look'"),
        (Message("assistant", "", (ToolCall("c", "crop", '{"box": [1e999, NaN, 2, 3]}'),)), "."),
        (Message("assistant", "", (ToolCall("c", "crop", "[" * 5000),)), "JSON"),
    ],
)
def test_hostile_calls_are_answered(call: Message, message: str):
    env = scene_env()
    (reply,), reward, terminated, truncated, info = env.step(call)
    assert reply.text.startswith("Error:") and not reply.images and info["tool_errors"] == 1
    assert re.search(message, reply.text), reply.text
    assert reward == 0 and not (terminated or truncated) and len(env.views) == 1


def test_an_episode_shows_a_bounded_number_of_images():
    env = scene_env(horizon=30)
    replies = [env.step(tool_action("zoom", point=[50, 50]))[0][0] for _ in range(15)]
    assert [bool(reply.images) for reply in replies] == [True] * 11 + [False] * 4
    assert "answer now" in replies[-1].text


def test_vigorl_rewards_distinct_points():
    """.6 accuracy + .4 (1 + .2 (points - 1)) where all turns are well-formed."""
    table = [
        (LookCounts(True, True, False, 1), 1.0),
        (LookCounts(True, True, False, 3), 0.6 + 0.4 * 1.4),
        (LookCounts(False, True, False, 2), 0.4 * 1.2),
        (LookCounts(True, False, False, 5), 0.6),
        (LookCounts(True, True, False, 0), 1.0),
        (LookCounts(True, True, False, 9), 0.6 + 0.4 * 1.8),
    ]
    for counts, reward in table:
        assert sum(vigorl(counts).values()) == pytest.approx(reward)
    assert sum(vigorl_single(LookCounts(True, True, True, 0)).values()) == 1
    assert sum(vigorl_single(LookCounts(True, True, False, 0)).values()) == 0.5


def test_vigorl_counts_the_points_that_are_far_apart():
    env = scene_env(protocol="vigorl", reward="vigorl", kinds=["read"])
    for point in ([30, 30], [35, 30], [60, 30]):
        call = tool_action("search_coordinate", coordinate=point)
        env.step(call.replace(content="<think>I look.</think>"))
    *_, info = env.step(f"<think>I see.</think><answer>{env.question.answer}</answer>")
    assert info["regions"] == 2 and info["rewards"]["format"] == pytest.approx(0.4 * 1.2)
    env.reset(seed=1)
    env.step(tool_action("search_coordinate", coordinate=[30, 30]))  # without a thought
    *_, info = env.step(f"<think>I see.</think><answer>{env.question.answer}</answer>")
    assert info["rewards"] == {"outcome": 0.6, "format": 0.0}


def test_vigorls_text_is_read_by_its_tool_format():
    env = scene_env(protocol="vigorl")
    text = '<think>I look.</think><tool_call>{"name": "search_coordinate", "arguments": ' \
           '{"coordinate": [20, 30]}}</tool_call>'  # fmt: skip
    parsed = HermesToolFormat().parse(text)
    (reply,), *_, info = env.step(Message("assistant", parsed.content, parsed.calls))
    assert reply.images and info["formatted"] and info["called_tools"] == ["search_coordinate"]


def test_one_turn_without_tools_names_points():
    for reward, expected in (("vigorl_single", 1.0), ("outcome", 1.0)):
        env = scene_env(protocol="vigorl_single", reward=reward)
        assert not env.tools
        *_, last = play_scripted_episode(env, "expert", 3).turns
        assert last.reward == expected
    _, reward, *_ = scene_env(protocol="vigorl_single", reward="vigorl_single").step(
        "<think>Somewhere.</think><answer>nothing</answer>"
    )
    assert reward == 0


def test_mgpo_returns_the_crop_and_asks_again():
    env = region_env(kinds=["read"])
    item = env.scene.named(env.question.target)
    box = (item.x // 4, item.y // 4, item.x // 4 + 28, item.y // 4 + 28)
    (reply,), reward, terminated, _, info = env.step(region_text(box, "it") + "\nmore text")
    part = render_scene(env.scene)[4 * box[1] : 4 * box[3], 4 * box[0] : 4 * box[2]]
    np.testing.assert_array_equal(pixels(reply), part)
    assert reply.text.count(env.question.text) == 1 and "boxed" in reply.text
    assert info["iou"] == pytest.approx(boxes.iou(boxes.scaled(box, 4, 4), item.box))
    assert (reward, terminated) == (0, False)
    _, reward, terminated, _, info = env.step(f"So \\boxed{{{env.question.letter}}}.")
    assert (reward, terminated, info["success"]) == (1.0, True, True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no box",
        "```json\n[]\n```",
        "```json\n[1]\n```",
        '```json\n[{"bbox_2d": [1, 2, 3]}]\n```',
        '```json\n[{"bbox_2d": [9, 9, 1, 1]}]\n```',
        '```json\n[{"bbox_2d": [0, 0, 900, 900]}]\n```',
        '```json\n[{"bbox_2d": [-3, 0, 5, 5]}]\n```',
        '```json\n[{"bbox_2d": [NaN, 0, 5, 5]}]\n```',
        '```json\n[{"bbox_2d": [0, 0, 112, 0.5]}]\n```',
        '```json\n[{"bbox_2d": [0, 0, 1e400, 5]}]\n```',
        '```json\n[{"bbox_2d"]\n```',
        "```json\n" + "[" * 9000 + "]" * 9000 + "\n```",
        '```json\n[{"bbox_2d": [0, 0, 5, 5]}]',
    ],
)
def test_mgpo_returns_the_whole_image_without_a_box(text: str):
    env = region_env()
    (reply,), _, terminated, _, info = env.step(assistant(text))
    np.testing.assert_array_equal(pixels(reply), pixels(env._opening[0]))
    assert reply.text.startswith(NO_REGION) and not info["formatted"] and not terminated
    assert env.step("\\boxed{Z}")[1] == 0


def test_the_baseline_answers_at_once():
    env = region_env(turns=1)
    _, reward, terminated, _, _ = env.step(f"\\boxed{{{env.question.letter}}}")
    assert reward == 1 and terminated


def test_ui_tars_points_become_clicks():
    env = make("agentrl/GridGrounding-v0", {"kinds": ["click"]})
    env.reset(seed=0)
    (target,) = env.goal.cells  # type: ignore[attr-defined]
    x, y = map(round, boxes.center(env.grid.box(target)))  # type: ignore[attr-defined]
    tools = [tool.schema for tool in env.tools]  # type: ignore[attr-defined]
    text = f"Thought: there.\nAction: click(point='<point>{x} {y}</point>')"
    parsed = UITarsToolFormat().parse(text, tools)
    _, reward, terminated, _, _ = env.step(Message("assistant", parsed.content, parsed.calls))
    assert reward == 1 and terminated


@pytest.mark.parametrize(
    ("action", "reward"),
    [("left_double", 0.0), ("right_single", 0.0), ("click", 1.0), ("outside", 0.0)],
)
def test_the_right_action_at_the_right_place_is_rewarded(action: str, reward: float):
    env = make("agentrl/GridGrounding-v0", {"kinds": ["cell"]})
    env.reset(seed=2)
    box = env.grid.box(env.goal.cells[0])  # type: ignore[attr-defined]
    point = [box[0] - 2, box[1]] if action == "outside" else list(boxes.center(box))
    *result, _ = env.step(tool_action("click" if action == "outside" else action, point=point))
    assert result[1:] == [reward, True, False]


def test_a_point_outside_of_the_grid_is_told_and_the_second_turn_ends():
    env = make("agentrl/GridGrounding-v0")
    env.reset(seed=2)
    (reply,), _, terminated, truncated, _ = env.step(tool_action("click", point=[999, -1]))
    assert "not within the image" in reply.text and not (terminated or truncated)
    *_, truncated, info = env.step(tool_action("drag", start_point=[1, 1], end_point=[1, 1e9]))
    assert truncated and info["success"] is False


@pytest.mark.parametrize(
    "options",
    [
        {"split": "validation"}, {"kinds": ["sum"]}, {"kinds": ["read"], "split": "held_out"},
        {"protocol": "mgpo"}, {"reward": "all"}, {"size": 100}, {"view": 1}, {"objects": 3},
        {"horizon": 0}, {"instruction": "no"}, {"zoom_half": 0},
    ],
)  # fmt: skip
def test_wrong_options_are_an_error(options):
    with pytest.raises(UserError, match=next(iter(options))):
        make("agentrl/SceneQuestions-v0", options)
