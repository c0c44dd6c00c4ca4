"""Several sides of a comparison in one run."""

import pytest

from agentrl_jax.configs import search_igpo, search_methods, search_selfplay, vision_mgpo
from agentrl_jax.configs.small import from_one_start
from agentrl_jax.errors import UserError
from agentrl_jax.training.mixture import Mixture
from agentrl_jax.training.sources import Rollouts


def test_sides_start_from_the_same_weights_and_keep_their_algorithms():
    config = search_methods.get_config()
    base = search_igpo.get_config("base").phases["rl"]
    assert list(config.phases) == [
        "sft", "igpo_base", "igpo", "arpo_base", "arpo", "aepo"
    ]  # fmt: skip
    assert all(phase.start == "sft" for name, phase in config.phases.items() if name != "sft")
    assert config.phases["igpo_base"].algorithm == base.algorithm
    assert config.environment == search_igpo.get_config().environment


def test_sides_with_different_environments_have_their_own_tasks_and_evaluations():
    sides = {"base": vision_mgpo.get_config("one_turn"), "method": vision_mgpo.get_config()}
    config = from_one_start(**sides)
    assert vision_mgpo.get_config("pair") == config
    options = {"base": vision_mgpo.ONE_TURN, "method": vision_mgpo.TWO_TURNS}
    specs = {name: vision_mgpo.TASK.spec(**options[name]) for name in sides}
    assert config.evaluation.environments == specs
    for name, spec in specs.items():
        source = config.phases[name].source
        assert isinstance(source, Rollouts) and source.task_source == Mixture({name: spec})


def test_sides_that_name_other_tasks_are_refused():
    sides = {"base": search_igpo.get_config("base"), "method": search_selfplay.get_config()}
    with pytest.raises(UserError, match="that of method is"):
        from_one_start(**sides)
