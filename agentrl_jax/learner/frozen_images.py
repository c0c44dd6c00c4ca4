"""`FrozenImages`: what the frozen part of a vision tower computes of images, once for each."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from agentrl_jax.distributed.sharding import replicated_sharding
from agentrl_jax.image_format import EncodedImages, ImageFormat
from agentrl_jax.images.cache import ModelImage
from agentrl_jax.images.features import FeatureCache
from agentrl_jax.policy import FrozenTower, Params


class FrozenImages:
    """Encodes on one of this process's devices, with a copy of the frozen weights."""

    def __init__(
        self, tower: FrozenTower, image_format: ImageFormat, row_patches: int, max_bytes: int
    ) -> None:
        """Without weights.

        Args:
            tower: of the policy.
            image_format: of the policy.
            row_patches: of a batch row.
            max_bytes: of states that are kept.
        """
        self._tower, self._weights = tower, None
        self._row_tokens = row_patches // image_format.patches_per_token
        doubled = [image_format.patches_per_token]
        while doubled[-1] < row_patches:
            doubled.append(min(2 * doubled[-1], row_patches))
        self._states = FeatureCache(jax.jit(tower.encode), image_format, doubled, max_bytes)

    @property
    def num_encoded(self) -> int:
        """Images since the start."""
        return self._states.num_encoded

    def load(self, params: Params) -> None:
        """Copy the frozen weights at the first call; all processes of the mesh make it."""
        if self._weights is None:
            self._weights = jax.tree.map(_on_one_device, self._tower.weights(params))

    def pack(self, rows: Sequence[Sequence[ModelImage]]) -> EncodedImages:
        """The states of each row's images, one after the other."""
        assert self._weights is not None or not any(rows), "`load` comes first"
        shape = len(rows), self._row_tokens, self._tower.width
        states = np.zeros(shape, jnp.dtype(self._tower.dtype))
        for row, images in enumerate(rows):
            start = 0
            for image in images:
                end = start + image.num_tokens
                states[row, start:end] = self._states.get(self._weights, image)
                start = end
        return EncodedImages(states=states, projected=self._tower.projected)


def _on_one_device(x: jax.Array) -> jax.Array:
    """A copy of an array on one device of this process."""
    if isinstance(x.sharding, NamedSharding):
        replicated = replicated_sharding(x.sharding.mesh)  # type: ignore[arg-type]
        x = jax.jit(jnp.copy, out_shardings=replicated)(x).addressable_data(0)
    return jnp.copy(x)
