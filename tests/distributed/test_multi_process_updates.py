"""The update of several real processes equals that of one process on the same groups."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fixtures import device_mesh
from support.processes import SUPPORT, assert_success, start_processes
from support.update_process import STEPS, train_steps

from agentrl_jax.distributed.process_group import ProcessGroup

# The devices of two hosts in turn, as hosts of a v5e:8x8 and of a v5p:4x4x4 follow each other.
INTERLEAVED = [0, 2, 1, 3]
# (processes, devices of each) -> cases that one start of processes runs one after the other.
CASES: dict[tuple[int, int], dict[str, dict[str, Any]]] = {
    (2, 1): {
        "plain": {"groups": 5},
        "one process without a group": {"groups": 1},
        "tensor across processes": {
            "groups": 5,
            "policy": "decoder",
            "mesh": {"data": 1, "tensor": 2},
        },
        "critic, global filter, mismatch": {"groups": 7, "critic": True},
    },
    (4, 1): {
        "minibatches, KL and turn weights": {
            "groups": 9,
            "aggregation": "turns",
            "kl": 0.1,
            "settings": {"minibatches": 2},
        },
        "three processes without a group": {"groups": 1, "aggregation": "trajectories"},
        "replica groups": {
            "groups": 7,
            "mesh": {"data": 2, "tensor": 2},
            "settings": {"minibatches": 2, "rescore": True},
        },
    },
    (2, 2): {
        "fsdp across processes": {
            "groups": 6,
            "mesh": {"data": 1, "fsdp": 4},
            "settings": {"rescore": True},
        },
        "interleaved hosts, fsdp": {
            "groups": 6,
            "mesh": {"data": 1, "fsdp": 4},
            "settings": {"rescore": True},
            "order": INTERLEAVED,
        },
        "interleaved hosts, a replica group": {
            "groups": 5,
            "policy": "decoder",
            "mesh": {"data": 2, "tensor": 2},
            "order": INTERLEAVED,
        },
    },
}


def assert_like_one_process(
    folder: Path, count: int, devices: int, cases: dict[str, dict[str, Any]]
) -> None:
    """Run the cases in processes, and each of them in this process on one device."""
    (folder / "cases.json").write_text(json.dumps(cases))
    command = [SUPPORT / "update_process.py", folder / "cases.json", folder]
    processes = start_processes(count, command, devices)
    expected = {
        name: train_steps(case, ProcessGroup(), device_mesh()) for name, case in cases.items()
    }
    assert_success(processes)
    for name, alone in expected.items():
        for p in range(count):
            together = dict(np.load(folder / f"{name}.{p}.npz"))
            assert together.keys() == alone.keys()
            for key, value in alone.items():
                np.testing.assert_allclose(
                    together[key], value, atol=1e-5, rtol=1e-5, err_msg=f"{name}: {key}"
                )
        skipped = [alone[f"skipped of step {step}"] for step in range(STEPS)]
        assert 0.0 in skipped, f"{name} never updates"


@pytest.mark.slow
@pytest.mark.parametrize(("count", "devices"), CASES)
def test_processes_on_any_mesh_learn_what_one_does(count: int, devices: int, tmp_path: Path):
    assert_like_one_process(tmp_path, count, devices, CASES[count, devices])
