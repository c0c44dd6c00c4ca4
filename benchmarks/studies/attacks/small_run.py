"""The smallest run: fine-tuning and GRPO on the letter task, with many checkpoints and segments."""

import functools
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

from support.small_runs import rollout_source, small_experiment

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.storage import trajectory_recorder
from agentrl_jax.storage.segments import SegmentWriter
from agentrl_jax.training import loop
from agentrl_jax.training.config import Experiment, Phase
from agentrl_jax.training.sources import Demonstrations

SEGMENT_BYTES = 6000  # a step of `experiment` writes more


def experiment(rl_steps: int = 5) -> Experiment:
    """Two steps of fine-tuning and a few of GRPO, with a checkpoint after every second one."""
    config = small_experiment(rollout_source(2, 2), steps=rl_steps, checkpoint_every=2)
    cloning = BehaviorCloningConfig(optimizer=AdamWConfig(1e-2), bin_length=32, microbatch=8)
    sft = Phase("SFT", Demonstrations(4), cloning, steps=2, checkpoint_every=1)
    config.phases = {"sft": sft, **config.phases}
    config.evaluation.episodes = 2
    return config


def use_small_segments() -> None:
    """The trajectory log goes on to a new segment after every few lines."""
    trajectory_recorder.SegmentWriter = functools.partial(  # type: ignore[misc,assignment]
        SegmentWriter, segment_bytes=SEGMENT_BYTES
    )


WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FILE_EVENTS = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.utime")


class FileEvents:
    """Writes and renames below a folder, in the order in which Python makes them.

    At the event with the number `last` of a kind this process sends itself a signal, before what
    the event announces is done.
    """

    def __init__(
        self, folder: Path, kind: str, last: int, number: signal.Signals, report: Path
    ) -> None:
        self._folder, self._kind, self._last, self._signal = os.fspath(folder), kind, last, number
        self._report, self._count = open(report, "a", encoding="utf-8"), 0  # noqa: SIM115
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        is_write = event == "open" and arguments[2] is not None and arguments[2] & WRITES
        if not (is_write or event in FILE_EVENTS):
            return
        path = arguments[0]
        if not isinstance(path, str | os.PathLike):
            return
        name = os.fspath(path)
        if not isinstance(name, str) or not name.startswith(self._folder + os.sep):
            return
        kind = kind_of(event, os.path.relpath(name, self._folder))
        self._report.write(kind + "\n")
        self._report.flush()
        self._count += kind == self._kind
        if kind == self._kind and self._count == self._last:
            os.kill(os.getpid(), self._signal)


def kind_of(event: str, path: str) -> str:
    """A name for what is written, without numbers: "os.rename checkpoints state.tmp"."""
    name = re.sub(r"[0-9]+", "", path.replace("orbax-checkpoint-", ""))
    parts = re.sub(r"[.][.]", ".", name).split("/")
    return f"{event} {parts[0]}" + (f" {parts[-1]}" if len(parts) > 1 else "")


def main(run_dir: str, kind: str, last: str, number: str, report: str) -> None:
    """Train, and die at an event of a kind; 0: at none."""
    from agentrl_jax.errors import Interrupted
    from agentrl_jax.storage import trust

    trust.trust("support")
    use_small_segments()
    FileEvents(Path(run_dir), kind, int(last), signal.Signals(int(number)), Path(report))
    try:
        loop.train(experiment(), Path(run_dir), quiet=True)
    except Interrupted:
        sys.exit(130)
    finally:
        print(f"{sum(os.times()[:4]):.1f} s of CPU")


if __name__ == "__main__":
    main(*sys.argv[1:])
