"""The names and layouts of the tensors of a decoder that sees, in a Hugging Face folder."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.models.hf.decoder_tensors import decoder_layouts
from agentrl_jax.models.hf.tensor_layout import TensorLayout
from agentrl_jax.models.vision.config import VisionConfig, vision_stacks
from agentrl_jax.models.vision.policy import VISION, VisionLanguageConfig


@dataclass(frozen=True)
class TensorPrefixes:
    """How the names of a folder's tensors begin."""

    decoder: str
    head: str  # the whole name
    tower: str
    projector: str


@dataclass(frozen=True)
class VisionNames:
    """The names of a family's tensors after their prefixes, and the prefixes in use: those that
    `transformers` saves first. `modules` is the index of those of its modules.
    """

    prefixes: tuple[TensorPrefixes, ...]
    modules: int
    patch_embedding: str
    layers: str
    attention_norm: str
    mlp_norm: str
    attention: dict[str, str]
    mlp: dict[str, str]
    projector: dict[str, str]
    positions: str = ""
    final_norm: str = ""


_MODULES = TensorPrefixes(
    "model.language_model.", "lm_head.weight", "model.visual.", "model.visual.merger."
)
_FLAT = TensorPrefixes("model.", "lm_head.weight", "visual.", "visual.merger.")
QWEN2_5_VL = VisionNames(
    prefixes=(_FLAT, _MODULES),
    modules=1,
    patch_embedding="patch_embed.proj",
    layers="blocks",
    attention_norm="norm1",
    mlp_norm="norm2",
    attention={"qkv": "attn.qkv", "out": "attn.proj"},
    mlp={"gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"},
    projector={"norm": "ln_q", "up": "mlp.0", "down": "mlp.2"},
)
QWEN3_VL = VisionNames(
    prefixes=(_MODULES, _FLAT),
    modules=0,
    patch_embedding="patch_embed.proj",
    layers="blocks",
    attention_norm="norm1",
    mlp_norm="norm2",
    attention={"qkv": "attn.qkv", "out": "attn.proj"},
    mlp={"up": "mlp.linear_fc1", "down": "mlp.linear_fc2"},
    projector={"norm": "norm", "up": "linear_fc1", "down": "linear_fc2"},
    positions="pos_embed.weight",
)
GEMMA3 = VisionNames(
    prefixes=tuple(
        TensorPrefixes(
            decoder, head, f"{root}vision_tower.{tower}", f"{root}multi_modal_projector."
        )
        for decoder, head, root in (
            ("language_model.model.", "language_model.lm_head.weight", ""),
            ("model.language_model.", "lm_head.weight", "model."),
        )
        for tower in ("", "vision_model.")
    ),
    modules=2,
    patch_embedding="embeddings.patch_embedding",
    layers="encoder.layers",
    attention_norm="layer_norm1",
    mlp_norm="layer_norm2",
    attention={
        "query": "self_attn.q_proj",
        "key": "self_attn.k_proj",
        "value": "self_attn.v_proj",
        "out": "self_attn.out_proj",
    },
    mlp={"up": "mlp.fc1", "down": "mlp.fc2"},
    projector={"norm": "mm_soft_emb_norm", "down": "mm_input_projection_weight"},
    positions="embeddings.position_embedding.weight",
    final_norm="post_layernorm",
)


def names_of(config: VisionLanguageConfig) -> VisionNames:
    """The names of the family whose tower has these options."""
    if config.vision.average_pooling:
        return GEMMA3
    return QWEN2_5_VL if config.vision.rms_norm else QWEN3_VL


def vision_layouts(
    config: VisionLanguageConfig, stored: Collection[str] | None = None
) -> dict[str, Any]:
    """The tensors of each weight: a tree like the stacked parameters.

    Args:
        config: the policy.
        stored: names of a folder's tensors, of which the prefixes are taken; None: those that
            `transformers` saves.

    Raises:
        UserError: none of the known prefixes is there.
    """
    names = names_of(config)
    prefixes = names.prefixes[0] if stored is None else _find_prefixes(names, stored)
    return _layouts(config, names, prefixes)


