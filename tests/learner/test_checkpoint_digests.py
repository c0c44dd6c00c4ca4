"""A damaged checkpoint is never loaded: the one before is, and the damaged file is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.fixtures import on_first_device

from agentrl_jax.errors import UserError
from agentrl_jax.learner.checkpoint import (
    PhaseCheckpointer,
    load_host_state,
    load_params,
    restore_params,
    save_params,
)
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.storage.digests import DIGESTS_FILE


def state_at(step: int) -> TrainState:
    params = {"kernel": jnp.full((64, 8), float(step)), "bias": jnp.arange(8.0) + step}
    return TrainState(
        step=jnp.int32(step), params=params, opt_state=(jnp.zeros(3),), key=jax.random.key(step)
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Checkpoints of the steps 1 and 2."""
    folder = tmp_path / "rl"
    checkpointer = PhaseCheckpointer(folder)
    for step in (1, 2):
        checkpointer.save(step, state_at(step), {"step": step})
    checkpointer.close()
    return folder


def largest_file(folder: Path) -> Path:
    """That of the arrays."""
    return max(folder.rglob("d/*"), key=lambda path: path.stat().st_size)


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def flip_bit_of_weights(checkpoint: Path) -> None:
    flip_bit(largest_file(checkpoint))


def truncate(checkpoint: Path) -> None:
    path = largest_file(checkpoint)
    path.write_bytes(path.read_bytes()[:-1])


def delete_file(checkpoint: Path) -> None:
    (checkpoint / "host" / "metadata").unlink()


def tear(checkpoint: Path) -> None:
    (checkpoint / DIGESTS_FILE).unlink()


def damage_digests(checkpoint: Path) -> None:
    (checkpoint / DIGESTS_FILE).write_text("{")


DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (flip_bit_of_weights, "differs from what was written"),
    (truncate, "bytes instead of"),
    (delete_file, "host/metadata is missing"),
    (tear, "its save was not finished"),
    (damage_digests, "digests.json is damaged"),
]


def load_like(folder: Path) -> Any:
    like = jax.eval_shape(lambda: state_at(0).params)
    return load_params(folder, like, on_first_device(like))


@pytest.mark.parametrize(("damage", "reason"), DAMAGES, ids=[d.__name__ for d, _ in DAMAGES])
def test_training_goes_on_from_the_older_checkpoint_and_saves_the_steps_again(
    folder: Path, damage: Callable[[Path], None], reason: str
):
    damage(folder / "2")
    lines: list[str] = []
    checkpointer = PhaseCheckpointer(folder, log=lines.append)
    assert checkpointer.latest_step == 1
    restored, host = checkpointer.restore(state_at(0))
    assert host == {"step": 1} and float(restored.params["bias"][0]) == 1.0
    (line,) = lines
    assert reason in line and str(folder / "2") in line and "step 1 is used instead" in line
    checkpointer.save(2, state_at(20), {"step": 20})
    checkpointer.close()
    assert float(load_like(folder)["bias"][0]) == 20.0
    assert sorted(path.name for path in folder.with_name("rl.damaged").iterdir()) == ["2"]


def test_a_damaged_checkpoint_is_not_evaluated(folder: Path, capsys: pytest.CaptureFixture[str]):
    flip_bit_of_weights(folder / "2")
    np.testing.assert_array_equal(load_like(folder)["kernel"], np.full((64, 8), 1.0))
    assert load_host_state(folder) == {"step": 1}
    assert capsys.readouterr().err.count("the one of step 1 is used instead") == 2
    assert (folder / "2").is_dir()  # a reader moves nothing


def test_without_an_intact_checkpoint_there_is_one_sentence(folder: Path):
    truncate(folder / "1")
    flip_bit_of_weights(folder / "2")
    for read in (PhaseCheckpointer, load_host_state):
        with pytest.raises(UserError, match=r"every checkpoint in .* is damaged \(step 2: state/"):
            read(folder)
    assert (folder / "2").is_dir()


def test_checkpoints_of_earlier_versions_are_read_and_said_to_be_unchecked(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    for step in "12":
        tear(folder / step)
    assert load_host_state(folder) == {"step": 2}
    assert "written by an earlier version without digests" in capsys.readouterr().err


def test_damaged_parameters_are_refused(tmp_path: Path):
    save_params(tmp_path / "7", state_at(7).params)
    assert float(restore_params(tmp_path / "7", state_at(0).params)["bias"][0]) == 7.0
    flip_bit_of_weights(tmp_path / "7")
    with pytest.raises(UserError, match="differs from what was written"):
        restore_params(tmp_path / "7", state_at(0).params)
