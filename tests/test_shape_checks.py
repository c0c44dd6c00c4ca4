"""The tests check the shapes that functions annotate."""

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError
from support.shape_checks import modules_with_shapes

from agentrl_jax.algorithms.losses.kl import kl_k3


def test_a_wrong_shape_raises():
    assert kl_k3(jnp.zeros(3), jnp.zeros(3)).shape == (3,)
    with pytest.raises(TypeCheckError):
        kl_k3(jnp.zeros(3), jnp.zeros(2))


def test_every_folder_with_device_code_is_checked():
    modules = modules_with_shapes()
    assert len(modules) == len(set(modules)) > 40
    for name in ("learner.learner", "inference.sampling", "models.rope", "algorithms.losses.ppo"):
        assert f"agentrl_jax.{name}" in modules
