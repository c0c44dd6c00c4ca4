"""The network of a vision tower: patches to the features of the decoder's tokens."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int

from agentrl_jax.distributed.sharding import constrain
from agentrl_jax.image_format import EncodedImages, PackedImages
from agentrl_jax.models.layers import GatedMLP, LayerNorm, RMSNorm, project
from agentrl_jax.models.parameters import (
    Module,
    compact,
    fan_in,
    normal,
    rematerialize,
    scan_layers,
    weight_with_adapter,
)
from agentrl_jax.models.rope import apply_rotary
from agentrl_jax.models.vision.attention import attend_segments
from agentrl_jax.models.vision.config import VisionConfig, vision_stacks
from agentrl_jax.pytree import pytree_dataclass, static_field


@pytree_dataclass
class PatchInputs:
    """What all layers of a tower share: rotations (None: there are none) and segments."""

    rotations: tuple[Float[Array, "R N 1 half"], Float[Array, "R N 1 half"]] | None
    segment_ids: Int[Array, "R N"]
    window_ids: Int[Array, "R N"] | None
    max_frame: int = static_field(default=0)  # see `PackedImages`


def rotate_rows_and_columns(
    coordinates: Int[Array, "R N 2"], head_size: int, theta: float
) -> tuple[Float[Array, "R N 1 half"], Float[Array, "R N 1 half"]]:
    """Cosine and sine of each pair's angle, of which the first half is that of the row and the
    second that of the column: `coordinate * theta^(-4i / head_size)`.
    """
    exponents = jnp.arange(head_size // 4, dtype=jnp.float32) * (4 / head_size)
    angles = coordinates[..., None].astype(jnp.float32) * (theta**-exponents)[None, None, None]
    angles = angles.reshape(*coordinates.shape[:2], 1, head_size // 2)
    return jnp.cos(angles), jnp.sin(angles)


class VisionBlock(Module):
    """`x + attention(norm(x))`, then `x + mlp(norm(x))`, with biases everywhere."""

    config: VisionConfig
    param_dtype: str

    @compact
    def __call__(
        self, x: Float[Array, "R N D"], is_windowed: Bool[Array, ""], inputs: PatchInputs
    ) -> tuple[Float[Array, "R N D"], None]:
        c = self.config
        y = vision_norm(c, self.param_dtype, "attention_norm")(x)
        width, heads = {"embed": c.width}, {"heads": c.heads, "head_size": c.head_size}
        if c.fused_qkv:
            qkv = project(self, "qkv", y, width, {"parts": 3, **heads}, True)
            query, key, value = (qkv[:, :, i] for i in range(3))
        else:
            query, key, value = (
                project(self, name, y, width, heads, True) for name in ("query", "key", "value")
            )
        if inputs.rotations is not None:
            query, key = (apply_rotary(x, *inputs.rotations) for x in (query, key))
        query, key, value = (
            checkpoint_name(x, name)
            for x, name in ((query, "query"), (key, "key"), (value, "value"))
        )
        y = self._attend(query, key, value, is_windowed, inputs)
        out_scale = (2 * c.layers) ** -0.5
        x = x + project(self, "out", y, heads, width, True, fan_in(c.width, out_scale))
        y = vision_norm(c, self.param_dtype, "mlp_norm")(x)
        if c.gated_mlp:
            mlp = GatedMLP(c.hidden, c.activation, True, out_scale, self.param_dtype, name="mlp")
        else:
            mlp = PlainMLP(c, c.width, c.hidden, out_scale, self.param_dtype, name="mlp")
        return constrain(x + mlp(y), "rows", None, None), None

    def _attend(
        self, query: Array, key: Array, value: Array, is_windowed: Array, inputs: PatchInputs
    ) -> Array:
        scale = self.config.head_size**-0.5

        def in_frames(query: Array, key: Array, value: Array) -> Array:
            ids = inputs.segment_ids
            return attend_segments(query, key, value, ids, scale, inputs.max_frame)

        def in_windows(query: Array, key: Array, value: Array) -> Array:
            ids = inputs.window_ids
            assert ids is not None
            return attend_segments(query, key, value, ids, scale, self.config.window**2)

        if inputs.window_ids is None:
            return in_frames(query, key, value)
        return jax.lax.cond(is_windowed, in_windows, in_frames, query, key, value)


class PlainMLP(Module):
    """`activation(x up) down`."""

    config: VisionConfig
    out_width: int
    hidden: int
    out_scale: float
    param_dtype: str

    @compact
    def __call__(self, x: Float[Array, "R N D"]) -> Float[Array, "R N E"]:
        inner, hidden = {"embed": x.shape[-1]}, {"hidden": self.hidden}
        up = checkpoint_name(project(self, "up", x, inner, hidden, True), "up")
        init, outer = fan_in(self.hidden, self.out_scale), {"embed": self.out_width}
        return project(self, "down", self.config.activation(up), hidden, outer, True, init)


class MergingProjector(Module):
    """The patches of a square, which are concatenated, through `activation(x up) down` (Qwen).

    The norm is that of each patch, or of the concatenation (`norm_after`).
    """

    config: VisionConfig
    width: int  # the decoder's
    norm_after: bool
    param_dtype: str

    @compact
    def __call__(self, x: Float[Array, "R M P"]) -> Float[Array, "R M E"]:
        c = self.config
        norm, merged = vision_norm(c, self.param_dtype, "norm"), c.width * c.merge_size**2
        if self.norm_after:
            x = norm(x)
        else:
            x = norm(x.reshape(x.shape[0], -1, c.width)).reshape(x.shape)
        y = project(self, "up", x, {"patches": merged}, {"hidden": merged}, True)
        y = c.projector_activation(y)
        return project(self, "down", y, {"hidden": merged}, {"embed": self.width}, True)


class PoolingProjector(Module):
    """The mean of a square's patches, normed, times a matrix (Gemma 3)."""

    config: VisionConfig
    width: int  # the decoder's
    param_dtype: str

    @compact
    def __call__(self, x: Float[Array, "R M P"]) -> Float[Array, "R M E"]:
        c = self.config
        squares = x.reshape(x.shape[0], -1, c.merge_size**2, c.width)
        pooled = jnp.mean(squares.astype(jnp.float32), axis=2).astype(x.dtype)
        normed = RMSNorm("norm", c.norm_eps, self.param_dtype, True, name="norm")(pooled)
        return project(self, "down", normed, {"hidden": c.width}, {"embed": self.width})


