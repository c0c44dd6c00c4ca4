"""Encoders in Hugging Face folders of the BERT and RoBERTa families: BERT, MiniLM, RoBERTa,
DistilRoBERTa, XLM-R.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Key
from transformers import AutoConfig

from agentrl_jax.distributed.sharding import weight_shardings
from agentrl_jax.errors import UserError
from agentrl_jax.models.encoder import EncoderConfig, PoolingFn, TextEncoder, first_token_pooling
from agentrl_jax.models.hf.folder import resolve_folder
from agentrl_jax.models.hf.parameter_trees import check_all_used, load_tree
from agentrl_jax.models.hf.safetensors import SafetensorsFolder
from agentrl_jax.models.hf.tensor_layout import TensorLayout
from agentrl_jax.policy import Params

MODEL_TYPES = ("bert", "roberta", "xlm-roberta")
PREFIXES = ("bert.", "roberta.")  # of tensors' names in models with a head
POOLER_WEIGHTS = ("pooler", "pooler_bias")


def config_from_hf(hf: Any) -> EncoderConfig:
    """The encoder that a `transformers` config describes.

    Raises:
        UserError: it describes another kind of model.
    """
    if hf.model_type not in MODEL_TYPES:
        raise UserError(
            f"config.json: the architecture {hf.model_type!r} is no encoder that can be read, "
            f"only {', '.join(MODEL_TYPES)}"
        )
    if hf.hidden_act != "gelu":
        raise UserError(
            f"config.json: the activation {hf.hidden_act!r} is not supported in an encoder, "
            "only gelu"
        )
    if hf.is_decoder or getattr(hf, "position_embedding_type", "absolute") != "absolute":
        raise UserError(
            "config.json: an encoder must look both ways (is_decoder false) and have absolute "
            "positions"
        )
    return EncoderConfig(
        layers=hf.num_hidden_layers,
        width=hf.hidden_size,
        hidden=hf.intermediate_size,
        heads=hf.num_attention_heads,
        positions=hf.max_position_embeddings,
        pad_id=hf.pad_token_id,
        first_position=0 if hf.model_type == "bert" else None,
        token_types=hf.type_vocab_size,
        norm_eps=hf.layer_norm_eps,
    )


def tensor_layouts(prefix: str = "") -> Any:
    """The tensors of each weight, the pooler's included, in a folder whose tensors' names start
    with `prefix`.
    """

    def dense(name: str, hf_name: str, inner: int = 1) -> dict[str, TensorLayout]:
        module = f"{prefix}encoder.layer.{{0}}.{hf_name}."
        return {
            name: TensorLayout(module + "weight", inner, 1),
            f"{name}_bias": TensorLayout(module + "bias", stack_axes=1, is_flattened=True),
        }

    def norm(parent: str, stack: int = 1) -> dict[str, TensorLayout]:
        module = f"{prefix}{parent}.LayerNorm."
        return {
            "scale": TensorLayout(module + "weight", stack_axes=stack),
            "bias": TensorLayout(module + "bias", stack_axes=stack),
        }

    layer: dict[str, Any] = {
        "attention_norm": norm("encoder.layer.{0}.attention.output"),
        "mlp_norm": norm("encoder.layer.{0}.output"),
    }
    for name in ("query", "key", "value"):
        layer |= dense(name, f"attention.self.{name}")
    layer |= (
        dense("out", "attention.output.dense", 2)
        | dense("up", "intermediate.dense")
        | dense("down", "output.dense")
    )
    return {
        "embedding": TensorLayout(f"{prefix}embeddings.word_embeddings.weight"),
        "positions": TensorLayout(f"{prefix}embeddings.position_embeddings.weight"),
        "token_types": TensorLayout(f"{prefix}embeddings.token_type_embeddings.weight"),
        "embedding_norm": norm("embeddings", 0),
        "layers": layer,
        "pooler": TensorLayout(f"{prefix}pooler.dense.weight", 1),
        "pooler_bias": TensorLayout(f"{prefix}pooler.dense.bias"),
    }


def read_encoder(
    folder: str | Path,
    pooling: PoolingFn = first_token_pooling,
    param_dtype: Any = "float32",
    compute_dtype: Any = "float32",
) -> TextEncoder:
    """The encoder of a folder, from its config.json alone.

    Raises:
        UserError: that is not an encoder's.
    """
    path = resolve_folder(folder)
    try:
        hf = AutoConfig.from_pretrained(str(path), local_files_only=True)
    except Exception as error:  # transformers validates fields with errors of many kinds
        raise UserError(
            f"{path / 'config.json'} cannot be read: {str(error).splitlines()[0]}"
        ) from error
    config = config_from_hf(hf)
    config.pooling = pooling
    config.param_dtype = jnp.dtype(param_dtype).name
    config.compute_dtype = jnp.dtype(compute_dtype).name
    return config.build(hf.vocab_size)


def load_encoder(
    folder: str | Path,
    mesh: Mesh | None = None,
    pooling: PoolingFn = first_token_pooling,
    param_dtype: Any = "float32",
    compute_dtype: Any = "float32",
    key: Key[Array, ""] | None = None,
) -> tuple[TextEncoder, Params]:
    """The encoder and parameters of a folder, or of a model's name on the hub; its heads are
    ignored.

    Args:
        folder: a path, or `owner/name` of a model on the hub.
        mesh: over which weights are sharded; None: the default device.
        pooling: makes one vector of a text.
        param_dtype: of the weights.
        compute_dtype: of activations and matrix products.
        key: initializes weights of the pooling that the folder lacks (many have no pooler, which
            pre-training does not train).

    Raises:
        UserError: a file is missing or truncated, the folder holds no such encoder or other weights
            than its config describes, or weights of the pooling are missing and there is no key.
    """
    path = resolve_folder(folder)
    encoder = read_encoder(path, pooling, param_dtype, compute_dtype)
    tensors = SafetensorsFolder(path)
    prefix = next((x for x in PREFIXES if any(n.startswith(x) for n in tensors.shapes)), "")
    shapes = jax.eval_shape(encoder.init, jax.random.key(0))
    names = {name: layout for name, layout in tensor_layouts(prefix).items() if name in shapes}
    if f"{prefix}pooler.dense.weight" not in tensors.shapes:
        names = {name: layout for name, layout in names.items() if name not in POOLER_WEIGHTS}
    stored = {name: shapes[name] for name in names}
    heads = [name for name in tensors.shapes if not name.startswith(prefix)]
    ignored = [*heads, "pooler.dense.weight", "pooler.dense.bias", "embeddings.position_ids"]
    check_all_used(tensors, names, stored, ignored)
    shardings = None if mesh is None else weight_shardings(mesh, encoder.axes(), shapes)
    stored_shardings = shardings and {name: shardings[name] for name in names}
    params = load_tree(tensors, names, stored, stored_shardings, encoder.config.param_dtype)
    missing = [name for name in shapes if name not in names]
    if not missing:
        return encoder, params
    if key is None:
        raise UserError(
            f"{path} holds no weights for the pooling ({', '.join(missing)}): "
            "give a key to start them, or pool by first_token_pooling"
        )
    fresh = jax.jit(
        lambda key: {name: encoder.init(key)[name] for name in missing},
        out_shardings=shardings and {n: shardings[n] for n in missing},
    )
    return encoder, params | fresh(key)
