"""The experiments on text worlds: where the packages are installed demonstrations fit the sizes."""

from importlib import import_module
from typing import Any

import pytest
from support.demonstrated import demonstrations

PACKAGES = {"textworld_guide": "textworld", "alfworld_gigpo": "alfworld"}


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKAGES)
def test_demonstrations_fit_the_sizes(name: str):
    pytest.importorskip(PACKAGES[name], reason=f"{PACKAGES[name]} is not installed")
    experiment = import_module(f"agentrl_jax.configs.{name}").get_config()
    method: Any = experiment.phases["rl"].algorithm
    lengths = [trajectory.calls[-1].length for trajectory in demonstrations(experiment, 60)]
    assert max(lengths) <= method.bin_length == experiment.engine.positions
    assert experiment.phases["sft"].algorithm.bin_length == method.bin_length