def vision_norm(config: VisionConfig, param_dtype: str, name: str) -> RMSNorm | LayerNorm:
    """The tower's kind of norm."""
    if config.rms_norm:
        return RMSNorm("norm", config.norm_eps, param_dtype, name=name)
    return LayerNorm(config.norm_eps, param_dtype, name=name)


class VisionTower(Module):
    """Every weight of the tower and its projector, and its forward pass."""

    config: VisionConfig
    width: int  # the decoder's
    param_dtype: str
    compute_dtype: str
    saved_activations: Sequence[str] | None

    @compact
    def __call__(
        self, images: PackedImages | EncodedImages, projected: bool = True
    ) -> Float[Array, "R M E"]:
        """The features of the images' tokens, in the order of prompts.

        Args:
            images: rows of patches, or their states.
            projected: False: the states, which the projectors turn into features: the last layer's
                and those of each of `deepstack_layers`, merge_size^2 patches of a token.
        """
        c = self.config
        if isinstance(images, EncodedImages):
            states = jnp.asarray(images.states)
            return self._project(jnp.split(states, 1 + len(c.deepstack_layers), axis=-1))
        merged = c.width * c.merge_size**2
        states = [x.reshape(x.shape[0], -1, merged) for x in self._encode(images)]
        y = self._project(states) if projected else jnp.concatenate(states, axis=-1)
        return jnp.take_along_axis(y, jnp.asarray(images.token_order)[:, :, None], axis=1)

    def _encode(self, images: PackedImages) -> list[Float[Array, "R N D"]]:
        """The hidden states of the last layer, and of each of `deepstack_layers`."""
        c = self.config
        x = self._embed(images)
        rotations = None
        if c.rope_theta:
            coordinates = jnp.asarray(images.coordinates)
            rotations = rotate_rows_and_columns(coordinates, c.head_size, c.rope_theta)
        windows = images.window_ids
        inputs = PatchInputs(
            rotations=rotations,
            segment_ids=jnp.asarray(images.segment_ids),
            window_ids=None if windows is None else jnp.asarray(windows),
            max_frame=images.max_frame,
        )
        block = VisionBlock
        if self.saved_activations is not None:
            block = rematerialize(VisionBlock, tuple(self.saved_activations))
        states: list[Array] = []
        for stack in vision_stacks(c):
            indices = range(stack.start, stack.start + stack.layers)
            is_windowed = jnp.asarray([i not in c.full_layers for i in indices])
            blocks = scan_layers(block, stack.layers, scanned=(True, False))
            x, _ = blocks(c, self.param_dtype, name=stack.name)(x, is_windowed, inputs)
            if stack.has_features:
                states.append(x)
        if c.final_norm:
            x = vision_norm(c, self.param_dtype, "final_norm")(x)
        return [x, *states]

    def _project(self, states: Sequence[Float[Array, "R M P"]]) -> Float[Array, "R M E"]:
        """The features of tokens from their patches' states, concatenated."""
        c, (x, *deepstack) = self.config, states
        features = [
            MergingProjector(c, self.width, True, self.param_dtype, name=f"deepstack_{i}")(state)
            for i, state in enumerate(deepstack)
        ]
        if c.average_pooling:
            projector = PoolingProjector(c, self.width, self.param_dtype, name="projector")
        else:
            projector = MergingProjector(c, self.width, False, self.param_dtype, name="projector")
        return jnp.concatenate([projector(x), *features], axis=-1)

    def _embed(self, images: PackedImages) -> Float[Array, "R N D"]:
        """The patches' embeddings, with what the learned table adds to them."""
        c, dtype = self.config, self.param_dtype
        patches = jnp.asarray(images.patches).astype(self.compute_dtype)
        numbers, width = {"patch": patches.shape[-1]}, {"embed": c.width}
        x = project(self, "patch_embedding", patches, numbers, width, c.patch_bias)
        if c.position_side:
            rows = {"positions": c.position_side**2}
            table = weight_with_adapter(self, "positions", normal(0.02), rows | width, dtype)
            assert images.position_indices is not None and images.position_weights is not None
            near = jnp.take(table.astype(jnp.float32), images.position_indices, axis=0)
            weights = jnp.asarray(images.position_weights)[..., None]
            x = x + jnp.sum(near * weights, axis=2).astype(x.dtype)
        return constrain(x, "rows", None, None)
