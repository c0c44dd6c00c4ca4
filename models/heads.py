"""Heads on hidden states: V, Q over the vocabulary, and ensembles of either."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from agentrl_jax.distributed.sharding import is_logical_axes
from agentrl_jax.errors import UserError
from agentrl_jax.models.parameters import (
    Module,
    apply,
    compact,
    constant,
    fan_in,
    init_params,
    logical_axes,
    weight_with_adapter,
    zeros,
)
from agentrl_jax.policy import Params, TokenCritic


@dataclasses.dataclass
class HeadConfig:
    """A head `Dense(hidden) -> ReLU -> ... -> Dense(1 or V)`; by default it starts at exactly
    `bias` (LMRL-Gym, arXiv:2311.18232).
    """

    layers: int = 1  # with ReLU, before the last one; 0: linear
    hidden: int = 0  # their width; 0: that of the input
    scale: float = 0.0  # of the last kernel's initial values, times 1 / sqrt(inputs); 0: zero
    bias: float = 0.0  # initial, of the last layer; in LMRL-Gym about the mean return
    param_dtype: str = "float32"

    def build(self, width: int, actions: int = 0) -> "Head":
        """The head on hidden states of a width.

        Args:
            actions: outputs per hidden state (a vocabulary's size); 0: a single value.

        Raises:
            UserError: a size makes no sense.
        """
        if width < 1 or min(self.layers, self.hidden, actions) < 0:
            raise UserError(
                f"A head cannot have width {width}, {self.layers} layers, hidden {self.hidden} "
                f"and {actions} actions."
            )
        return Head(dataclasses.replace(self), width, actions)


class HeadNetwork(Module):
    """The weights of a head; hidden layers in the dtype of the input, values in float32.

    Kernels are split by inputs and by outputs in turn, the last by its outputs (the vocabulary).
    That communicates least, and XLA's partitioner (jaxlib 0.10.2) gives wrong gradients where every
    kernel is split alike and a device holds a single row.
    """

    config: HeadConfig
    actions: int

    @compact
    def __call__(self, hidden: Float[Array, "*shape D"]) -> Float[Array, "*shape V"]:
        c, dtype = self.config, self.config.param_dtype
        x = hidden.reshape(-1, hidden.shape[-1])
        width = c.hidden or hidden.shape[-1]
        for i in range(c.layers):
            inner, outer = ("embed", "hidden") if (c.layers - i) % 2 == 0 else ("hidden", "embed")
            shape, init = {inner: x.shape[-1], outer: width}, fan_in(x.shape[-1])
            kernel = weight_with_adapter(self, f"kernel_{i}", init, shape, dtype)
            bias = weight_with_adapter(self, f"bias_{i}", zeros, {outer: width}, dtype)
            x = jax.nn.relu(x @ kernel.astype(x.dtype) + bias.astype(x.dtype)[None])
        out = {"vocab": self.actions} if self.actions else {"value": 1}
        shape, init = {"embed": x.shape[-1], **out}, fan_in(x.shape[-1], c.scale)
        kernel = weight_with_adapter(self, "kernel", init, shape, dtype)
        bias = weight_with_adapter(self, "bias", constant(c.bias), out, dtype)
        y = jnp.matmul(x, kernel.astype(x.dtype), preferred_element_type=jnp.float32)
        y = y + bias.astype(jnp.float32)[None]
        return y.reshape(*hidden.shape[:-1], -1)


@dataclasses.dataclass(frozen=True, eq=False)
class Head:
    """The `TokenCritic` of a `HeadConfig`; made by its `build`."""

    config: HeadConfig
    width: int
    actions: int

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters."""
        return init_params(self._network, key, np.zeros((1, self.width), np.float32))

    def axes(self) -> Any:
        """The logical axis names of each weight: a tree like `init`'s with a tuple of names per
        array.
        """
        return logical_axes(self._network, np.zeros((1, self.width), np.float32))

    def apply(self, params: Params, hidden: Float[Array, "*shape D"]) -> Float[Array, "..."]:
        """`[*shape]`, or `[*shape, V]` where there are actions; float32."""
        y = apply(self._network, params, hidden)
        return y if self.actions else y[..., 0]

    @property
    def _network(self) -> HeadNetwork:
        return HeadNetwork(self.config, self.actions)


@dataclasses.dataclass(frozen=True, eq=False)
class CriticEnsemble:
    """Independent copies of a critic (twins, of which methods take the minimum): parameters and
    values with a leading axis k.
    """

    critic: TokenCritic
    size: int = 2

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UserError(f"At least 1 copy of a critic is needed, not {self.size}.")

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters, each copy from a key of its own."""
        return jax.vmap(self.critic.init)(jax.random.split(key, self.size))

    def axes(self) -> Any:
        """The critic's axes, with `copies` before them."""
        return jax.tree.map(
            lambda names: ("copies", *names), self.critic.axes(), is_leaf=is_logical_axes
        )

    def apply(self, params: Params, hidden: Float[Array, "*shape D"]) -> Float[Array, "k ..."]:
        return jax.vmap(self.critic.apply, in_axes=(0, None))(params, hidden)
