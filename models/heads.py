"""Heads on hidden states: values, Q over the vocabulary, and copies of either."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from agentrl_jax.errors import UserError
from agentrl_jax.models.described import axis_names, unboxed
from agentrl_jax.models.layers import fan_in, weight
from agentrl_jax.policy import Critic, Params
from agentrl_jax.sharding import is_names


@dataclasses.dataclass
class HeadConfig:
    """A head `Dense(hidden) -> ReLU -> ... -> Dense(1 or V)`; by default it starts at exactly `bias` (LMRL-Gym, arXiv:2311.18232)."""

    layers: int = 1  # with ReLU, before the last one; 0: linear
    hidden: int = 0  # their width; 0: that of the input
    scale: float = 0.0  # of the last weights at the start, times 1 / sqrt(inputs); 0: they are zero
    bias: float = 0.0  # of the last layer at the start, in LMRL-Gym about the mean return
    param_dtype: str = "float32"

    def build(self, width: int, actions: int = 0) -> "Head":
        """The head on hidden states of a width, one number each; with `actions` (a vocabulary's size) that many.

        Raises:
            UserError: a size makes no sense.
        """
        if width < 1 or min(self.layers, self.hidden, actions) < 0:
            raise UserError(f"A head cannot have width {width}, {self.layers} layers, hidden {self.hidden} and {actions} actions.")
        return Head(dataclasses.replace(self), width, actions)


class Perceptron(nn.Module):
    """The weights of a head; hidden layers in the dtype of the input, values in float32.

    Kernels are split by inputs and by outputs in turn, the last by its outputs (the vocabulary). That communicates least, and
    XLA's partitioner (jaxlib 0.10.2) gives wrong gradients where every kernel is split alike and a device holds a single row.
    """

    config: HeadConfig
    actions: int

    @nn.compact
    def __call__(self, hidden: Float[Array, "*shape D"]) -> Float[Array, "*shape V"]:
        c = self.config
        x = hidden.reshape(-1, hidden.shape[-1])
        for i in range(c.layers):
            inner, outer = ("embed", "hidden") if (c.layers - i) % 2 == 0 else ("hidden", "embed")
            width = c.hidden or hidden.shape[-1]
            kernel = weight(self, f"kernel_{i}", fan_in(x.shape[-1]), {inner: x.shape[-1], outer: width}, c.param_dtype)
            bias = weight(self, f"bias_{i}", nn.initializers.zeros, {outer: width}, c.param_dtype)
            x = jax.nn.relu(x @ kernel.astype(x.dtype) + bias.astype(x.dtype)[None])
        out = {"vocab": self.actions} if self.actions else {"value": 1}
        kernel = weight(self, "kernel", fan_in(x.shape[-1], c.scale), {"embed": x.shape[-1], **out}, c.param_dtype)
        bias = weight(self, "bias", nn.initializers.constant(c.bias), out, c.param_dtype)
        y = jnp.matmul(x, kernel.astype(x.dtype), preferred_element_type=jnp.float32) + bias.astype(jnp.float32)[None]
        return y.reshape(*hidden.shape[:-1], -1)


@dataclasses.dataclass(frozen=True, eq=False)
class Head:
    """The `Critic` of a `HeadConfig`; made by its `build`."""

    config: HeadConfig
    width: int
    actions: int

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters."""
        return unboxed(jax.jit(self._described)(key))

    def axes(self) -> Any:
        """The logical axis names of each weight: a tree like `init`'s with a tuple of names per array."""
        return axis_names(jax.eval_shape(self._described, jax.random.key(0)))

    def apply(self, params: Params, hidden: Float[Array, "*shape D"]) -> Float[Array, "..."]:
        """`[*shape]`, or `[*shape, V]` where there are actions; float32."""
        y = Perceptron(self.config, self.actions).apply({"params": params}, hidden)
        return y if self.actions else y[..., 0]  # type: ignore[index, return-value]

    def _described(self, key: Key[Array, ""]) -> Any:
        """Fresh parameters in boxes that carry their logical axes."""
        return Perceptron(self.config, self.actions).init(key, jnp.zeros((1, self.width)))["params"]


@dataclasses.dataclass(frozen=True, eq=False)
class Copies:
    """Independent copies of a critic (twins, of which methods take the least): parameters and values with a leading axis k."""

    critic: Critic
    count: int = 2

    def __post_init__(self) -> None:
        if self.count < 1:
            raise UserError(f"At least 1 copy of a critic is needed, not {self.count}.")

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters, another key each."""
        return jax.vmap(self.critic.init)(jax.random.split(key, self.count))

    def axes(self) -> Any:
        """The critic's own, after `copies`."""
        return jax.tree.map(lambda names: ("copies", *names), self.critic.axes(), is_leaf=is_names)

    def apply(self, params: Params, hidden: Float[Array, "*shape D"]) -> Float[Array, "k ..."]:
        return jax.vmap(self.critic.apply, in_axes=(0, None))(params, hidden)
