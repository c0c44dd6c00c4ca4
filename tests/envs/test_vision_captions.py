"""`SceneCaptions`: captions are those of the pixels, and lines are scored one by one."""

import numpy as np
import pytest
from support.env_episodes import play_scripted_episode

from agentrl_jax.environment import make
from agentrl_jax.envs.vision.images import COLORS
from agentrl_jax.envs.vision.scene_captions import (
    CaptionLine,
    SceneCaptions,
    caption_score,
    read_caption,
)
from agentrl_jax.envs.vision.scenes import CORNERS, OBJECT
from agentrl_jax.images.loading import ImageReader

RED = CaptionLine("red circle", 10, 20)
PART = CaptionLine("red circle", 10, 20, 3)


def caption_env(seed: int = 0, **options) -> SceneCaptions:
    env = make("agentrl/SceneCaptions-v0", options)
    assert isinstance(env, SceneCaptions)
    env.reset(seed=seed)
    return env


@pytest.mark.parametrize("kind", ["scene", "part"])
def test_the_caption_is_that_of_the_pixels_that_are_shown(kind: str):
    for seed in range(12):
        env = caption_env(seed, kinds=[kind], view=448)
        opening, _ = env.reset(seed=seed)
        image = ImageReader().pixels(opening[0].images[0]).astype(int)
        lines = env.lines
        assert len(lines) == 12 if kind == "scene" else 1 <= len(lines) <= 4
        assert [line.y for line in lines] == sorted(line.y for line in lines)
        for line in lines:
            assert bool(line.dots) == (kind == "part")
            # Above the label, between the middle and the upper side.
            scale = 448 / max(env.seen.size)
            color = image[round(line.y - 5 * scale), line.x]
            nearest = min(COLORS, key=lambda name: np.abs(color - COLORS[name]).sum())
            assert nearest == line.name.split()[0]


def test_the_object_at_a_corner_is_nearer_to_it_than_any_other():
    corners = {}
    for seed in range(40):
        env = caption_env(seed, kinds=["corner"], view=448)
        opening, _ = env.reset(seed=seed)
        (line,), text = env.lines, opening[0].text
        corner = next(name for name in CORNERS if f"{name} corner" in text)
        corner_of_canvas = np.array((448 * ("right" in corner), 448 * ("lower" in corner)))
        distances = {
            item.name: np.linalg.norm((item.x + OBJECT / 2, item.y + OBJECT / 2) - corner_of_canvas)
            for item in env.scene.objects
        }
        assert line.name == min(distances, key=lambda name: distances[name])
        corners[corner] = line.name
        assert env.step(str(line))[4]["success"]
    assert corners.keys() == {*CORNERS}


def test_every_right_line_counts_once():
    other = CaptionLine("blue square", 30, 30)
    near, far = CaptionLine("red circle", 13, 17), CaptionLine("red circle", 14, 20)
    assert caption_score([near], [RED]) == 1
    assert caption_score([far], [RED]) == 0
    assert caption_score([RED, RED], [RED]) == 0.5  # repetitions are wrong lines
    assert caption_score([RED], [RED, other]) == 0.5
    assert caption_score([], [RED]) == caption_score([RED], []) == 0
    assert caption_score([RED], [PART]) == 0  # the dots are missing
    assert caption_score([CaptionLine("red circle", 10, 20, 2)], [PART]) == 0


def test_a_written_caption_is_read_back_and_other_lines_are_not():
    text = f"{RED}\n{PART}\n"
    assert read_caption(text) == [RED, PART]
    bad = ("red circle", "red circle (1, -2)", "red circle (1, 2), dots", f"{RED}.", "(1, 2)", "")
    assert read_caption("\n".join(bad)) == []
    assert len(read_caption("\n".join([str(RED)] * 1000))) == 40


def test_the_expert_is_right_and_a_bad_caption_ends_the_episode():
    for options in ({}, {"split": "held_out"}, {"size": 240, "view": 56, "objects": 6}):
        env = make("agentrl/SceneCaptions-v0", options)
        episode = play_scripted_episode(env, "expert", 3)
        assert episode.success and episode.total_reward == 1 and len(episode.turns) == 1
    env = caption_env()
    _, reward, terminated, _, info = env.step("I see nothing.")
    assert (reward, terminated, info["success"], info["formatted"]) == (0, True, False, False)
    assert info["gold"].count("\n") == len(env.lines) - 1
