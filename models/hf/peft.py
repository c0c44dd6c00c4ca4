"""Adapters in the folders of the `peft` library: adapter_config.json and
adapter_model.safetensors.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from agentrl_jax.distributed.sharding import weight_shardings
from agentrl_jax.errors import UserError
from agentrl_jax.models.adapter_targets import matrix_shapes_and_axes, target_name
from agentrl_jax.models.adapters import PROJECTIONS, LoraConfig, LoraPolicy
from agentrl_jax.models.decoder import Decoder
from agentrl_jax.models.hf.parameter_trees import (
    check_all_used,
    load_tree,
    save_tensors,
    tensors_to_save,
)
from agentrl_jax.models.hf.policy_tensors import module_layouts
from agentrl_jax.models.hf.safetensors import SafetensorsFolder
from agentrl_jax.models.hf.tensor_layout import TensorLayout
from agentrl_jax.models.vision.policy import VISION

PREFIX = "base_model.model."  # of PEFT's names of modules
LINEAR_MODULES = (*PROJECTIONS, *(f"{VISION}.{name}" for name in ("qkv", *PROJECTIONS)))
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


def adapter_layouts(policy: LoraPolicy, layouts: Any) -> Any:
    """The tensors of each adapter's two matrices: a tree like the adapters.

    Args:
        policy: the adapted policy.
        layouts: the modules of its weights, see `module_layouts`.

    Raises:
        UserError: PEFT has no module for an adapted weight.
    """

    def walk(adapters: Any, base: Any, *path: str) -> Any:
        if isinstance(base, TensorLayout):
            if not _is_linear(path, base):
                raise UserError(
                    f"PEFT's format has no place for adapters of {target_name(path)} "
                    f"({base.name}): save merged weights instead"
                )
            name = PREFIX + base.name.removesuffix(".weight")
            down, up = (f"{name}.lora_{letter}.weight" for letter in "AB")
            return {
                "down": TensorLayout(down, base.contracted_axes, base.stack_axes, base.first_index),
                "up": TensorLayout(up, 1, base.stack_axes, base.first_index),
            }
        return {name: walk(part, base[name], *path, name) for name, part in adapters.items()}

    return walk(policy.axes()["adapters"], layouts)


def _is_linear(path: tuple[str, ...], layout: TensorLayout) -> bool:
    """Whether each tensor of a weight is that of a linear layer."""
    is_expert = layout.stack_axes > 1
    named = target_name(path) in LINEAR_MODULES and layout.name.endswith(".weight")
    return named and not is_expert


def _modules_and_targets(base: Decoder, layouts: Any) -> dict[str, str]:
    """The modules to which PEFT may add adapters, and what `LoraConfig.targets` calls them."""
    target_of_module = {}
    for path, (shape, _) in matrix_shapes_and_axes(base).items():
        layout = functools.reduce(lambda tree, name: tree[name], path, layouts)
        if _is_linear(path, layout):
            names = layout.tensor_names(shape)
            target_of_module |= {name.removesuffix(".weight"): target_name(path) for name in names}
    return target_of_module


def save_adapters(
    folder: str | Path, policy: LoraPolicy, adapters: Any, base_model: str = ""
) -> None:
    """Write a folder that `peft` and `load_adapters` read; `base_model` names the adapted model.
    Process 0 writes.

    Raises:
        UserError: PEFT has no module for an adapted weight.
    """
    path, c = Path(folder).expanduser(), policy.config
    layouts = adapter_layouts(policy, module_layouts(policy.base.config)[0])
    tensors = tensors_to_save(layouts, adapters)
    config = DEFAULT_ADAPTER_CONFIG | {
        "base_model_name_or_path": base_model,
        "r": c.rank,
        "lora_alpha": c.alpha,
        "lora_dropout": c.dropout,
        "target_modules": _target_modules(policy, layouts),
    }
    if jax.process_index() == 0:
        path.mkdir(parents=True, exist_ok=True)
        (path / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_tensors(path, tensors, name=ADAPTER_FILE)


def _target_modules(policy: LoraPolicy, layouts: Any) -> list[str] | str:
    """The last names of the modules with adapters; where a vision tower has modules of the same
    names, an expression for the whole names, which PEFT matches.
    """
    leaves = jax.tree.leaves(layouts, is_leaf=lambda x: isinstance(x, TensorLayout))
    modules = {_module(layout.name) for layout in leaves}
    if policy.image_format is None:
        return sorted({name.rsplit(".", 1)[1] for name in modules})
    any_layer = re.escape("{0}")
    return "|".join(sorted(re.escape(name).replace(any_layer, r"\d+") for name in modules))


def _module(tensor: str) -> str:
    """The adapted module of a tensor `base_model.model.<module>.lora_A.weight`."""
    return tensor.removeprefix(PREFIX).rsplit(".", 2)[0]


def load_adapters(
    folder: str | Path, base: Decoder, mesh: Mesh | None = None
) -> tuple[LoraPolicy, Any]:
    """The adapted policy and its adapters; `{"base": ..., "adapters": ...}` are its parameters.

    Raises:
        UserError: a file is missing or damaged, or the adapters are of a kind that is not
            supported.
    """
    path = Path(folder).expanduser()
    config, listed = _read_lora_config(path, base)
    tensors = SafetensorsFolder(path)
    layouts, targets = _find_targets(tensors, base, listed)
    policy = LoraPolicy(base, dataclasses.replace(config, targets=targets))
    names = adapter_layouts(policy, layouts)
    shapes = jax.eval_shape(policy.init_adapters, jax.random.key(0))
    check_all_used(tensors, names, shapes)
    shardings = None if mesh is None else weight_shardings(mesh, policy.axes()["adapters"], shapes)
    return policy, load_tree(tensors, names, shapes, shardings, "float32")


def _find_targets(
    tensors: SafetensorsFolder, base: Decoder, listed: Collection[str]
) -> tuple[Any, tuple[str, ...]]:
    """The modules of the base's weights as the tensors call them, and the adapted weights.

    Args:
        tensors: of the adapters.
        base: the adapted policy.
        listed: names, or their ends, of modules of which there must be adapters.
    """
    stored = {_module(name) for name in tensors.shapes}
    for name in listed:
        if not any(module == name or module.endswith(f".{name}") for module in stored):
            raise UserError(
                f"{tensors.folder}: adapter_config.json names adapters of {name!r}, "
                f"{ADAPTER_FILE} holds none"
            )
    unknown = stored
    for layouts in module_layouts(base.config):
        modules = _modules_and_targets(base, layouts)
        targets = {modules[name] for name in stored if name in modules}
        unknown = min(unknown, stored - modules.keys(), key=len)
        if not unknown:
            return layouts, tuple(name for name in LINEAR_MODULES if name in targets)
    raise UserError(
        f"{tensors.folder}: adapters of {min(unknown)!r} are not supported, "
        "only of linear layers of the model, without experts"
    )


def _read_lora_config(path: Path, base: Decoder) -> tuple[LoraConfig, Collection[str]]:
    """The config of a folder's adapter_config.json, without targets, and the modules that it
    lists.
    """
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
    # a pattern, such as "all-linear", names no module
    listed = modules if isinstance(modules, list) else []
    return LoraConfig(base.config, rank, alpha, dropout), listed
