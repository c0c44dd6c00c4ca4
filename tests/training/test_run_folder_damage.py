"""A run whose newest checkpoints are damaged repeats their steps and equals an undamaged one."""

import dataclasses
from pathlib import Path

import pytest
from support import letters_config

from agentrl_jax.errors import UserError
from agentrl_jax.models.tokenizers import CharacterTokenizer
from agentrl_jax.storage import jsonl
from agentrl_jax.storage.digests import add_digests
from agentrl_jax.training import loop
from agentrl_jax.training.builders import load_tokenizer
from agentrl_jax.training.config import EvaluationConfig, Experiment


def experiment() -> Experiment:
    """Two phases of three steps, with checkpoints of the steps 2 and 3."""
    config = letters_config.get_config()
    sft = config.phases["sft"]
    config.phases = {"sft": sft, "polish": dataclasses.replace(sft, label="polished")}
    config.evaluation = EvaluationConfig(episodes=0, players=())
    return config


def metrics(run_dir: Path) -> list[dict]:
    """The lines of metrics.jsonl in the order of phases and steps, without wall-clock times."""
    lines = [line for _, line in jsonl.read_lines(run_dir / "metrics.jsonl")]
    lines.sort(key=lambda line: (line["phase"] == "polish", line["step"]))
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines]


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.slow
def test_the_steps_of_damaged_checkpoints_are_repeated_exactly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run_dir = tmp_path / "run"
    loop.train(experiment(), run_dir)
    before = metrics(run_dir)
    for phase in ("sft", "polish"):
        flip_bit(max((run_dir / "checkpoints" / phase / "3").rglob("d/*"), key=file_size))
    capsys.readouterr()
    loop.train(experiment(), run_dir)
    out = capsys.readouterr().out
    for phase in ("sft", "polish"):
        assert f"{phase}/3 is damaged (state/" in out
    assert len(before) == 6 and metrics(run_dir) == before
    # A line of a step before the checkpoint is gone.
    flip_bit(max((run_dir / "checkpoints" / "polish" / "3").rglob("d/*"), key=file_size))
    records = (run_dir / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run_dir / "metrics.jsonl").write_text("".join(records[1:]))
    with pytest.raises(UserError, match=r"metrics.jsonl has 4 lines up to step 2, of 5 that were"):
        loop.train(experiment(), run_dir)
    loop.train(experiment(), run_dir, damaged_records="set_aside")
    assert "the run goes on without them" in capsys.readouterr().out
    assert metrics(run_dir) == before[1:]


def file_size(path: Path) -> int:
    return path.stat().st_size


def test_a_damaged_tokenizer_is_refused(tmp_path: Path):
    CharacterTokenizer()(["ab"]).save_pretrained(tmp_path / "tokenizer")
    add_digests(tmp_path / "tokenizer")
    assert len(load_tokenizer(tmp_path / "tokenizer"))
    flip_bit(tmp_path / "tokenizer" / "tokenizer.json")
    with pytest.raises(UserError, match=r"tokenizer.json differs from what was written"):
        load_tokenizer(tmp_path / "tokenizer")
