"""The tokenizer of a run folder, made once from what the run trains on."""

from pathlib import Path
from typing import Any

from agentrl_jax.storage.digests import add_digests
from agentrl_jax.storage.files import atomic_folder
from agentrl_jax.training import demonstrations
from agentrl_jax.training.builders import load_tokenizer
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.pretraining import TextDocuments
from agentrl_jax.trajectories import Trajectory

MAX_TRAINING_TEXTS = 2000  # demonstrations, and documents of a phase, that it is trained on


def ensure_tokenizer(
    experiment: Experiment, run_dir: Path, demonstrations_path: Path | None
) -> Any:
    """The run's tokenizer; made from demonstrations and documents where there is none."""
    folder = run_dir / "tokenizer"
    if not folder.exists():
        trajectories: list[Trajectory] = []
        if demonstrations_path is not None:
            trajectories = demonstrations.read(demonstrations_path, limit=MAX_TRAINING_TEXTS)
        texts = sorted(set(demonstrations.message_texts(trajectories)))
        for phase in experiment.phases.values():
            if isinstance(phase.source, TextDocuments):
                texts += phase.source.first_texts(MAX_TRAINING_TEXTS)
        with atomic_folder(folder) as unfinished:
            experiment.tokenizer(texts).save_pretrained(unfinished)
            add_digests(unfinished)
    return load_tokenizer(folder)