def vision_module_layouts(config: VisionLanguageConfig) -> list[dict[str, Any]]:
    """The tensors of each weight as `transformers` calls its modules, and as other versions do."""
    names = names_of(config)
    first = names.prefixes[names.modules]
    others = [prefixes for prefixes in names.prefixes if prefixes != first]
    return [_layouts(config, names, prefixes) for prefixes in (first, *others)]


def _layouts(
    config: VisionLanguageConfig, names: VisionNames, prefixes: TensorPrefixes
) -> dict[str, Any]:
    tower = _tower_layouts(config.vision, names, prefixes)
    return decoder_layouts(config, prefixes.decoder, prefixes.head) | {VISION: tower}


def _find_prefixes(names: VisionNames, stored: Collection[str]) -> TensorPrefixes:
    for p in names.prefixes:
        tensors = f"{p.decoder}embed_tokens.weight", f"{p.tower}{names.patch_embedding}.weight"
        if all(name in stored for name in tensors):
            return p
    expected = " or ".join(f"{p.tower}{names.patch_embedding}.weight" for p in names.prefixes)
    raise UserError(f"the folder holds no vision tower: there is no tensor {expected}")


def _tower_layouts(c: VisionConfig, names: VisionNames, prefixes: TensorPrefixes) -> dict[str, Any]:
    patch = (c.channels, c.patch_size, c.patch_size)
    if not c.average_pooling:  # a convolution in time too
        patch = (c.channels, c.temporal_patch_size, c.patch_size, c.patch_size)
    embedding = f"{prefixes.tower}{names.patch_embedding}"
    tree: dict[str, Any] = {
        "patch_embedding": TensorLayout(f"{embedding}.weight", 1, inner_shape=patch),
        "projector": _projector_layouts(c, names, prefixes.projector),
    }
    if c.patch_bias:
        tree["patch_embedding_bias"] = TensorLayout(f"{embedding}.bias")
    if c.position_side:
        tree["positions"] = TensorLayout(f"{prefixes.tower}{names.positions}")
    if c.final_norm:
        tree["final_norm"] = _norm(c, f"{prefixes.tower}{names.final_norm}")
    for number in range(len(c.deepstack_layers)):
        module = f"{prefixes.tower}deepstack_merger_list.{number}."
        tree[f"deepstack_{number}"] = _projector_layouts(c, names, module)
    for stack in vision_stacks(c):
        module = f"{prefixes.tower}{names.layers}.{{0}}."
        attention = {
            key: value
            for ours, theirs in names.attention.items()
            for key, value in _dense(
                ours, module + theirs, 2 if ours == "out" else 1, 1, stack.start
            ).items()
        }
        mlp = {
            key: value
            for ours, theirs in names.mlp.items()
            for key, value in _dense(ours, module + theirs, 1, 1, stack.start).items()
        }
        tree[stack.name] = attention | {
            "mlp": mlp,
            "attention_norm": _norm(c, module + names.attention_norm, 1, stack.start),
            "mlp_norm": _norm(c, module + names.mlp_norm, 1, stack.start),
        }
    return tree


def _projector_layouts(c: VisionConfig, names: VisionNames, prefix: str) -> dict[str, Any]:
    norm = prefix + names.projector["norm"]
    if c.average_pooling:  # RMSNorm, whatever the tower's are, and a matrix as it is
        return {
            "norm": {"scale": TensorLayout(f"{norm}.weight")},
            "down": TensorLayout(prefix + names.projector["down"]),
        }
    dense = {
        key: value
        for ours in ("up", "down")
        for key, value in _dense(ours, prefix + names.projector[ours]).items()
    }
    return {"norm": _norm(c, norm)} | dense


def _dense(
    name: str, module: str, inner: int = 1, stack: int = 0, start: int = 0
) -> dict[str, TensorLayout]:
    return {
        name: TensorLayout(f"{module}.weight", inner, stack, start),
        f"{name}_bias": TensorLayout(f"{module}.bias", 0, stack, start, True),
    }


def _norm(c: VisionConfig, module: str, stack: int = 0, start: int = 0) -> dict[str, TensorLayout]:
    scale = {"scale": TensorLayout(f"{module}.weight", 0, stack, start)}
    return (
        scale if c.rms_norm else scale | {"bias": TensorLayout(f"{module}.bias", 0, stack, start)}
    )
