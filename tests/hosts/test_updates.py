"""The update of several real processes is that of one process on the same groups."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from many import HERE, start, succeed

CASES: dict[str, tuple[int, int, dict[str, Any]]] = {  # processes, devices of each, what they do
    "2 processes": (2, 1, {"groups": 5}),
    "4 processes": (4, 1, {"groups": 9, "aggregation": "turns", "kl": 0.1, "settings": {"minibatches": 2}}),
    "one process without a group": (2, 1, {"groups": 1}),
    "three without a group": (4, 1, {"groups": 1, "aggregation": "trajectories"}),
    "fsdp across processes": (2, 2, {"groups": 6, "mesh": {"data": 1, "fsdp": 4}, "settings": {"rescore": True}}),
    "tensor across processes": (2, 1, {"groups": 5, "policy": "decoder", "mesh": {"data": 1, "tensor": 2}}),
    "a critic, a filter over all groups, a mismatch": (2, 1, {"groups": 7, "critic": True}),
    "teams": (4, 1, {"groups": 7, "mesh": {"data": 2, "tensor": 2}, "settings": {"minibatches": 2, "rescore": True}}),
}


def results(folder: Path, count: int, devices: int, case: dict[str, Any]) -> list[dict[str, np.ndarray]]:
    folder.mkdir()
    (folder / "case.json").write_text(json.dumps(case))
    succeed(start(count, [HERE / "updates.py", folder / "case.json", folder / "result"], devices))
    return [dict(np.load(folder / f"result.{p}.npz")) for p in range(count)]


@pytest.mark.parametrize("name", [name if name == "2 processes" else pytest.param(name, marks=pytest.mark.slow) for name in CASES])
def test_several_processes_learn_what_one_does(name: str, tmp_path: Path):
    count, devices, case = CASES[name]
    (alone,) = results(tmp_path / "one", 1, 1, {**case, "mesh": {}})
    together = results(tmp_path / "many", count, devices, case)
    for found in together:
        assert found.keys() == alone.keys()
        for key, value in alone.items():
            np.testing.assert_allclose(found[key], value, atol=1e-5, rtol=1e-5, err_msg=key)
    steps = [alone[f"skipped of step {step}"] for step in range(3)]
    assert 0.0 in steps, "the case never updates"
