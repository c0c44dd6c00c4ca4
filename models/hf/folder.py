"""Decoders in Hugging Face folders: `load` and `save`."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from jax.sharding import Mesh
from transformers import AutoConfig

from agentrl_jax.distributed.sharding import weight_shardings
from agentrl_jax.errors import UserError
from agentrl_jax.models.decoder import Decoder, HFOrigin
from agentrl_jax.models.hf.configs import config_from_hf, config_to_json
from agentrl_jax.models.hf.decoder_tensors import IGNORED_TENSORS
from agentrl_jax.models.hf.parameter_trees import (
    check_all_used,
    load_tree,
    save_tensors,
    tensors_to_save,
)
from agentrl_jax.models.hf.policy_tensors import tensor_layouts
from agentrl_jax.models.hf.safetensors import SafetensorsFolder
from agentrl_jax.models.hf.shipped import shipped_or_same
from agentrl_jax.policy import Params

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "processor_config.json",
)


def resolve_folder(folder: str | Path) -> Path:
    """A local folder, that of a model that comes with a package (`SHIPPED_MODELS`,
    `PACKAGED_MODELS`), or the local copy of the hub's model `owner/name`, downloaded if there is a
    network.

    Raises:
        UserError: there is neither.
    """
    path = Path(shipped_or_same(folder)).expanduser()
    if path.is_dir():
        return path
    if str(folder).count("/") != 1 or str(folder).startswith((".", "/", "~")):
        raise UserError(f"there is no folder {folder}")
    try:
        return Path(
            snapshot_download(
                str(folder),
                allow_patterns=[
                    "config.json",
                    "*.safetensors",
                    "*.safetensors.index.json",
                    *TOKENIZER_FILES,
                ],
            )
        )
    except HFValidationError as error:
        raise UserError(f"there is no folder {folder}") from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise UserError(
            f"there is no folder {folder}, and no model of that name could be downloaded "
            f"({type(error).__name__}): download it where there is a network and give the folder "
            "that holds its config.json"
        ) from error


def read_decoder(
    folder: str | Path, param_dtype: Any = "float32", compute_dtype: Any = "float32"
) -> Decoder:
    """The policy of a folder, from its config.json alone.

    Raises:
        UserError: that is missing or not supported.
    """
    path = resolve_folder(folder)
    try:
        data = json.loads((path / "config.json").read_text())
        hf = AutoConfig.from_pretrained(str(path), local_files_only=True)
    except FileNotFoundError as error:
        raise UserError(
            f"{path} holds no config.json: give the folder of a Hugging Face model"
        ) from error
    except Exception as error:  # transformers validates fields with errors of many kinds
        raise UserError(
            f"{path / 'config.json'} cannot be read: {' '.join(str(error).split())}"
        ) from error
    try:
        config = config_from_hf(hf)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    config = dataclasses.replace(
        config, param_dtype=_dtype_name(param_dtype), compute_dtype=_dtype_name(compute_dtype)
    )
    files = {
        name: (path / name).read_bytes() for name in TOKENIZER_FILES if (path / name).is_file()
    }
    return dataclasses.replace(
        config.build(hf.get_text_config().vocab_size), origin=HFOrigin(data, files)
    )


def _dtype_name(dtype: Any) -> str:
    """Of a dtype or of what NumPy takes for one; the config refuses unknown names."""
    try:
        return jnp.dtype(dtype).name
    except TypeError:
        return str(dtype)


def load(
    folder: str | Path,
    mesh: Mesh | None = None,
    param_dtype: Any = "float32",
    compute_dtype: Any = "float32",
) -> tuple[Decoder, Params]:
    """The policy and parameters of a Hugging Face folder, or of a model by its name: one that comes
    with the package (`agentrl/base-4m`), or one on the hub.

    Each process reads only the slices that its devices hold, one layer's tensor at a time.

    Args:
        folder: a path, or the model's `owner/name`.
        mesh: over which weights are sharded; None: the default device.
        param_dtype: of the weights.
        compute_dtype: of activations and matrix products.

    Raises:
        UserError: a file is missing or truncated, the architecture is not supported, or a tensor is
            not as the config describes it.
    """
    path = resolve_folder(folder)
    policy = read_decoder(path, param_dtype, compute_dtype)
    tensors = SafetensorsFolder(path)
    names = tensor_layouts(policy.config, tensors.shapes)
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    check_all_used(tensors, names, shapes, IGNORED_TENSORS)
    shardings = None if mesh is None else weight_shardings(mesh, policy.axes(), shapes)
    return policy, load_tree(tensors, names, shapes, shardings, policy.config.param_dtype)


def save(folder: str | Path, policy: Decoder, params: Params) -> None:
    """Write a folder that `transformers` and `load` read, with the files of the folder that the
    policy was loaded from. Process 0 writes.

    Raises:
        UserError: the folder holds a model already, or no Hugging Face family describes the policy.
    """
    path = Path(folder).expanduser()
    if any(path.glob("*.safetensors")):
        raise UserError(f"{path} holds a model already: remove it, or save to another folder")
    data = (
        policy.origin.config if policy.origin else config_to_json(policy.config, policy.vocab_size)
    )
    dtype_field = "torch_dtype" if "torch_dtype" in data else "dtype"
    data = data | {dtype_field: jnp.dtype(params["embedding"].dtype).name}
    if jax.process_index() == 0:
        path.mkdir(parents=True, exist_ok=True)
        for name, content in (policy.origin.files if policy.origin else {}).items():
            (path / name).write_bytes(content)
        (path / "config.json").write_text(json.dumps(data, indent=2) + "\n")
    save_tensors(path, tensors_to_save(tensor_layouts(policy.config), params))
