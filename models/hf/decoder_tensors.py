"""The names and layouts of a decoder's tensors in a Hugging Face folder."""

from typing import Any

from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.decoder_architecture import layer_stacks
from agentrl_jax.models.hf.tensor_layout import TensorLayout

ATTENTION_MODULES = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "o_proj"}
MLP_MODULES = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
# old files contain the first, some with tied heads the second
IGNORED_TENSORS = ("rotary_emb.inv_freq", "lm_head.weight")


def decoder_layouts(
    config: DecoderConfig, prefix: str = "model.", head: str = "lm_head.weight"
) -> dict[str, Any]:
    """The tensors of each weight in a Hugging Face folder: a tree like the stacked parameters.

    Args:
        config: the decoder.
        prefix: of the tensors' names.
        head: the name of the output head's.
    """
    tree: dict[str, Any] = {
        "embedding": TensorLayout(f"{prefix}embed_tokens.weight"),
        "final_norm": {"scale": TensorLayout(f"{prefix}norm.weight")},
    }
    if not config.tied_head:
        tree["head"] = TensorLayout(head)
    for stack in layer_stacks(config):
        tree[stack.name] = _layer_layouts(config, prefix, stack.sparse, stack.start)
    return tree


def _layer_layouts(c: DecoderConfig, prefix: str, sparse: bool, start: int) -> dict[str, Any]:
    def layout(name: str, inner: int = 0, flat: bool = False, stack: int = 1) -> TensorLayout:
        return TensorLayout(f"{prefix}layers.{{0}}.{name}", inner, stack, start, flat)

    def norm(name: str) -> dict[str, Any]:
        return {"scale": layout(f"{name}.weight")}

    attention: dict[str, Any] = {
        ours: layout(f"self_attn.{theirs}.weight", 2 if ours == "out" else 1)
        for ours, theirs in ATTENTION_MODULES.items()
    }
    biased = [name for name in ATTENTION_MODULES if (c.out_bias if name == "out" else c.qkv_bias)]
    attention |= {
        f"{name}_bias": layout(f"self_attn.{ATTENTION_MODULES[name]}.bias", flat=True)
        for name in biased
    }
    if c.qk_norm:
        attention |= {"query_norm": norm("self_attn.q_norm"), "key_norm": norm("self_attn.k_norm")}
    if sparse:
        mlp = {
            ours: layout(f"mlp.experts.{{1}}.{theirs}.weight", 1, stack=2)
            for ours, theirs in MLP_MODULES.items()
        }
        mlp["router"] = layout("mlp.gate.weight", 1)
    else:
        mlp = {ours: layout(f"mlp.{theirs}.weight", 1) for ours, theirs in MLP_MODULES.items()}
        mlp |= {
            f"{ours}_bias": layout(f"mlp.{theirs}.bias")
            for ours, theirs in MLP_MODULES.items()
            if c.mlp_bias
        }
    layer: dict[str, Any] = {
        "attention": attention,
        "mlp": mlp,
        "attention_norm": norm("input_layernorm"),
    }
    if not c.post_norms:
        return layer | {"mlp_norm": norm("post_attention_layernorm")}
    return layer | {
        "attention_post_norm": norm("post_attention_layernorm"),
        "mlp_norm": norm("pre_feedforward_layernorm"),
        "mlp_post_norm": norm("post_feedforward_layernorm"),
    }
