"""`transformers`' models that see, on torch. Run it to write the golden files that the default
tests compare with.

python tests/parity/vision_models.py
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from support.hf_folders import write_folder
from support.vision_folders import (
    IMAGE,
    VIDEO,
    VISION_CASES,
    Document,
    case_documents,
    pixels_of,
)
from torch_models import GOLDEN, shapes_in
from transformers import AutoConfig, AutoModelForImageTextToText

from agentrl_jax.image_format import ImageFormat
from agentrl_jax.models import load

EAGER = {"attn_implementation": "eager"}
WRITTEN = 12  # tokens of a continuation
GRADIENTS = ("patch", "merger", "projector", "qkv", "q_proj", "pos_embed", "position_embedding")


def make_vision_model(config: dict[str, Any]) -> Any:
    return AutoModelForImageTextToText.from_config(AutoConfig.for_model(**config), **EAGER)


def open_vision_model(folder: Path) -> Any:
    net = AutoModelForImageTextToText.from_pretrained(str(folder), dtype=torch.float32, **EAGER)
    return net.eval()


def torch_inputs(net: Any, form: ImageFormat, documents: list[Document]) -> dict[str, Any]:
    """Left-padded rows, with what the model's forward pass takes of their images."""
    length = max(len(x.tokens) for x in documents)
    tokens, mask = (np.zeros((len(documents), length), np.int64) for _ in range(2))
    for row, document in enumerate(documents):
        tokens[row, length - len(document.tokens) :] = document.tokens
        mask[row, length - len(document.tokens) :] = 1
    inputs: dict[str, Any] = {
        "input_ids": torch.tensor(tokens),
        "attention_mask": torch.tensor(mask),
    }
    kinds = torch.tensor(np.where(tokens == VIDEO, 2, tokens == IMAGE)).long()
    images = [(image, is_video) for x in documents for image, is_video in zip(x.images, x.is_video)]
    if form.fixed_side:
        pixels = np.stack([pixels_of(form, image) for image, _ in images])
        return inputs | {"pixel_values": torch.tensor(pixels), "token_type_ids": kinds}
    inputs["mm_token_type_ids"] = kinds
    for name, grid_name, videos in (
        ("pixel_values", "image_grid_thw", False),
        ("pixel_values_videos", "video_grid_thw", True),
    ):
        some = [image for image, is_video in images if is_video == videos]
        if some:
            inputs[name] = torch.tensor(np.concatenate([x.patches for x in some]))
            inputs[grid_name] = torch.tensor([x.grid for x in some])
    if net.config.model_type == "qwen2_5_vl" and "video_grid_thw" in inputs:
        seconds = [
            span.seconds_per_patch
            for x in documents
            for span, is_video in zip(x.spans, x.is_video)
            if is_video
        ]
        inputs["second_per_grid_ts"] = torch.tensor(seconds)
    return inputs


def logits(net: Any, form: ImageFormat, documents: list[Document]) -> list[np.ndarray]:
    """Of every token of each document."""
    inputs = torch_inputs(net, form, documents)
    _forget_positions(net)
    out = net(**inputs).logits.float().detach().numpy()
    return [row[-len(x.tokens) :] for row, x in zip(out, documents)]


def loss_and_gradients(
    net: Any, form: ImageFormat, documents: list[Document]
) -> tuple[float, dict[str, np.ndarray]]:
    """The sum over the documents of the mean squared logit, and its gradient by name."""
    net.zero_grad()
    total = torch.tensor(0.0)
    for document in documents:
        _forget_positions(net)
        total = total + net(**torch_inputs(net, form, [document])).logits.pow(2).mean()
    total.backward()
    gradients = {
        name: weight.grad.numpy()
        for name, weight in net.named_parameters()
        if weight.grad is not None
    }
    return total.item(), gradients


def _forget_positions(net: Any) -> None:
    """Of an earlier call, which a Qwen model would go on from."""
    if hasattr(net.model, "rope_deltas"):
        net.model.rope_deltas = None


@torch.no_grad()
def generated(net: Any, form: ImageFormat, document: Document, count: int) -> np.ndarray:
    """The likeliest continuation of a document, by the library's own decoding over a cache."""
    inputs = torch_inputs(net, form, [document])
    out = net.generate(**inputs, max_new_tokens=count, do_sample=False)
    return out[0, len(document.tokens) :].numpy().astype(np.int32)


def main() -> None:
    shapes, numbers = {}, {}
    for case, config in VISION_CASES.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            make_vision_model(config).save_pretrained(folder / "first")
            shapes[case] = shapes_in(folder / "first")
            write_folder(folder / "second", config, shapes[case])
            net, (policy, _) = open_vision_model(folder / "second"), load(folder / "second")
            form = policy.image_format
            documents = case_documents(form, case)
            with torch.no_grad():
                for i, part in enumerate(logits(net, form, documents)):
                    numbers[f"{case}/logits/{i}"] = part
            numbers[f"{case}/greedy"] = generated(net, form, documents[0], WRITTEN)
            loss, gradients = loss_and_gradients(net, form, documents)
            numbers[f"{case}/loss"] = np.float32(loss)
            # by name as in the model's modules
            for key, gradient in gradients.items():
                if any(part in key for part in GRADIENTS) and "language_model" not in key:
                    numbers[f"{case}/gradient/{key}"] = gradient
    (GOLDEN / "vision_shapes.json").write_text(json.dumps(shapes, indent=0) + "\n")
    np.savez_compressed(GOLDEN / "vision.npz", allow_pickle=False, **numbers)


if __name__ == "__main__":
    main()
