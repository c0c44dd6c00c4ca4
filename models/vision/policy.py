"""A decoder with a vision tower as the policy of an experiment."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from agentrl_jax.config_tree import OMITTED_AT_DEFAULT
from agentrl_jax.errors import UserError
from agentrl_jax.image_format import EncodedImages, ImageFormat, ImagePatches, PackedImages
from agentrl_jax.models.decoder import Decoder, DecoderConfig
from agentrl_jax.models.decoder_architecture import check_config
from agentrl_jax.models.parameters import apply, init_params, logical_axes
from agentrl_jax.models.vision.config import VisionConfig, check_vision_config
from agentrl_jax.models.vision.tower import VisionTower
from agentrl_jax.policy import FrozenTower, KVCache, Params, PolicyInputs, PolicyOutput

VISION = "vision"  # the tower's parameters, beside the decoder's
PROJECTORS = ("projector", "deepstack")  # of the tower's parameters, by prefix
PARTS = ("tower", "projector", "decoder")


def is_projector(name: str) -> bool:
    """Whether parameters of this name under `VISION` belong to a projector."""
    return name.startswith(PROJECTORS)


@dataclasses.dataclass
class VisionLanguageConfig(DecoderConfig):
    """A decoder that sees: its fields are those of `DecoderConfig`, and those of its tower."""

    vision: VisionConfig = dataclasses.field(default_factory=VisionConfig)
    image_token_id: int = -1  # the placeholder of an image's tokens; -1: unknown
    video_token_id: int = -1
    bidirectional_images: bool = False  # tokens of an image attend to all of it (Gemma 3)
    positions_per_second: float = 1.0  # of videos, on the temporal axis (Qwen2.5-VL)
    # parts that an update does not change, of `PARTS`; the tower's is without its projector
    frozen: tuple[str, ...] = dataclasses.field(default=(), metadata=OMITTED_AT_DEFAULT)

    def build(self, vocab_size: int) -> "VisionLanguageModel":
        """The policy over `vocab_size` tokens; a later change of this config does not reach it.

        Raises:
            UserError: a value makes no sense.
        """
        check_config(self, vocab_size)
        check_vision_config(self.vision)
        if len(self.vision.deepstack_layers) > self.layers:
            raise UserError(
                f"a decoder of {self.layers} layers cannot take the features of "
                f"{len(self.vision.deepstack_layers)} deepstack layers"
            )
        if unknown := set(self.frozen) - set(PARTS):
            raise UserError(
                f"the parts that can be frozen are {', '.join(PARTS)}, not {min(unknown)!r}"
            )
        config = dataclasses.replace(self, vision=dataclasses.replace(self.vision))
        return VisionLanguageModel(config, vocab_size)


@dataclasses.dataclass(frozen=True, eq=False)
class VisionLanguageModel(Decoder):
    """The `VisionPolicy` of a `VisionLanguageConfig`; made by its `build`.

    Parameters are the decoder's, and the tower's under `vision`.
    """

    config: VisionLanguageConfig

    @property
    def image_format(self) -> ImageFormat:
        """How the tower takes images."""
        c, v = self.config, self.config.vision
        return ImageFormat(
            patch_size=v.patch_size,
            merge_size=v.merge_size,
            feature_width=c.width * (1 + len(v.deepstack_layers)),
            temporal_patch_size=v.temporal_patch_size,
            channels=v.channels,
            image_token_id=c.image_token_id,
            video_token_id=c.video_token_id,
            window=v.window,
            position_side=v.position_side,
            fixed_side=v.fixed_side,
            multi_axis_rope=bool(c.rope.sections),
            positions_per_second=c.positions_per_second,
            bidirectional=c.bidirectional_images,
        )

    def init(self, key: Key[Array, ""]) -> Params:
        """Fresh parameters, layers stacked."""
        tower = init_params(self._tower, jax.random.fold_in(key, 1), self._one_square())
        return super().init(key) | {VISION: tower}

    def axes(self) -> Any:
        """See `Decoder.axes`."""
        return super().axes() | {VISION: logical_axes(self._tower, self._one_square())}

    def trainable(self) -> Any:
        """True for every weight that is not of a frozen part."""

        def is_trained(path: Any, _: Any) -> bool:
            names = [key.key for key in path]
            if names[0] != VISION:
                return "decoder" not in self.config.frozen
            part = "projector" if is_projector(names[1]) else "tower"
            return part not in self.config.frozen

        tree = super().trainable()
        return jax.tree_util.tree_map_with_path(is_trained, tree)

    def encode_images(
        self, params: Params, images: PackedImages | EncodedImages, adapters: Any = None
    ) -> Float[Array, "R M E"]:
        """The features of the images' tokens: for the embedding, and for each of the decoder's
        first layers that the tower's `deepstack_layers` feed.

        Args:
            params: stacked or unstacked.
            images: rows of patches, or their states.
            adapters: see `Decoder.apply`.
        """
        if isinstance(images, EncodedImages) and images.projected:
            return jnp.asarray(images.states)
        tower_adapters = (adapters or {}).get(VISION)
        return apply(self._tower, params[VISION], images, adapters=tower_adapters)

    def frozen_tower(self) -> FrozenTower | None:
        """See `VisionPolicy.frozen_tower`."""
        frozen = self.config.frozen
        return self.tower_without_updates("projector" in frozen) if "tower" in frozen else None

    def tower_without_updates(self, projected: bool) -> FrozenTower:
        """The tower where nothing of it is trained, or `projected` False, its projectors alone."""
        v, f = self.config.vision, self.image_format
        states = v.width * f.patches_per_token * (1 + len(v.deepstack_layers))
        return FrozenTower(
            width=f.feature_width if projected else states,
            dtype=self.config.compute_dtype,
            projected=projected,
            weights=lambda params: params[VISION],
            encode=lambda weights, images: apply(self._tower, weights, images, projected),
        )

    def apply(
        self,
        params: Params,
        inputs: PolicyInputs,
        cache: KVCache | None = None,
        key: Key[Array, ""] | None = None,
        adapters: Any = None,
    ) -> PolicyOutput:
        """See `Decoder.apply`; images of the inputs are encoded first."""
        if inputs.images is not None:
            features = self.encode_images(params, inputs.images, adapters)
            inputs = _with_features(inputs, features)
        return super().apply(params, inputs, cache, key, adapters)

    @property
    def _tower(self) -> VisionTower:
        c = self.config
        return VisionTower(c.vision, c.width, c.param_dtype, c.compute_dtype, c.saved_activations)

    def _one_square(self) -> PackedImages:
        """The smallest image, with which the tower's weights are declared."""
        f = self.image_format
        side = f.fixed_side or f.merge_size
        patches = np.zeros((side**2, f.patch_numbers), np.float32)
        return f.pack([[ImagePatches(patches, (1, side, side))]], side**2)


def _with_features(inputs: PolicyInputs, features: Float[Array, "R M E"]) -> PolicyInputs:
    """The inputs with the features of their images at the tokens that these belong to.

    Raises:
        UserError: the inputs do not say which tokens those are, or have other rows than the images.
    """
    if inputs.image_index is None or inputs.embeddings is not None:
        raise UserError("images of a batch need `image_index`, and no `embeddings` beside them")
    if features.shape[0] != inputs.tokens.shape[0]:
        raise UserError(
            f"a batch of {inputs.tokens.shape[0]} rows of tokens needs as many rows of patches, "
            f"not {features.shape[0]}"
        )
    index = jnp.asarray(inputs.image_index)
    embeddings = jnp.take_along_axis(features, jnp.maximum(index, 0)[:, :, None], axis=1)
    return dataclasses.replace(
        inputs, images=None, image_index=None, embeddings=embeddings, embedding_mask=index >= 0
    )
