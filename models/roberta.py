"""Encoders in Hugging Face folders of the RoBERTa family: RoBERTa, DistilRoBERTa, XLM-R."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Key
from transformers import AutoConfig

from agentrl_jax.errors import UserError
from agentrl_jax.models.encoder import EncoderConfig, Pool, TextEncoder, first_token
from agentrl_jax.models.folder import find
from agentrl_jax.models.weights import Layout, Tensors, check_all_used, load_tree
from agentrl_jax.policy import Params
from agentrl_jax.sharding import weight_shardings

KINDS = ("roberta", "xlm-roberta")
POOLER = ("pooler", "pooler_bias")


def config_of(hf: Any) -> EncoderConfig:
    """The encoder that a `transformers` config describes. Raises UserError where none does."""
    if hf.model_type not in KINDS:
        raise UserError(f"config.json: the architecture {hf.model_type!r} is no encoder that can be read, only {', '.join(KINDS)}")
    if hf.hidden_act != "gelu":
        raise UserError(f"config.json: the activation {hf.hidden_act!r} is not supported in an encoder, only gelu")
    if hf.is_decoder or getattr(hf, "position_embedding_type", "absolute") != "absolute":
        raise UserError("config.json: an encoder must look both ways (is_decoder false) and have absolute positions")
    return EncoderConfig(
        layers=hf.num_hidden_layers, width=hf.hidden_size, hidden=hf.intermediate_size, heads=hf.num_attention_heads,
        positions=hf.max_position_embeddings, pad_id=hf.pad_token_id, token_types=hf.type_vocab_size, norm_eps=hf.layer_norm_eps,
    )  # fmt: skip


def layouts(prefix: str = "") -> Any:
    """Where each weight lies in a folder whose tensors' names start with `prefix`, the pooler's too."""

    def dense(name: str, theirs: str, inner: int = 1) -> dict[str, Layout]:
        where = f"{prefix}encoder.layer.{{0}}.{theirs}."
        return {name: Layout(where + "weight", inner, 1), f"{name}_bias": Layout(where + "bias", stack=1, flat=True)}

    def norm(where: str, stack: int = 1) -> dict[str, Layout]:
        where = f"{prefix}{where}.LayerNorm."
        return {"scale": Layout(where + "weight", stack=stack), "bias": Layout(where + "bias", stack=stack)}

    layer: dict[str, Any] = {"attention_norm": norm("encoder.layer.{0}.attention.output"), "mlp_norm": norm("encoder.layer.{0}.output")}
    for name in ("query", "key", "value"):
        layer |= dense(name, f"attention.self.{name}")
    layer |= dense("out", "attention.output.dense", 2) | dense("up", "intermediate.dense") | dense("down", "output.dense")
    return {
        "embedding": Layout(f"{prefix}embeddings.word_embeddings.weight"),
        "positions": Layout(f"{prefix}embeddings.position_embeddings.weight"),
        "token_types": Layout(f"{prefix}embeddings.token_type_embeddings.weight"),
        "embedding_norm": norm("embeddings", 0),
        "layers": layer,
        "pooler": Layout(f"{prefix}pooler.dense.weight", 1),
        "pooler_bias": Layout(f"{prefix}pooler.dense.bias"),
    }


def describe_encoder(
    folder: str | Path, pool: Pool = first_token, param_dtype: Any = "float32", compute_dtype: Any = "float32"
) -> TextEncoder:
    """The encoder of a folder, from its config.json alone. Raises UserError where that is none of an encoder."""
    path = find(folder)
    try:
        hf = AutoConfig.from_pretrained(str(path), local_files_only=True)
    except Exception as error:  # transformers validates fields with errors of many kinds
        raise UserError(f"{path / 'config.json'} cannot be read: {str(error).splitlines()[0]}") from error
    config = config_of(hf)
    config.pool, config.param_dtype, config.compute_dtype = pool, jnp.dtype(param_dtype).name, jnp.dtype(compute_dtype).name
    return config.build(hf.vocab_size)


def load_encoder(
    folder: str | Path, mesh: Mesh | None = None, pool: Pool = first_token, param_dtype: Any = "float32", compute_dtype: Any = "float32",
    key: Key[Array, ""] | None = None,
) -> tuple[TextEncoder, Params]:  # fmt: skip
    """The encoder and parameters of a folder, or of a hub's name where there is a network; heads beside it are left out.

    Weights go straight into arrays sharded over `mesh` (None: the default device). What `pool` needs and the folder lacks
    (many hold no pooler, which pre-training does not train) is started from `key`.

    Raises:
        UserError: a file is missing or truncated, the folder holds no such encoder or other weights than its config
            describes, or weights of the pooling are missing and there is no key.
    """
    path = find(folder)
    encoder, tensors = describe_encoder(path, pool, param_dtype, compute_dtype), Tensors(path)
    prefix = "roberta." if any(name.startswith("roberta.") for name in tensors.shapes) else ""
    shapes = jax.eval_shape(encoder.init, jax.random.key(0))
    names = {name: layout for name, layout in layouts(prefix).items() if name in shapes}
    if f"{prefix}pooler.dense.weight" not in tensors.shapes:
        names = {name: layout for name, layout in names.items() if name not in POOLER}
    held = {name: shapes[name] for name in names}
    others = [name for name in tensors.shapes if not name.startswith(prefix)]  # heads
    check_all_used(tensors, names, held, [*others, "pooler.dense.weight", "pooler.dense.bias", "embeddings.position_ids"])
    shardings = None if mesh is None else weight_shardings(mesh, encoder.axes(), shapes)
    params = load_tree(tensors, names, held, shardings and {name: shardings[name] for name in names}, encoder.config.param_dtype)
    missing = [name for name in shapes if name not in names]
    if not missing:
        return encoder, params
    if key is None:
        raise UserError(f"{path} holds no weights for the pooling ({', '.join(missing)}): give a key to start them, or pool by first_token")
    fresh = jax.jit(
        lambda key: {name: encoder.init(key)[name] for name in missing}, out_shardings=shardings and {n: shardings[n] for n in missing}
    )
    return encoder, params | fresh(key)
