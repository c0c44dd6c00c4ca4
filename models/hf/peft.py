"""Adapters in the folders of the `peft` library: adapter_config.json and
adapter_model.safetensors.
"""

import json
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from agentrl_jax.distributed.sharding import weight_shardings
from agentrl_jax.errors import UserError
from agentrl_jax.models.adapters import LoraConfig, LoraPolicy
from agentrl_jax.models.decoder import Decoder
from agentrl_jax.models.hf.decoder_tensors import ATTENTION_MODULES, MLP_MODULES
from agentrl_jax.models.hf.parameter_trees import (
    check_all_used,
    load_tree,
    save_tensors,
    tensors_to_save,
)
from agentrl_jax.models.hf.policy_tensors import tensor_layouts
from agentrl_jax.models.hf.safetensors import SafetensorsFolder
from agentrl_jax.models.hf.tensor_layout import TensorLayout

PEFT_MODULES = ATTENTION_MODULES | MLP_MODULES  # PEFT's module of each weight
DEFAULT_ADAPTER_CONFIG = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "bias": "none",
    "fan_in_fan_out": False,
    "inference_mode": True,
    "use_dora": False,
    "use_rslora": False,
    "modules_to_save": None,
    "rank_pattern": {},
    "alpha_pattern": {},
    "layers_to_transform": None,
}
ADAPTER_FILE = "adapter_model.safetensors"


def adapter_layouts(policy: LoraPolicy) -> Any:
    """The tensors of each adapter's two matrices: a tree like the adapters.

    Raises:
        UserError: PEFT has no module for an adapted weight.
    """
    unsupported = [name for name in policy.config.targets if name not in PEFT_MODULES]
    if policy.base.config.experts:
        unsupported.append("experts")
    if policy.image_format is not None:  # names of its tower's modules are those of the decoder's
        unsupported.append("a model that sees")
    if unsupported:
        raise UserError(
            f"PEFT's format has no place for adapters of {unsupported[0]}: "
            "save merged weights instead"
        )

    def walk(adapters: Any, base: Any) -> Any:
        if isinstance(base, TensorLayout):
            name = "base_model.model." + base.name.removesuffix(".weight")
            down, up = (f"{name}.lora_{letter}.weight" for letter in "AB")
            return {
                "down": TensorLayout(down, base.contracted_axes, base.stack_axes, base.first_index),
                "up": TensorLayout(up, 1, base.stack_axes, base.first_index),
            }
        return {name: walk(part, base[name]) for name, part in adapters.items()}

    return walk(policy.axes()["adapters"], tensor_layouts(policy.base.config))


def save_adapters(
    folder: str | Path, policy: LoraPolicy, adapters: Any, base_model: str = ""
) -> None:
    """Write a folder that `peft` and `load_adapters` read; `base_model` names the adapted model.
    Process 0 writes.

    Raises:
        UserError: PEFT has no module for an adapted weight.
    """
    path, c = Path(folder).expanduser(), policy.config
    tensors = tensors_to_save(adapter_layouts(policy), adapters)
    config = DEFAULT_ADAPTER_CONFIG | {
        "base_model_name_or_path": base_model,
        "r": c.rank,
        "lora_alpha": c.alpha,
        "lora_dropout": c.dropout,
        "target_modules": sorted(PEFT_MODULES[name] for name in c.targets),
    }
    if jax.process_index() == 0:
        path.mkdir(parents=True, exist_ok=True)
        (path / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_tensors(path, tensors, name=ADAPTER_FILE)


def load_adapters(
    folder: str | Path, base: Decoder, mesh: Mesh | None = None
) -> tuple[LoraPolicy, Any]:
    """The adapted policy and its adapters; `{"base": ..., "adapters": ...}` are its parameters.

    Raises:
        UserError: a file is missing or damaged, or the adapters are of a kind that is not
            supported.
    """
    path = Path(folder).expanduser()
    config = _read_lora_config(path, base)
    policy, tensors = LoraPolicy(base, config), SafetensorsFolder(path)
    names, shapes = adapter_layouts(policy), jax.eval_shape(policy.init_adapters, jax.random.key(0))
    check_all_used(tensors, names, shapes)
    shardings = None if mesh is None else weight_shardings(mesh, policy.axes()["adapters"], shapes)
    return policy, load_tree(tensors, names, shapes, shardings, "float32")


def _read_lora_config(path: Path, base: Decoder) -> LoraConfig:
    """The config of a folder's adapter_config.json."""
    try:
        data = json.loads((path / "adapter_config.json").read_text())
        rank, alpha = int(data["r"]), float(data["lora_alpha"])
        dropout = float(data.get("lora_dropout") or 0.0)
        modules = data["target_modules"]
    except FileNotFoundError as error:
        raise UserError(
            f"{path} holds no adapter_config.json: give the folder of a PEFT adapter"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path / 'adapter_config.json'} is damaged") from error
    for name in (
        "peft_type",
        "bias",
        "fan_in_fan_out",
        "use_dora",
        "use_rslora",
        "modules_to_save",
        "rank_pattern",
        "alpha_pattern",
    ):
        if (data.get(name) or DEFAULT_ADAPTER_CONFIG[name]) != DEFAULT_ADAPTER_CONFIG[name]:
            raise UserError(f"{path}: adapters with {name} = {data[name]!r} are not supported")
    unknown = [modules]  # a pattern, such as "all-linear"
    if isinstance(modules, list):
        unknown = [name for name in modules if name not in PEFT_MODULES.values()]
    if unknown:
        raise UserError(
            f"{path}: adapters of {unknown[0]!r} are not supported, "
            f"only of {', '.join(PEFT_MODULES.values())}"
        )
    targets = tuple(name for name in PEFT_MODULES if PEFT_MODULES[name] in modules)
    return LoraConfig(base.config, rank, alpha, dropout, targets)
