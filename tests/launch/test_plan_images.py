"""`agentrl-plan` of models that see: images in the batch, frozen parts, the engine's tower."""

import re
from typing import Any

import pytest
from support.fixtures import device_mesh
from support.small_plan import SIZES

from agentrl_jax.errors import UserError
from agentrl_jax.launch.plans.programs import EnginePrograms, update_programs
from agentrl_jax.launch.plans.subject import PlanSpec
from agentrl_jax.models.vision.cost import estimate_image

# A decoder of three layers, for as many deepstack layers; the tower is the preset's.
SMALL: dict[str, Any] = {
    "preset": "qwen3_vl_2b",
    "sizes": "layers=3,width=64,hidden=64,heads=2,kv_heads=2,vocab=512",
    "length": 128,
    "rows": 8,
    "engine_rows": 2,
    "positions": 128,
    "chunk": 32,
}
# 64 pixels a side: 4 x 4 patches of 16 x 16 pixels, 4 tokens
IMAGES: dict[str, Any] = {"images": 2, "image_pixels": 64}
# of a token: which of its row's images' tokens it is, and three rotary positions
COLUMNS = 4 + 3 * 4
# the numbers of a patch; its row, column and segment; four entries of the table with their weights
PATCH = 3 * 2 * 16 * 16 * 4 + 3 * 4 + 4 * 4 + 4 * 4


def batch_bytes(**fields: Any) -> int:
    """Bytes of a row."""
    (gradient, _), _ = update_programs(PlanSpec(**{**SMALL, **fields}), device_mesh(data=8))
    return gradient.arguments["batch"]


def test_images_add_their_patches_to_the_batch_and_their_operations():
    text, image = (
        update_programs(PlanSpec(**{**SMALL, **fields}), device_mesh(data=8))[0][0]
        for fields in ({}, IMAGES)
    )
    patches = 2 * 16
    added = image.arguments["batch"] - text.arguments["batch"]
    assert added == 128 * COLUMNS + patches * PATCH + patches // 4 * 4  # the order of tokens
    policy: Any = PlanSpec(**SMALL).decoder()
    cost = estimate_image(policy, 64)
    assert cost.tokens == 4
    assert image.model_flops - text.model_flops == pytest.approx(8 * 2 * 3 * cost.forward_flops)


@pytest.mark.parametrize(
    ("frozen", "numbers"),
    [("tower", 4 * 1024 * (1 + 3)), ("tower,projector", 64 * (1 + 3))],
)
def test_a_frozen_towers_outputs_are_in_the_batch(frozen: str, numbers: int):
    added = batch_bytes(**IMAGES, frozen=frozen) - batch_bytes()
    assert added == 128 * COLUMNS + 8 * numbers * 2  # eight tokens, bfloat16


def test_the_engine_encodes_an_image_and_prefills_its_tokens():
    engine = EnginePrograms(PlanSpec(**SMALL, **IMAGES), device_mesh(tensor=2))
    names = {"encode", "prefill"}
    programs = {x.name: x for x in engine.sampling_programs(engine.weight_shapes(), names)}
    assert set(programs) == names
    policy: Any = PlanSpec(**SMALL).decoder()
    assert programs["encode"].tokens == 4
    assert programs["encode"].model_flops == estimate_image(policy, 64).forward_flops
    assert programs["encode"].arguments["image"] == 16 * PATCH + 4 * 4
    text = EnginePrograms(PlanSpec(**SMALL), device_mesh(tensor=2))
    assert not list(text.sampling_programs(text.weight_shapes(), {"encode"}))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sizes": SIZES, "images": 1}, "--images=1: the model has no vision tower"),
        ({"sizes": SIZES, "frozen": "tower"}, "--frozen=tower: the model has no vision tower"),
        ({"preset": "qwen2_5_vl_3b", "frozen": "eyes"}, "not 'eyes'"),
    ],
)
def test_a_plan_without_a_tower_is_refused(fields: dict[str, Any], message: str):
    spec = PlanSpec(**fields)
    with pytest.raises(UserError, match=re.escape(message)):
        spec.decoder()
        spec.image_rows()
