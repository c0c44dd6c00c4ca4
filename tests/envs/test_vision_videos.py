"""`VideoQuestions`: answers from rendered frames, consistency and rewards by table, bad actions."""

import re

import numpy as np
import pytest
from support.env_episodes import play_scripted_episode

from agentrl_jax.environment import make
from agentrl_jax.envs.vision.frame_actions import (
    FRAME_REWARDS,
    FrameAction,
    FrameCounts,
    inconsistency,
    read_action,
)
from agentrl_jax.envs.vision.images import COLORS
from agentrl_jax.envs.vision.video_questions import VideoQuestions, turn_text
from agentrl_jax.envs.vision.videos import VIDEO_QUESTIONS, clock_text, render_frame
from agentrl_jax.images.loading import ImageReader
from agentrl_jax.images.videos import read_video
from agentrl_jax.messages import TextPart, VideoPart


def video_env(seed: int = 0, **options) -> VideoQuestions:
    env = make("agentrl/VideoQuestions-v0", options)
    assert isinstance(env, VideoQuestions)
    env.reset(seed=seed)
    return env


def color_shown(env: VideoQuestions, frame: int) -> str:
    """The color of the object in a frame, by its pixels; "": there is none."""
    image = render_frame(env.video, frame, 56)
    counts = {name: (image == color).all(-1).sum() for name, color in COLORS.items()}
    name = max(counts, key=counts.__getitem__)
    return name if counts[name] > 100 else ""


@pytest.mark.parametrize("kind", VIDEO_QUESTIONS.phrasings)
def test_answers_follow_from_the_frames(kind: str):
    split = "held_out" if kind in VIDEO_QUESTIONS.held_out else "train"
    for seed in range(6):
        env = video_env(seed, kinds=[kind], split=split, frames=96)
        colors = [color_shown(env, frame) for frame in range(96)]
        starts = [f for f in range(96) if colors[f] and (not f or colors[f - 1] != colors[f])]
        assert [e.start for e in env.video.events] == starts
        assert [e.color for e in env.video.events] == [colors[f] for f in starts]
        answer = env.question.answer
        if kind == "count":
            assert answer == str(len(starts))
        if kind == "time":
            assert env.question.seconds is not None
            frame = int(env.question.seconds * env.video.rate)
            assert answer.split()[0] == colors[frame]
            assert clock_text(env.question.seconds) in env.question.text
        if kind == "order":
            named = [e for e in env.video.events if e.name in env.question.text]
            assert len(named) == 2 and answer == min(named, key=lambda e: e.start).name
        if kind == "after":
            (i,) = [i for i, e in enumerate(env.video.events) if e.name in env.question.text]
            assert answer == env.video.events[i + 1].name


@pytest.mark.parametrize("split", ["train", "test", "held_out"])
def test_the_expert_is_consistent_and_right(split: str):
    frames = []
    for seed in range(60):
        turns = play_scripted_episode(video_env(split=split), "expert", seed).turns
        assert turns[-1].info["success"] and turns[-1].info["fault"] == ""
        frames.append(turns[-1].info["frames"])
    assert np.mean(frames) < 30  # of 160


@pytest.mark.parametrize("policy", ["expert", "random"])
def test_without_a_choice_of_frames_scripted_policies_answer_at_once(policy: str):
    for seed in range(10):
        (turn,) = play_scripted_episode(video_env(choose=False), policy, seed).turns
        assert turn.info["stopped"] and (policy == "random" or turn.info["success"])


def test_frames_are_shown_with_their_numbers():
    env = video_env()
    (opening,) = env._opening
    texts = [part.text for part in opening.content if isinstance(part, TextPart)]
    numbers = np.linspace(0, 159, 8).round().astype(int).tolist()
    assert texts[:8] == [f"frame {n}:" for n in numbers] and len(opening.images) == 8
    (reply,), *_, info = env.step(
        turn_text("I look from 20 to 60.", "choose frames between 20 and 60")
    )
    count = 8 if env.video.seconds <= 300 else 12
    chosen = np.linspace(21, 59, count).round().astype(int).tolist()
    assert reply.text == "".join(f"frame {n}:" for n in chosen)
    assert info["frames"] == 8 + count
    for number, image in zip(chosen, reply.images):
        pixels = ImageReader().pixels(image)
        np.testing.assert_array_equal(pixels, render_frame(env.video, number, 56))


def test_a_longer_video_shows_twelve_frames():
    env = video_env(frames=900)
    (reply,), *_ = env.step(turn_text("100 200", "choose frames between 100 and 200"))
    assert env.video.seconds > 300 and len(reply.images) == 12


def choose(start: int, end: int, *thought: int) -> FrameAction:
    return FrameAction("choose", (start, end), thought or (start, end))


TIME = FrameAction("time", (83,), (), "", 40)
END = FrameAction("answer", answer="x")


