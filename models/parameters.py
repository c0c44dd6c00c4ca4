"""Declaring, initializing and applying the weights of a network. The only module that imports
flax.linen.

A network subclasses `Module`, declares its weights with `weight_with_adapter` (or `declare_weight`)
in a method decorated with `compact`, and is used through `init_params`, `logical_axes` and `apply`.
"""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from agentrl_jax.models.kernel_inputs import ATTENTION_OUTPUT
from agentrl_jax.models.quantized import QuantizedWeight
from agentrl_jax.policy import Params

Module = nn.Module
compact = nn.compact
Initializer = nn.initializers.Initializer
zeros, ones = nn.initializers.zeros, nn.initializers.ones
constant, normal = nn.initializers.constant, nn.initializers.normal


def fan_in(size: int, scale: float = 1.0) -> Initializer:
    """Normal with standard deviation `scale / sqrt(size)`."""
    return normal(scale / size**0.5)


def declare_weight(
    module: Module, name: str, init: Initializer, shape: dict[str, int], dtype: str
) -> Any:
    """A weight of `module`, dense, without what an adapter adds to it.

    Args:
        shape: sizes by logical axis, in order: `{"embed": 128, "hidden": 512}`.
    """
    stored = module.get_variable("params", name) if module.has_variable("params", name) else None
    if isinstance(stored, QuantizedWeight):
        return stored.dequantize()  # within the scanned block: one layer at a time
    partitioned = nn.with_logical_partitioning(init, tuple(shape))
    return module.param(name, partitioned, tuple(shape.values()), jnp.dtype(dtype))


def weight_with_adapter(
    module: Module, name: str, init: Initializer, shape: dict[str, int], dtype: str
) -> Any:
    """`declare_weight` plus the low-rank product of its adapter, if it has one (see
    `agentrl_jax.models.adapters`).
    """
    weight = declare_weight(module, name, init, shape, dtype)
    adapter = adapter_of_weight(module, name)
    if adapter is None:
        return weight
    product = low_rank_product(adapter["down"], adapter["up"], weight.shape)
    return weight + product.astype(weight.dtype)


def adapter_of_weight(module: Module, name: str) -> dict[str, Array] | None:
    """`down`, `up` and in training the dropout `rate` of the weight's adapter; None without one."""
    return module.get_variable("adapters", name) if module.has_variable("adapters", name) else None


def dropout_key(module: Module) -> Key[Array, ""] | None:
    """A key for this call of this module; None where nothing is dropped out."""
    return module.make_rng("dropout") if module.has_rng("dropout") else None


def low_rank_product(
    down: Float[Array, "*stack_inner r"], up: Float[Array, "*stack_r_outer"], shape: tuple[int, ...]
) -> Float[Array, "*shape"]:
    """`down up` in float32 for each index of the stack: what an adapter adds to a weight of that
    shape.
    """
    stack = down.ndim + up.ndim - 2 - len(shape)  # leading axes that both have
    rank = down.shape[-1]
    left = down.reshape(*down.shape[:stack], -1, rank).astype(jnp.float32)
    right = up.reshape(*up.shape[:stack], rank, -1).astype(jnp.float32)
    return (left @ right).reshape(shape)


def rematerialize(block: type[Module], saved_activations: tuple[str, ...]) -> type[Module]:
    """`block`, which stores only its input and the activations of these names for its backward
    pass and recomputes the rest. Where attention's output is one of them, a kernel of cuDNN stores
    its own, which has no name.
    """
    policy = jax.checkpoint_policies.save_only_these_names(*saved_activations)
    if ATTENTION_OUTPUT in saved_activations:
        policy = jax.checkpoint_policies.save_from_both_policies(policy, _is_cudnn_attention)
    return nn.remat(block, prevent_cse=False, policy=policy)


def _is_cudnn_attention(primitive: Any, *_: Any, **__: Any) -> bool:
    return primitive.name.startswith("dot_product_attention_fwd")


def scan_layers(block: type[Module], layers: int, scanned: tuple[bool, ...]) -> Any:
    """`layers` copies of `block`, weights stacked along a leading axis `layers`, applied in turn to
    the first argument.

    Args:
        scanned: of each further argument, whether it has one entry a layer or is the same for all.
    """
    return nn.scan(
        block,
        variable_axes={"params": 0, "adapters": 0},
        split_rngs={"params": True, "dropout": True},
        in_axes=tuple(0 if x else nn.broadcast for x in scanned),  # type: ignore[arg-type]
        length=layers,
        metadata_params={nn.PARTITION_NAME: "layers"},
    )


def init_params(network: Module, key: Key[Array, ""], *inputs: Any) -> Params:
    """Fresh parameters of a network that is called with arrays like `inputs` (NumPy or JAX)."""
    boxes = _init_boxed(_Hashable(network), key, inputs)
    return jax.tree.map(lambda box: box.value, boxes, is_leaf=_is_box)


def logical_axes(network: Module, *inputs: Any) -> Any:
    """A tree like `init_params`' with a tuple of logical axis names per weight."""
    network_key = _Hashable(network)
    boxes = jax.eval_shape(lambda key: _init_boxed(network_key, key, inputs), jax.random.key(0))
    return jax.tree.map(lambda box: box.names, boxes, is_leaf=_is_box)


def apply(
    network: Module,
    params: Params,
    *inputs: Any,
    adapters: Any = None,
    key: Key[Array, ""] | None = None,
) -> Any:
    """The output of the network with these parameters.

    Args:
        adapters: a tree of the shape of `params` with low-rank additions for some of the weights.
        key: drops out some of the adapters' inputs.
    """
    variables = {"params": params} | ({"adapters": adapters} if adapters else {})
    rngs = {"dropout": key} if key is not None and adapters else None
    return network.apply(variables, *inputs, rngs=rngs)


class _Hashable:
    """A network that equals those with the same fields, as they are now; configs can change."""

    def __init__(self, network: Module) -> None:
        self.network, self._fields = network, _fields_of(network)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashable) and self._fields == other._fields

    def __hash__(self) -> int:
        return hash(self._fields)


def _fields_of(value: Any) -> Any:
    """A hashable value that is equal for equal dataclasses, dicts, lists and tuples."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in dataclasses.fields(value) if field.name != "parent")
        return (type(value), *(_fields_of(getattr(value, name)) for name in names))
    if isinstance(value, dict):
        return (dict, *((key, _fields_of(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return (type(value), *map(_fields_of, value))
    return value


@functools.partial(jax.jit, static_argnums=0)  # op by op takes seconds
def _init_boxed(network: _Hashable, key: Key[Array, ""], inputs: tuple[Any, ...]) -> Any:
    """Fresh parameters in boxes that carry their logical axes; traced once for equal networks."""
    return network.network.init(key, *jax.tree.map(jnp.asarray, inputs))["params"]


def _is_box(x: Any) -> bool:
    return isinstance(x, nn.LogicallyPartitioned)
