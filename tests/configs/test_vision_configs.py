"""The experiments of policies that see: their demonstrations fit the sizes of their engine, batches
and actions.
"""

import importlib
from pathlib import Path
from typing import Any

import pytest
from support.cut_down import all_variants
from support.demonstrated import demonstrations

from agentrl_jax.images.prompts import IMAGE
from agentrl_jax.models.vision.tokenizer import VisionBPETokenizer
from agentrl_jax.training.config import Experiment

ROOT = Path(__file__).parents[2]
CONFIGS = [pair for pair in all_variants(ROOT / "configs") if pair[0].startswith("vision_")]
BASES = ("vision_base", "vision_watch", "vision_turn", "vision_furnish")  # without demonstrations
TRAINED = [x for x in CONFIGS if not x[1].endswith("smoke") and x[0] not in BASES]
EPISODES = 24


def get_experiment(name: str, variant: str) -> Experiment:
    return importlib.import_module(f"agentrl_jax.configs.{name}").get_config(variant)


@pytest.mark.parametrize(("name", "variant"), TRAINED)
def test_demonstrations_fit_the_sizes(name: str, variant: str):
    experiment = get_experiment(name, variant)
    method: Any = list(experiment.phases.values())[-1].algorithm
    per_image = experiment.engine.image_patches[0]
    lengths = []
    for trajectory in demonstrations(experiment, EPISODES):
        call = trajectory.calls[-1]
        tokens = [end - start for start, end in call.image_spans]
        assert sum(tokens) * 4 <= method.images.patches, "images of a batch row"
        assert max(tokens, default=0) * 4 <= per_image, "patches of an image"
        lengths.append(call.length)
    assert max(lengths) <= method.bin_length == experiment.engine.positions


def test_there_are_six_systems_with_variants_and_their_four_bases():
    assert len({name for name, _ in CONFIGS}) == 10 and len(CONFIGS) == 43


def test_the_bpe_tokenizer_shows_images_tools_and_digits():
    tokenizer = VisionBPETokenizer(300)(["a box at 1234 and 1234"] * 9)
    assert len(tokenizer.encode("1234")) == 4
    assert len(tokenizer.encode(IMAGE)) == 1
    tool: Any = {"type": "function", "function": {"name": "turn", "description": "Turn it."}}
    content = [{"type": "image"}, {"type": "text", "text": "b"}]
    conversation: Any = [{"role": "user", "content": content}]
    text: Any = tokenizer.apply_chat_template(
        conversation,
        tools=[tool],
        tokenize=False,
    )
    assert "turn: Turn it." in text and text.count(IMAGE) == 1
