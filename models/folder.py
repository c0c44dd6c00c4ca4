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

from agentrl_jax.errors import UserError
from agentrl_jax.models.decoder import Decoder, Origin
from agentrl_jax.models.families import IGNORED, config_of, json_of, layouts
from agentrl_jax.models.weights import Tensors, check_all_used, load_tree, save_tensors, stored
from agentrl_jax.policy import Params
from agentrl_jax.sharding import weight_shardings

BESIDE = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt", "chat_template.jinja", "chat_template.json", "generation_config.json",
)  # fmt: skip


def find(folder: str | Path) -> Path:
    """A local folder, or the local copy of a hub's model `owner/name`, downloaded where there is a network.

    Raises:
        UserError: there is neither.
    """
    path = Path(folder).expanduser()
    if path.is_dir():
        return path
    if str(folder).count("/") != 1 or str(folder).startswith((".", "/", "~")):
        raise UserError(f"there is no folder {folder}")
    try:
        return Path(snapshot_download(str(folder), allow_patterns=["config.json", "*.safetensors", "*.safetensors.index.json", *BESIDE]))
    except HFValidationError as error:
        raise UserError(f"there is no folder {folder}") from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise UserError(
            f"there is no folder {folder}, and no model of that name could be downloaded ({type(error).__name__}): "
            "download it where there is a network and give the folder that holds its config.json"
        ) from error


def describe(folder: str | Path, param_dtype: Any = "float32", compute_dtype: Any = "float32") -> Decoder:
    """The policy of a folder, from its config.json alone. Raises UserError where that is missing or not supported."""
    path = find(folder)
    try:
        data = json.loads((path / "config.json").read_text())
        hf = AutoConfig.from_pretrained(str(path), local_files_only=True)
    except FileNotFoundError as error:
        raise UserError(f"{path} holds no config.json: give the folder of a Hugging Face model") from error
    except Exception as error:  # transformers validates fields with errors of many kinds
        raise UserError(f"{path / 'config.json'} cannot be read: {' '.join(str(error).split())}") from error
    try:
        config = config_of(hf)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    config = dataclasses.replace(config, param_dtype=_name(param_dtype), compute_dtype=_name(compute_dtype))
    files = {name: (path / name).read_bytes() for name in BESIDE if (path / name).is_file()}
    return dataclasses.replace(config.build(hf.vocab_size), origin=Origin(data, files))


def _name(dtype: Any) -> str:
    """Of a dtype or of what numpy takes for one; a name that it does not know is left for the config to refuse."""
    try:
        return jnp.dtype(dtype).name
    except TypeError:
        return str(dtype)


def load(
    folder: str | Path, mesh: Mesh | None = None, param_dtype: Any = "float32", compute_dtype: Any = "float32"
) -> tuple[Decoder, Params]:
    """The policy and parameters of a Hugging Face folder, or of a hub's name where there is a network.

    Weights go straight into arrays sharded over `mesh` (None: the default device), each process reading only the slices it
    holds, one layer's tensor at a time.

    Raises:
        UserError: a file is missing or truncated, the architecture is not supported, or the weights are not what the
            config describes; names the tensor.
    """
    path = find(folder)
    policy = describe(path, param_dtype, compute_dtype)
    tensors, names = Tensors(path), layouts(policy.config)
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    check_all_used(tensors, names, shapes, IGNORED)
    shardings = None if mesh is None else weight_shardings(mesh, policy.axes(), shapes)
    return policy, load_tree(tensors, names, shapes, shardings, policy.config.param_dtype)


def save(folder: str | Path, policy: Decoder, params: Params) -> None:
    """Write a folder that `transformers` and `load` read, with the tokenizer that the policy came with. Process 0 writes.

    Raises:
        UserError: the folder holds a model already, or no Hugging Face family describes the policy.
    """
    path = Path(folder).expanduser()
    if any(path.glob("*.safetensors")):
        raise UserError(f"{path} holds a model already: remove it, or save to another folder")
    data = policy.origin.config if policy.origin else json_of(policy.config, policy.vocab_size)
    old = "torch_dtype" in data
    data = data | {"torch_dtype" if old else "dtype": jnp.dtype(params["embedding"].dtype).name}
    if jax.process_index() == 0:
        path.mkdir(parents=True, exist_ok=True)
        for name, content in (policy.origin.files if policy.origin else {}).items():
            (path / name).write_bytes(content)
        (path / "config.json").write_text(json.dumps(data, indent=2) + "\n")
    save_tensors(path, stored(layouts(policy.config), params))
