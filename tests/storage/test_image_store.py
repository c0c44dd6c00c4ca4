"""Images of a trajectory log: each is one file, and what is lost or damaged is named."""

import dataclasses
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.images.loading import image_part
from agentrl_jax.images.videos import video_part
from agentrl_jax.messages import ImagePart, Message, TextPart, assistant, user
from agentrl_jax.storage import trajectory_log
from agentrl_jax.storage.trajectory_recorder import TrajectoryRecorder
from agentrl_jax.trajectories import Call, Sampling, Trajectory, Turn
from agentrl_jax.trajectory_record import TrajectoryRecord


def picture(seed: int, side: int = 8) -> ImagePart:
    return image_part(np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8))


def trajectory(*images: ImagePart) -> Trajectory:
    """Each image is in the opening, in an observation and in two calls."""
    logp = np.ones(1, np.float32)
    call = Call(
        np.ones(9, np.int32), np.ones(1, np.int32), logp, np.ones(1, np.int32), Sampling(), "stop",
        image_spans=tuple((i, i + 1) for i in range(len(images))), images=images,
    )  # fmt: skip
    turn = Turn((call, call), assistant("a"), (Message("user", (TextPart("b"), *images)),), 1.0)
    return Trajectory((user("c"), Message("user", images)), (turn,), task="t")


def stored(folder: Path) -> list[Path]:
    return sorted((folder / "images").iterdir())


def test_an_image_is_stored_once(tmp_path: Path):
    path, image = tmp_path / "log.jsonl", picture(0, 200)
    trajectory_log.write(path, [trajectory(image), trajectory(image, picture(1))], 0, "rl")
    assert len(stored(tmp_path)) == 2
    assert path.stat().st_size < 5000 < len(image.url)
    assert b"base64" not in path.read_bytes()
    first, second = (record.trajectory for record in trajectory_log.read(path))
    assert first.opening[1].images == first.calls[0].images == (image,)
    assert second.calls[1].images == (image, picture(1))
    assert first.calls[0].images[0].url is second.opening[1].images[0].url  # shared in memory


def test_a_video_is_stored_once_for_all_of_its_spans(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    video = video_part(
        list(np.random.default_rng(0).integers(0, 256, (4, 9, 9, 3), np.uint8)), range(4)
    )
    patches = tuple(dataclasses.replace(video, temporal_patch=i) for i in range(2))
    with_video = trajectory(picture(0), video)
    call = dataclasses.replace(with_video.calls[0], image_spans=((0, 1), (1, 2)), images=patches)
    turn = dataclasses.replace(with_video.turns[0], calls=(call,))
    trajectory_log.write(path, [dataclasses.replace(with_video, turns=(turn,))], 0, "rl")
    assert len(stored(tmp_path)) == 2 and b"base64" not in path.read_bytes()
    (record,) = trajectory_log.read(path)
    assert record.trajectory.calls[0].images == patches
    assert record.trajectory.opening[1].images == (picture(0), video)


def test_a_missing_or_damaged_image_is_named(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    trajectory_log.write(path, [trajectory(picture(0))], 0, "rl")
    (file,) = stored(tmp_path)
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"x")
    with pytest.raises(UserError, match=f"the image {file} is damaged"):
        list(trajectory_log.read(path))
    file.unlink()
    with pytest.raises(UserError, match=f"the image {file} of the trajectory log cannot be read"):
        list(trajectory_log.read(path))


def test_a_log_moves_with_its_images(tmp_path: Path):
    (tmp_path / "a").mkdir()
    trajectory_log.write(tmp_path / "a" / "log.jsonl", [trajectory(picture(0))], 0, "rl")
    shutil.move(tmp_path / "a", tmp_path / "b")
    (record,) = trajectory_log.read(tmp_path / "b" / "log.jsonl")
    assert record.trajectory.opening[1].images == (picture(0),)


def test_images_count_for_the_budget_and_go_with_their_segments(tmp_path: Path):
    """Each segment is longer than the budget: of three, the newest stays, with its image."""
    lines: list[str] = []
    for i in range(3):
        recorder = TrajectoryRecorder(tmp_path, 0, max_bytes=100, log=lines.append)
        recorder._segments._segment_bytes = 1
        recorder.put([TrajectoryRecord("rl", i, trajectory(picture(i)))])
        recorder.flush()
        for path in stored(tmp_path / trajectory_log.FOLDER):
            os.utime(path, (time.time() - 3600, time.time() - 3600))
        recorder.sync()
        recorder.close()
    assert len(stored(tmp_path / trajectory_log.FOLDER)) == 1 and len(lines) == 2
    (record,) = trajectory_log.read(tmp_path / trajectory_log.FOLDER)
    assert record.step == 2 and record.trajectory.calls[0].images == (picture(2),)


def test_the_viewer_shows_stored_images(tmp_path: Path):
    pytest.importorskip("starlette", reason="the viewer's server")
    from agentrl_jax.viewer.run_view import RunView

    (tmp_path / "config.json").write_text("{}")
    recorder = TrajectoryRecorder(tmp_path, 0, max_bytes=10**6, log=print)
    recorder.put([TrajectoryRecord("rl", 0, trajectory(picture(0), picture(1)))])
    recorder.close()
    lost, _ = stored(tmp_path / trajectory_log.FOLDER)
    lost.unlink()
    view = RunView(tmp_path)
    view.index.refresh()
    episode = view.episode(view.index.table().episode_id(0))
    assert episode is not None
    urls = [part["image_url"]["url"] for part in episode["trajectory"]["opening"][1]["content"]]
    are_restored = [picture(0).url in urls, picture(1).url in urls]
    assert sorted(are_restored) == [False, True] and sum(lost.name in url for url in urls) == 1
