"""Adapters in the folders of the `peft` library: adapter_config.json and adapter_model.safetensors."""

import json
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from agentrl_jax.errors import UserError
from agentrl_jax.models.adapters import Adapted, LoraConfig
from agentrl_jax.models.decoder import Decoder
from agentrl_jax.models.families import ATTENTION, MLP, layouts
from agentrl_jax.models.weights import Layout, Tensors, check_all_used, load_tree, save_tensors, stored
from agentrl_jax.sharding import weight_shardings

MODULES = ATTENTION | MLP  # our names and theirs
PLAIN = {
    "peft_type": "LORA", "task_type": "CAUSAL_LM", "bias": "none", "fan_in_fan_out": False, "inference_mode": True, "use_dora": False,
    "use_rslora": False, "modules_to_save": None, "rank_pattern": {}, "alpha_pattern": {}, "layers_to_transform": None,
}  # fmt: skip
FILE = "adapter_model.safetensors"


def adapter_layouts(policy: Adapted) -> Any:
    """Where each adapter's two matrices lie: a tree like the adapters. Raises UserError for weights that PEFT has no module for."""
    wrong = [name for name in policy.config.targets if name not in MODULES] or (["experts"] if policy.base.config.experts else [])
    if wrong:
        raise UserError(f"PEFT's format has no place for adapters of {wrong[0]}: save merged weights instead")

    def walk(adapters: Any, base: Any) -> Any:
        if isinstance(base, Layout):
            name = "base_model.model." + base.name.removesuffix(".weight")
            down, up = (f"{name}.lora_{letter}.weight" for letter in "AB")
            return {"down": Layout(down, base.inner, base.stack, base.start), "up": Layout(up, 1, base.stack, base.start)}
        return {name: walk(part, base[name]) for name, part in adapters.items()}

    return walk(policy.axes()["adapters"], layouts(policy.base.config))


def save_adapters(folder: str | Path, policy: Adapted, adapters: Any, base_model: str = "") -> None:
    """Write a folder that `peft` and `load_adapters` read; `base_model` names the model that they belong to. Process 0 writes.

    Raises:
        UserError: an adapted weight has no place in the format.
    """
    path, c = Path(folder).expanduser(), policy.config
    tensors = stored(adapter_layouts(policy), adapters)
    config = PLAIN | {
        "base_model_name_or_path": base_model, "r": c.rank, "lora_alpha": c.alpha, "lora_dropout": c.dropout,
        "target_modules": sorted(MODULES[name] for name in c.targets),
    }  # fmt: skip
    if jax.process_index() == 0:
        path.mkdir(parents=True, exist_ok=True)
        (path / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_tensors(path, tensors, name=FILE)


def load_adapters(folder: str | Path, base: Decoder, mesh: Mesh | None = None) -> tuple[Adapted, Any]:
    """The adapted policy and its adapters; `{"base": ..., "adapters": ...}` are its parameters.

    Raises:
        UserError: a file is missing or damaged, or the adapters are of a kind that is not supported.
    """
    path = Path(folder).expanduser()
    try:
        found = json.loads((path / "adapter_config.json").read_text())
        rank, alpha, dropout = int(found["r"]), float(found["lora_alpha"]), float(found.get("lora_dropout") or 0.0)
        modules = found["target_modules"]
    except FileNotFoundError as error:
        raise UserError(f"{path} holds no adapter_config.json: give the folder of a PEFT adapter") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path / 'adapter_config.json'} is damaged") from error
    for name in ("peft_type", "bias", "fan_in_fan_out", "use_dora", "use_rslora", "modules_to_save", "rank_pattern", "alpha_pattern"):
        if (found.get(name) or PLAIN[name]) != PLAIN[name]:
            raise UserError(f"{path}: adapters with {name} = {found[name]!r} are not supported")
    ours = {theirs: name for name, theirs in MODULES.items()}
    unknown = [name for name in modules if name not in ours] if isinstance(modules, list) else [modules]
    if unknown:
        raise UserError(f"{path}: adapters of {unknown[0]!r} are not supported, only of {', '.join(ours)}")
    config = LoraConfig(base.config, rank, alpha, dropout, tuple(name for name in MODULES if MODULES[name] in modules))
    policy, tensors = Adapted(base, config), Tensors(path)
    names, shapes = adapter_layouts(policy), jax.eval_shape(policy.init_adapters, jax.random.key(0))
    check_all_used(tensors, names, shapes)
    shardings = None if mesh is None else weight_shardings(mesh, policy.axes()["adapters"], shapes)
    return policy, load_tree(tensors, names, shapes, shardings, base.config.param_dtype)
