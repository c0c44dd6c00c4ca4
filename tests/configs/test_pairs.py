"""Several sides of a comparison in one run."""

import pytest

from agentrl_jax.configs import search_igpo, search_methods, search_planner
from agentrl_jax.configs.small import from_one_start
from agentrl_jax.errors import UserError


def test_sides_start_from_the_same_weights_and_keep_their_algorithms():
    config = search_methods.get_config()
    base = search_igpo.get_config("base").phases["rl"]
    assert list(config.phases) == [
        "sft", "igpo_base", "igpo", "arpo_base", "arpo", "aepo"
    ]  # fmt: skip
    assert all(phase.start == "sft" for name, phase in config.phases.items() if name != "sft")
    assert config.phases["igpo_base"].algorithm == base.algorithm
    assert config.environment == search_igpo.get_config().environment


def test_sides_with_different_environments_are_refused():
    sides = {"base": search_igpo.get_config("base"), "method": search_planner.get_config()}
    with pytest.raises(UserError, match="have one environment; that of base is"):
        from_one_start(**sides)
