"""Any experiment at the smallest size that still does all that it does."""

import dataclasses
import itertools
import re
from pathlib import Path
from typing import Any

import jax

from agentrl_jax.configs import archer, archer_claim, lmrl
from agentrl_jax.errors import UserError
from agentrl_jax.models import save
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.training.config import Experiment

# The largest value of each field, in whichever dataclass of an experiment it stands.
LARGEST = {
    # phases and what they read
    "steps": 2, "tasks": 2, "max_rounds": 2, "count": 4, "episodes": 400,
    "workers": 0, "documents": 400,
    # strategies
    "group_size": 2, "initial_rollouts": 1, "max_expansions": 3, "max_plans": 1, "patience": 1,
    "max_concurrent_episodes": 2,
    # algorithms
    "batch": 2, "microbatch": 8, "minibatches": 1, "epochs": 2, "warmup": 1, "size": 2,
    "critic_steps": 1, "actor_steps": 1, "imitation_batch": 2, "reward_model_steps": 1,
    "pretrain_steps": 2, "utterances_per_state": 2,
    "num_updates": 1, "every": 1, "max_tasks": 2,
    # models and engines
    "layers": 1, "width": 16, "hidden": 32, "rows": 8, "batch_rows": 8, "alternatives": 10,
}  # fmt: skip


def cut_down(experiment: Experiment) -> Experiment:
    """The experiment with small sizes, evaluated on two episodes of the policy."""
    smaller = _with_smaller_fields(experiment)
    return dataclasses.replace(
        smaller,
        evaluation=dataclasses.replace(
            smaller.evaluation, episodes=2 if smaller.environment.name else 0, players=()
        ),
    )


def _with_smaller_fields(x: Any) -> Any:
    if isinstance(x, dict):
        return {key: _with_smaller_fields(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return type(x)(map(_with_smaller_fields, x))
    if not dataclasses.is_dataclass(x) or isinstance(x, type):
        return x
    names = [field.name for field in dataclasses.fields(x) if field.init]
    values = {name: _with_smaller_fields(getattr(x, name)) for name in names}
    for name in LARGEST.keys() & values.keys():
        if type(values[name]) is int:
            values[name] = min(values[name], LARGEST[name])
    return dataclasses.replace(x, **values)


def all_variants(folder: Path) -> list[tuple[str, str]]:
    """(module, variant) of every config of a folder; the variant is empty where there are none."""
    pairs: list[tuple[str, str]] = []
    for path in sorted(folder.glob("*.py")):
        source = path.read_text()
        if "def get_config(variant" in source:
            pairs += [(path.stem, variant) for variant in _variants(path.stem, source)]
        elif "def get_config(" in source:
            pairs.append((path.stem, ""))
    return pairs


def _variants(name: str, source: str) -> list[str]:
    if name == "archer":
        return [
            f"{task}-{method}"
            for task, game in archer.TASKS.items()
            for method in archer._algorithms(game)
        ]
    if name == "archer_claim":
        return [
            f"{task}-{side}"
            for task, settings in archer_claim.TASKS.items()
            for side in archer_claim._sides(settings)
        ]
    if name == "lmrl":
        return ["-".join(pair) for pair in itertools.product(lmrl.TASKS, lmrl.METHODS)]
    (default,) = re.findall(r'def get_config\(variant: str = "(\w+)"', source)
    names: dict[str, Any] = {}
    exec(compile(source, name, "exec"), names)
    try:
        names["get_config"]("?")
    except UserError as error:  # ... has no variant '?', only a, b
        others = str(error).partition(", only ")[2].split(", ")
    return list(dict.fromkeys((default, *others)))


def save_chat_model(folder: Path) -> Path:
    """A small model with a chat template, as a Hugging Face folder."""
    config = DecoderConfig(layers=1, width=16, hidden=32, heads=2, kv_heads=1, head_size=8)
    tokenizer = byte_tokenizer(chat=True)
    policy = dataclasses.replace(config, qk_norm=True, max_positions=512).build(272)
    save(folder, policy, policy.init(jax.random.key(3)))
    tokenizer.save_pretrained(folder)
    return folder
