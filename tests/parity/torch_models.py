"""The other side of parity: `transformers` on torch. Run it to write the golden files that the
default tests compare with.

python tests/parity/torch_models.py
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from support.hf_folders import CONFIG_CASES, config_json, random_prompts, write_folder
from transformers import AutoConfig, AutoModelForCausalLM

GOLDEN = Path(__file__).resolve().parent.parent / "models" / "golden"
CONTINUATION = 64
EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}
torch.set_num_threads(1)  # models this small only wait for each other's threads


def shapes_of(config: dict[str, Any]) -> dict[str, list[int]]:
    """What a checkpoint of that config holds, as `transformers` writes it."""
    net = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    with tempfile.TemporaryDirectory() as folder:
        net.save_pretrained(folder)
        return shapes_in(Path(folder))


def shapes_in(folder: Path) -> dict[str, list[int]]:
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", framework="np") as file:
        return {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def open_model(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32, **EAGER).eval()


@torch.no_grad()
def logits(net: Any, tokens: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """Of every position; padding (mask 0) counts for no position."""
    mask = np.ones_like(tokens) if mask is None else mask
    positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
    out = net(
        torch.tensor(tokens).long(),
        attention_mask=torch.tensor(mask),
        position_ids=torch.tensor(positions).long(),
    )
    return out.logits.float().numpy()


@torch.no_grad()
def greedy(net: Any, tokens: np.ndarray, count: int = CONTINUATION) -> np.ndarray:
    """The likeliest continuation, each token from a forward pass over all before it."""
    ids = torch.tensor(tokens).long()
    for _ in range(count):
        ids = torch.cat([ids, net(ids).logits[:, -1:].argmax(-1)], dim=1)
    return ids[:, tokens.shape[1] :].numpy().astype(np.int32)


@torch.no_grad()
def generated(
    net: Any, tokens: np.ndarray, mask: np.ndarray, count: int = CONTINUATION
) -> np.ndarray:
    """The likeliest continuation of left-padded rows, by the library's own decoding over a
    cache.
    """
    out = net.generate(
        torch.tensor(tokens).long(),
        attention_mask=torch.tensor(mask),
        max_new_tokens=count,
        do_sample=False,
    )
    return out[:, tokens.shape[1] :].numpy().astype(np.int32)


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    shapes, numbers = {}, {}
    for case in CONFIG_CASES:
        config = config_json(case)
        shapes[case] = shapes_of(config)
        with tempfile.TemporaryDirectory() as folder:
            net = open_model(write_folder(Path(folder), config, shapes[case]))
        numbers[f"{case}/logits"], numbers[f"{case}/greedy"] = (
            logits(net, random_prompts()),
            greedy(net, random_prompts()),
        )
    (GOLDEN / "shapes.json").write_text(json.dumps(shapes, indent=0) + "\n")
    np.savez_compressed(GOLDEN / "decoders.npz", allow_pickle=False, **numbers)


if __name__ == "__main__":
    main()