@pytest.mark.parametrize(
    ("actions", "fault"),
    [
        ([END], ""),
        ([choose(3, 9), END], ""),
        ([choose(3, 9, 1, 3, 9), END], ""),
        ([choose(3, 9, 9, 3), END], "thought"),
        ([choose(3, 9, 3), END], "thought"),
        ([FrameAction("choose", (3, 9)), END], "thought"),
        ([choose(3, 9), choose(30, 40), END], ""),
        ([choose(3, 9), choose(30, 40), choose(4, 8)], "repeated range"),
        ([choose(3, 9), choose(5, 9)], ""),
        ([choose(9, 3)], "outside"),
        ([choose(90, 100)], "outside"),
        ([choose(90, 99)], ""),
        ([TIME, choose(35, 45), END], ""),
        ([TIME, choose(40, 45), END], ""),
        ([TIME, choose(41, 45), END], "wrong range"),
        ([TIME, END], "unused time"),
        ([TIME], "unused time"),
        ([TIME, choose(35, 45), TIME, choose(20, 60)], "repeated time"),
        ([FrameAction("time", (83,)), choose(35, 45)], "wrong range"),
        ([FrameAction("none"), END], "form"),
        ([choose(3, 9), FrameAction("none"), END], "form"),
    ],
)
def test_the_consistency_of_a_table(actions, fault):
    assert inconsistency(actions, 100) == fault


@pytest.mark.parametrize(
    ("counts", "rewards"),  # released, paper, outcome, unconditional, format
    [
        (FrameCounts(True, "", True, True, True, 0), (1.52, 1.2, 1, 1.52, 1.5)),
        (FrameCounts(True, "", True, True, False, 0), (1.02, 1, 1, 1.02, 1.5)),
        (FrameCounts(True, "", False, False, True, 0), (1, 1, 1, 1, 1.5)),
        (FrameCounts(False, "", True, True, True, 0), (0, 0, 0, 0.52, 0.5)),
        (FrameCounts(True, "thought", True, True, True, 1), (0, 0, 1, 1.52, 1)),
    ],
)
def test_rewards_of_a_table(counts, rewards):
    for (reward, bounds), expected in zip(FRAME_REWARDS.values(), rewards):
        total = sum(reward(counts).values())
        assert total == pytest.approx(expected) and bounds[0] <= total <= bounds[1]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<think>a</think><action>output answer: the red circle</action>", "answer"),
        (" <think>a</think>\n<action>\nchoose frames between 3 and 9 </action>\n", "choose"),
        ("<think>a</think><action>get frame number at time 01:23</action>", "time"),
        ("<think>a</think><action>get frame number at time 01:99</action>", "none"),
        ("<think>a</think><think>b</think><action>output answer: x</action>", "none"),
        ("<action>output answer: x</action>", "none"),
        ("<think>a</think><action>choose frames between 3 and</action>", "none"),
        ("<think>a</think><action>choose frames between 1.5 and 3</action>", "none"),
        ("<think>a</think><action>choose frames between NaN and 3</action>", "none"),
        ("<think>a</think><action>output answer:</action>", "none"),
        ("<think>" * 3000, "none"),
        ("<think>" + "1 " * 100_000, "none"),
    ],
)
def test_turns_are_read(text, kind):
    assert read_action(text).kind == kind


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("choose frames between 9 and 3", "no range within 0 to 159"),
        ("choose frames between -4 and 3", "no range"),
        ("choose frames between 5 and 160", "no range"),
        ("choose frames between 5 and 999999999", "no range"),
        ("get frame number at time 9999:59", "the video ends at"),
        ("look", "Invalid action"),
    ],
)
def test_hostile_actions_are_answered(action: str, message: str):
    env = video_env()
    (reply,), reward, terminated, _, info = env.step(turn_text("I try.", action))
    assert message in reply.text and not reply.images and reward == 0 and not terminated
    assert info["fault"] in ("outside", "thought", "unused time", "form")


def test_a_time_is_answered_by_its_frame():
    env = video_env(kinds=["time"])
    seconds = env.question.seconds
    assert seconds is not None
    action = f"get frame number at time {clock_text(seconds)}"
    (reply,), *_ = env.step(turn_text("I need it.", action))
    assert reply.text.endswith(f"is: {int(seconds * env.video.rate)}.")


def test_without_a_choice_the_answer_is_the_only_action():
    env = video_env(choose=False, opening_frames=16)
    (reply,), *_ = env.step(turn_text("20 60", "choose frames between 20 and 60"))
    assert "Invalid action" in reply.text and not reply.images


def test_frames_at_once_may_be_one_video():
    """The opening and a choice; a choice of one frame is an image."""
    env, frames = video_env(3, opening_frames=4), video_env(3, opening_frames=4, as_video=True)
    choices = ("choose frames between 10 and 40", "choose frames between 10 and 12")
    opening, _ = frames.reset(seed=3)
    messages = [(opening[0], env.reset(seed=3)[0][0])]
    texts = [turn_text(f"I look between frames {c[22:]}.", c) for c in choices]
    messages += [(frames.step(text)[0][0], env.step(text)[0][0]) for text in texts]
    for message, expected in messages:
        pixels = [ImageReader().pixels(part) for part in expected.images]
        numbers = [int(x) for x in re.findall(r"frame (\d+):", expected.text)]
        (part,) = message.images
        if len(pixels) == 1:
            assert message == expected
            continue
        assert isinstance(part, VideoPart)
        video = read_video(ImageReader(), part)
        assert np.array_equal(np.stack(video.frames), np.stack(pixels))
        np.testing.assert_allclose(video.seconds, np.array(numbers) / env.video.rate)
        assert message.text.startswith(f"frames {', '.join(map(str, numbers))}:")
    assert frames.images_shown == env.images_shown and messages[-1][0] == messages[-1][1]
