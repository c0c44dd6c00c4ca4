"""The tensors of a policy in a Hugging Face folder."""

from collections.abc import Collection
from typing import Any

from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.hf.decoder_tensors import decoder_layouts
from agentrl_jax.models.hf.vision_tensors import vision_layouts, vision_module_layouts
from agentrl_jax.models.vision.policy import VisionLanguageConfig


def tensor_layouts(config: DecoderConfig, stored: Collection[str] | None = None) -> Any:
    """The tensors of each weight: a tree like the stacked parameters.

    Args:
        config: a decoder, with or without a vision tower.
        stored: the names in a folder, which differ between versions of `transformers`; None: those
            that it saves now.

    Raises:
        UserError: the folder has no tower that the config asks for.
    """
    if isinstance(config, VisionLanguageConfig):
        return vision_layouts(config, stored)
    return decoder_layouts(config)


def module_layouts(config: DecoderConfig) -> list[Any]:
    """The tensors of each weight, a tree like the stacked parameters, by the modules that hold it:
    first those of this version of `transformers`.
    """
    if isinstance(config, VisionLanguageConfig):
        return vision_module_layouts(config)
    return [decoder_layouts(config)]
