"""What a policy looked at: a PNG with a row of images for each of some episodes of a run.

Below each image stands what the policy wrote next; a green line marks episodes that succeeded.

    python benchmarks/studies/image_episodes.py runs/vision-codevision-codevision out.png
"""

import argparse
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from agentrl_jax.envs.vision.images import GLYPH_HEIGHT, Image, blank, resized, write
from agentrl_jax.images.loading import ImageReader, pillow
from agentrl_jax.messages import Message
from agentrl_jax.storage import trajectory_log
from agentrl_jax.trajectories import Trajectory

SIDE, LINES = 168, 7  # pixels of an image; lines of text below it
COLUMN = SIDE + 12
ROW = SIDE + LINES * GLYPH_HEIGHT + 16
CHARACTERS = COLUMN // 6 - 1
GREEN, RED = (44, 160, 44), (214, 39, 40)


def images_of(messages: Sequence[Message]) -> list[Image]:
    """The images of messages, the longer side `SIDE` pixels."""
    scaled = []
    for part in (part for message in messages for part in message.images):
        pixels = ImageReader().pixels(part)
        scale = SIDE / max(pixels.shape[:2])
        height, width = (round(side * scale) for side in pixels.shape[:2])
        scaled.append(resized(pixels, width, height))
    return scaled


def sheet(trajectory: Trajectory, columns: int) -> Image:
    """An episode as a row of images."""
    row = blank(columns * COLUMN, ROW)
    row[:3] = GREEN if trajectory.succeeded else RED
    column, messages = 0, trajectory.opening
    for turn in trajectory.turns:
        images = images_of(messages)
        for n, image in enumerate(images or [blank(1, 1)]):
            if column == columns:
                return row
            left = column * COLUMN + 6
            row[8 : 8 + image.shape[0], left : left + image.shape[1]] = image
            if n == max(len(images), 1) - 1:
                # the bitmap font has the characters of Latin-1
                text = turn.action.full_text.encode("latin-1", "replace").decode("latin-1")
                lines = textwrap.wrap(text, CHARACTERS)[:LINES]
                for i, line in enumerate(lines):
                    write(row, left, 12 + SIDE + i * GLYPH_HEIGHT, line)
            column += 1
        messages = turn.observation
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("png", type=Path)
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--columns", type=int, default=4)
    flags = parser.parse_args()
    newest: list[Trajectory] = []
    for record in trajectory_log.read(flags.run_dir / trajectory_log.FOLDER):
        newest = [*newest, record.trajectory][-64:]
    if not newest:
        raise SystemExit(f"error: the log of {flags.run_dir} has no episodes")
    episodes = sorted(newest, key=lambda t: (-len(t.turns), not t.succeeded))[: flags.episodes]
    rows = np.concatenate([sheet(episode, flags.columns) for episode in episodes])
    picture = pillow().fromarray(rows).quantize(64)
    picture.save(flags.png, optimize=True)
    print(f"{flags.png}: {len(episodes)} episodes, {flags.png.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
