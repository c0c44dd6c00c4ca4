"""A run's policy as the folder of a Hugging Face model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from agentrl_jax import models
from agentrl_jax.errors import UserError
from agentrl_jax.images.prompts import IMAGE, VIDEO
from agentrl_jax.models.adapters import LoraPolicy
from agentrl_jax.models.decoder import Decoder
from agentrl_jax.models.layers import DTYPES
from agentrl_jax.models.vision.policy import VisionLanguageModel
from agentrl_jax.policy import Params, Policy
from agentrl_jax.storage.files import write_json
from agentrl_jax.training.builders import load_policy


def export_policy(
    run_dir: Path,
    folder: Path,
    dtype: str = "bfloat16",
    phase: str | None = None,
    agent: str | None = None,
    best: bool | None = None,
) -> None:
    """Write weights, config, tokenizer and generation config; `models.load` reads the folder.

    Args:
        run_dir: of a run that has a checkpoint.
        folder: is created.
        dtype: of the weights that are written.
        phase: None: the last that has a checkpoint.
        agent: None: the first that the phase trains.
        best: whether the best checkpoint or the newest; None: as the phase's config says.

    Raises:
        UserError: the folder holds a model already, or the policy is no decoder.
    """
    if dtype not in DTYPES:
        raise UserError(f"weights are written in {', '.join(DTYPES)}, not in {dtype!r}")
    _, tokenizer, policy, params = load_policy(run_dir, phase, agent, best)
    decoder, weights = _as_decoder(policy, params)
    decoder = with_image_tokens(decoder, tokenizer)
    models.save(folder, decoder, jax.tree.map(lambda x: x.astype(jnp.dtype(dtype)), weights))
    tokenizer.save_pretrained(folder)
    tokens = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    write_json(folder / "generation_config.json", {**tokens, "do_sample": False})


def _as_decoder(policy: Policy, params: Params) -> tuple[Decoder, Params]:
    """The decoder and its weights, with what adapters add to them."""
    if isinstance(policy, LoraPolicy):
        return policy.base, policy.merge(params)
    if isinstance(policy, Decoder):
        return policy, params
    raise UserError(f"a {type(policy).__name__} has no form in Hugging Face's library")


def with_image_tokens(decoder: Decoder, tokenizer: Any) -> Decoder:
    """The decoder; one that sees, with the ids of the tokenizer's placeholders of images and videos
    where its config leaves them open.
    """
    if not isinstance(decoder, VisionLanguageModel):
        return decoder
    vocabulary, config = tokenizer.get_vocab(), decoder.config
    placeholders = {"image_token_id": IMAGE, "video_token_id": VIDEO}
    ids = {
        name: vocabulary[token]
        for name, token in placeholders.items()
        if getattr(config, name) < 0 and token in vocabulary
    }
    return replace(decoder, config=replace(config, **ids))
