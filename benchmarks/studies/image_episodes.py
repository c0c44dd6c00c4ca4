"""What a policy looked at: a PNG with a row of images for each of some episodes.

Boxes and points that an action names are drawn onto the image that it names; below each image
stands what the policy wrote next, and a green line marks episodes that succeeded.

    python benchmarks/studies/image_episodes.py runs/vision-codevision-codevision out.png
    python benchmarks/studies/image_episodes.py experts docs/vision_looks.png

`experts` are the scripted experts of ViGoRL, MGPO and CodeVision instead of a run.
"""

import argparse
from pathlib import Path
from typing import Any

from agentrl_jax.launch.episode_sheet import save_sheet
from agentrl_jax.launch.players import play_episodes
from agentrl_jax.storage import trajectory_log
from agentrl_jax.training.config import EnvironmentConfig
from agentrl_jax.trajectories import Trajectory

EXPERTS: dict[str, tuple[dict[str, Any], int]] = {  # options and seed
    "agentrl/SceneQuestions-v0": ({"protocol": "vigorl", "kinds": ("compare",)}, 0),
    "agentrl/RegionQuestions-v0": ({"kinds": ("read",)}, 0),
    "agentrl/TransformedImages-v0": ({"corruptions": ("rotate_90",), "kinds": ("read",)}, 0),
}


def longest_episodes(run_dir: Path, count: int) -> list[Trajectory]:
    """The longest of a run's newest episodes."""
    newest: list[Trajectory] = []
    for record in trajectory_log.read(run_dir / trajectory_log.FOLDER):
        newest = [*newest, record.trajectory][-64:]
    if not newest:
        raise SystemExit(f"error: the log of {run_dir} has no episodes")
    return sorted(newest, key=lambda t: (-len(t.turns), not t.succeeded))[:count]


def expert_episodes() -> list[Trajectory]:
    """One of each environment of `EXPERTS`."""
    return [
        trajectory
        for name, (options, seed) in EXPERTS.items()
        for trajectory in play_episodes(
            EnvironmentConfig(name, {"instruction": False, **options}, workers=0),
            "expert", None, 1, seed, 1.0,
        )
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="a run folder, or experts")
    parser.add_argument("png", type=Path)
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--columns", type=int, default=0, help="images of a row; 0: all")
    flags = parser.parse_args()
    if flags.source == "experts":
        episodes = expert_episodes()
    else:
        episodes = longest_episodes(Path(flags.source), flags.episodes)
    size = save_sheet(episodes, flags.png, flags.columns)
    print(f"{flags.png}: {len(episodes)} episodes, {size:,} bytes")


if __name__ == "__main__":
    main()
